------------------------------ MODULE ClockTrace ------------------------------
(* Whether the clocks of groups of whole nodes were handed over as Clock.tla   *)
(* has it. The module `Recorded` is written by                                 *)
(* tests/specifications/clock_traces.py from runs of the simulator: for each   *)
(* group of a run a line for each step, in the order in which they happened.   *)
(* `at` is the true time. A line that is not allowed is a deadlock: the last   *)
(* state that TLC prints has its number.                                       *)
EXTENDS Clock, Recorded

VARIABLES
    run,     \* Which of the runs this is.
    line,    \* How many of its lines have been followed.
    reigns,  \* By term: who began to lead, when, and with which clocks.
    charged, \* By node: when its led clock was looked at last.
    marks,   \* After each entry of the log: the highest stamps so far, <<time, led>>.
    least,   \* The least that the shard clock and the led clock were ahead of the true time at such an entry.
    anew     \* When a leader began last with a clock of its own.

traced == <<run, line, reigns, charged, marks, least, anew>>
Place == <<run, line>>
Lines == Runs[run].lines
NeverHeard == -RunsBegin
Never == 10 * RunsBegin

TraceInit ==
    /\ Init
    /\ run \in DOMAIN Runs
    /\ line = 0
    /\ reigns = <<>>
    /\ charged = [n \in Node |-> 0]
    /\ marks = <<>>
    /\ least = <<Never, Never>>
    /\ anew = 0

(* Clocks are read in whole milliseconds, by each leader anew, and drift by up to 100 ppm. *)
Slack(at) == 5 + 2 * Cardinality(DOMAIN reigns) + (at - RunsBegin) \div 4000
Near(a, b, at) == a - b <= Slack(at) /\ b - a <= Slack(at)
After(entries) == IF entries = 0 THEN <<0, 0>> ELSE marks[entries]

(* A replica begins, with what its log has: what it was shown is gone. *)
Begin(n) ==
    /\ shown' = [shown EXCEPT ![n] = <<0, 0>>]
    /\ ahead' = [ahead EXCEPT ![n] = Unknown]
    /\ leads' = [leads EXCEPT ![n] = FALSE]
    /\ UNCHANGED <<now, term, log, commit, led, decided, own, restarts, reigns, charged, marks, least, anew>>

(* Heartbeats of the leader of a term, the best that a node has heard of both clocks. What they claim must be true. *)
Heard(f, t, shownLed, shownAhead, at) ==
    /\ t \in DOMAIN reigns /\ reigns[t].node # f
    /\ shownLed <= Max(reigns[t].led, After(Len(marks))[2]) + (at - reigns[t].at) + Slack(at)
    /\ shownAhead <= reigns[t].ahead + Slack(at)
    /\ shown' = [shown EXCEPT ![f] = Better(<<t, shownLed>>, @)]
    /\ ahead' = [ahead EXCEPT ![f] = shownAhead]
    /\ UNCHANGED <<now, term, log, commit, leads, led, decided, own, restarts, reigns, charged, marks, least, anew>>

(* What a node has when it is elected: the term of its last entry, and how many entries it has applied. *)
Has(n, last, entries, at) ==
    /\ now' = at
    /\ log' = [log EXCEPT ![n] = <<[Began(last) EXCEPT !.time = After(entries)[1], !.led = After(entries)[2]]>>]
    /\ commit' = [commit EXCEPT ![n] = 1]
    /\ UNCHANGED <<term, leads, led, shown, ahead, decided, own, restarts, reigns, charged, marks, least, anew>>

(* It begins to lead, and goes on with both clocks as Elect of Clock.tla has it. One that never heard of the group's     *)
(* clock takes its own, held back by those of the others (C3): `most` is how far it may be ahead.                        *)
Lead(n, t, ledNow, aheadNow, most) ==
    /\ t \notin DOMAIN reigns
    /\ ledNow = LedToContinue(n)
    /\ IF ahead[n] = Unknown
       THEN aheadNow <= Max(most, AppliedTime(n) - now) + Slack(now)
       ELSE Near(aheadNow, AheadToContinue(n), now)
    /\ reigns' = (t :> [node |-> n, at |-> now, led |-> ledNow, ahead |-> aheadNow]) @@ reigns
    /\ leads' = [leads EXCEPT ![n] = TRUE]
    /\ led' = [led EXCEPT ![n] = ledNow]
    /\ charged' = [charged EXCEPT ![n] = now]
    /\ own' = IF ahead[n] = Unknown THEN own + 1 ELSE own
    /\ least' = IF ahead[n] = Unknown THEN [least EXCEPT ![1] = Never] ELSE least
    /\ anew' = IF ahead[n] = Unknown THEN now ELSE anew
    /\ ahead' = [ahead EXCEPT ![n] = aheadNow]
    /\ UNCHANGED <<now, term, log, commit, shown, decided, restarts, marks>>

(* A leader that steps down has shown itself what it knew. *)
Follow(n, t, ledNow, at) ==
    /\ leads[n] /\ reigns[t].node = n
    /\ ledNow <= Max(led[n], After(Len(marks))[2]) + (at - charged[n]) + Slack(at)
    /\ leads' = [leads EXCEPT ![n] = FALSE]
    /\ shown' = [shown EXCEPT ![n] = Better(<<t, ledNow>>, @)]
    /\ UNCHANGED <<now, term, log, commit, led, ahead, decided, own, restarts, reigns, charged, marks, least, anew>>

(* An entry with the clocks as the leader has them. One that was frozen charged less, and none more (L7); what it has    *)
(* applied meanwhile of leaders before it may have been more than it knew.                                              *)
Stamps(n, t, entries, time, ledNow, at) ==
    /\ leads[n] /\ reigns[t].node = n
    /\ time >= After(entries)[1] /\ ledNow >= After(entries)[2]
    /\ Near(time, Max(After(entries)[1], at + ahead[n]), at)
    /\ ledNow >= led[n] /\ ledNow <= Max(led[n], After(entries)[2]) + (at - charged[n]) + Slack(at)
    /\ led' = [led EXCEPT ![n] = ledNow]
    /\ charged' = [charged EXCEPT ![n] = at]
    /\ UNCHANGED <<now, term, log, commit, leads, shown, ahead, decided, own, restarts, reigns, marks, least, anew>>

(* The next entry of the log was decided, and was made at that time: LedNeverHurries and NoJump of Clock.tla, against the *)
(* entry before it from which it is farthest. Where a leader had no clock to go on with, the shard clock begins anew.    *)
Decide(time, ledNow, at) ==
    LET before == After(Len(marks))
        mark == <<Max(before[1], time), Max(before[2], ledNow)>>
        counts == {2} \cup (IF at >= anew THEN {1} ELSE {})
        early == [clock \in 1..2 |-> IF clock \in counts THEN mark[clock] - at ELSE least[clock]]
    IN /\ \A clock \in counts : early[clock] <= least[clock] + Slack(at)
       /\ marks' = Append(marks, mark)
       /\ least' = [clock \in 1..2 |-> IF early[clock] < least[clock] THEN early[clock] ELSE least[clock]]
       /\ UNCHANGED <<now, term, log, commit, leads, led, shown, ahead, decided, own, restarts, reigns, charged, anew>>

FollowLine(l) ==
    CASE l[1] = "begin" -> Begin(l[2])
      [] l[1] = "heard" -> Heard(l[2], l[3], l[4], l[5], l[6])
      [] l[1] = "has" -> Has(l[2], l[3], l[4], l[5])
      [] l[1] = "lead" -> Lead(l[2], l[3], l[4], l[5], l[6])
      [] l[1] = "follow" -> Follow(l[2], l[3], l[4], l[5])
      [] l[1] = "stamp" -> Stamps(l[2], l[3], l[4], l[5], l[6], l[7])
      [] l[1] = "decide" -> Decide(l[2], l[3], l[4])

TraceNext ==
    IF line = Len(Lines) THEN UNCHANGED <<vars, traced>>
    ELSE /\ FollowLine(Lines[line + 1])
         /\ line' = line + 1
         /\ UNCHANGED run

(* For runs of which some are to be refused: each is told, with the line that was, and ends there. *)
TraceNextOrTell ==
    \/ TraceNext
    \/ /\ ~ENABLED TraceNext
       /\ PrintT(<<"refused", run, line + 1, Lines[line + 1][1]>>)
       /\ FALSE
=============================================================================
