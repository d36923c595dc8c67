-------------------------------- MODULE Clock --------------------------------
(* The two clocks of a group, and how a new leader takes them over: RULES C2,  *)
(* C3, L6, L7; cluster/group/clock.py.                                         *)
(*                                                                             *)
(* Every entry carries the shard clock (deadlines) and the led clock (leases). *)
(* Only leaders read clocks. A leader does not begin with its own: it goes on  *)
(* with what the leader before it showed in heartbeats. The shard clock then   *)
(* runs on by the process clock, through times without a leader as well. The   *)
(* led clock runs only while somebody leads and is awake.                      *)
(*                                                                             *)
(* The catch is in what was shown and then lost. A leader may show a led time  *)
(* to one node and be replaced by a leader that knows less, under which leases *)
(* are renewed. Whoever leads after that must not go on from the greater time: *)
(* those leases would end early. So a shown time counts only if the log has no *)
(* entry of a later term.                                                      *)
(*                                                                             *)
(* Raft itself is cut short here: of three nodes two elect, two commit, and    *)
(* each is one step.                                                           *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Node,
    Ahead,     \* The nodes whose process clock is ahead by one, as far as the members let it be (C3).
    MaxNow, MaxTerm, MaxStamps, MaxRestarts

VARIABLES
    now,     \* The true time.
    term, log, commit, leads,  \* Raft: by node.
    led,     \* The led clock of a node that leads.
    shown,   \* What a node was last shown of the led clock: <<term, led>>.
    ahead,   \* How far the shard clock is ahead of the true time, as a node goes on with it; Unknown if it never heard.
    decided, \* Known to nobody: the longest log that was ever committed.
    own,     \* Known to nobody: how many leaders began with a clock of their own.
    restarts

vars == <<now, term, log, commit, leads, led, shown, ahead, decided, own, restarts>>

Unknown == -99
Skew == [n \in Node |-> IF n \in Ahead THEN 1 ELSE 0]
Max(a, b) == IF a > b THEN a ELSE b

(* An entry: its term, and unless it is the empty one that begins a term, its stamps and the true time they were made. *)
Began(t) == [term |-> t, stamped |-> FALSE, time |-> 0, led |-> 0, at |-> 0]

RECURSIVE Highest(_, _, _)
Highest(entries, field, index) ==
    IF index = 0 THEN 0
    ELSE Max(IF field = "led" THEN entries[index].led ELSE entries[index].time, Highest(entries, field, index - 1))

AppliedLed(n) == Highest(log[n], "led", commit[n])
AppliedTime(n) == Highest(log[n], "time", commit[n])

LastTerm(entries) == IF entries = <<>> THEN 0 ELSE entries[Len(entries)].term
Majority(nodes) == Cardinality(nodes) * 2 > Cardinality(Node)

Init ==
    /\ now = 0
    /\ term = [n \in Node |-> 0]
    /\ log = [n \in Node |-> <<>>]
    /\ commit = [n \in Node |-> 0]
    /\ leads = [n \in Node |-> FALSE]
    /\ led = [n \in Node |-> 0]
    /\ shown = [n \in Node |-> <<0, 0>>]
    /\ ahead = [n \in Node |-> Unknown]
    /\ decided = <<>>
    /\ own = 0
    /\ restarts = 0

(* Of two times that were shown, the one of the later term, then the later one. *)
Better(one, other) ==
    IF one[1] > other[1] \/ (one[1] = other[1] /\ one[2] > other[2]) THEN one ELSE other

(* Time passes; a leader that is frozen meanwhile charges nothing to leases. *)
Tick ==
    /\ now < MaxNow
    /\ now' = now + 1
    /\ \E awake \in SUBSET {n \in Node : leads[n]} :
           led' = [n \in Node |-> IF n \in awake THEN led[n] + 1 ELSE led[n]]
    /\ UNCHANGED <<term, log, commit, leads, shown, ahead, decided, own, restarts>>

(* What a node goes on with when it begins to lead. *)
LedToContinue(n) ==
    IF shown[n][1] >= LastTerm(log[n]) THEN Max(AppliedLed(n), shown[n][2]) ELSE AppliedLed(n)

(* The shard clock that was shown, else the own clock; it stands still rather than go back. *)
AheadToContinue(n) == Max(IF ahead[n] = Unknown THEN Skew[n] ELSE ahead[n], AppliedTime(n) - now)

Elect(n, voters) ==
    LET next == term[n] + 1
    IN /\ n \in voters /\ Cardinality(voters) = Cardinality(Node) \div 2 + 1 /\ ~leads[n]
       /\ next <= MaxTerm
       /\ \A v \in voters :
              /\ term[v] < next
              /\ LastTerm(log[v]) < LastTerm(log[n])
                 \/ (LastTerm(log[v]) = LastTerm(log[n]) /\ Len(log[v]) <= Len(log[n]))
       /\ term' = [v \in Node |-> IF v \in voters THEN next ELSE term[v]]
       /\ leads' = [v \in Node |-> IF v = n THEN TRUE ELSE leads[v] /\ v \notin voters]
       (* A leader that steps down has shown itself what it knew. *)
       /\ shown' = [v \in Node |->
              IF v \in voters /\ leads[v] THEN Better(<<term[v], led[v]>>, shown[v]) ELSE shown[v]]
       /\ led' = [led EXCEPT ![n] = LedToContinue(n)]
       /\ ahead' = [ahead EXCEPT ![n] = AheadToContinue(n)]
       /\ log' = [log EXCEPT ![n] = Append(@, Began(next))]
       /\ own' = IF ahead[n] = Unknown THEN own + 1 ELSE own
       /\ UNCHANGED <<now, commit, decided, restarts>>

(* A heartbeat shows both clocks. *)
Beat(l, f) ==
    /\ leads[l] /\ f # l /\ term[f] <= term[l] /\ ~leads[f]
    /\ term' = [term EXCEPT ![f] = term[l]]
    /\ shown' = [shown EXCEPT ![f] = Better(<<term[l], led[l]>>, @)]
    /\ ahead' = [ahead EXCEPT ![f] = ahead[l]]
    /\ <<term', shown', ahead'>> # <<term, shown, ahead>>
    /\ UNCHANGED <<now, log, commit, leads, led, decided, own, restarts>>

(* A follower takes the leader's log. That makes a majority: all of it is committed, if its end is of this term. *)
Copy(l, f) ==
    LET all == Len(log[l])
        done == log[l][all].term = term[l]
        known == IF done THEN all ELSE commit[l]
    IN /\ leads[l] /\ f # l /\ term[f] <= term[l] /\ ~leads[f]
       /\ term' = [term EXCEPT ![f] = term[l]]
       /\ log' = [log EXCEPT ![f] = log[l]]
       /\ commit' = [commit EXCEPT ![f] = Max(@, known), ![l] = known]
       /\ <<log', commit'>> # <<log, commit>>
       /\ led' = [led EXCEPT ![l] = Max(@, Highest(log[l], "led", known))]
       /\ decided' = IF known > Len(decided) THEN log[l] ELSE decided
       /\ UNCHANGED <<now, leads, shown, ahead, own, restarts>>

(* An entry with the clocks as the leader has them. *)
Stamp(l) ==
    /\ leads[l] /\ Cardinality({i \in DOMAIN log[l] : log[l][i].stamped}) < MaxStamps
    /\ log' = [log EXCEPT ![l] = Append(@, [
           term |-> term[l], stamped |-> TRUE, at |-> now,
           time |-> Max(AppliedTime(l), now + ahead[l]), led |-> led[l]])]
    /\ UNCHANGED <<now, term, commit, leads, led, shown, ahead, decided, own, restarts>>

(* A process ends: its log stays, what it was shown does not. *)
Restart(n) ==
    /\ restarts < MaxRestarts
    /\ restarts' = restarts + 1
    /\ leads' = [leads EXCEPT ![n] = FALSE]
    /\ shown' = [shown EXCEPT ![n] = <<0, 0>>]
    /\ ahead' = [ahead EXCEPT ![n] = Unknown]
    /\ <<leads', shown', ahead'>> # <<leads, shown, ahead>>
    /\ UNCHANGED <<now, term, log, commit, led, decided, own>>

Next ==
    \/ Tick
    \/ \E n \in Node : Stamp(n) \/ Restart(n)
    \/ \E n \in Node : \E voters \in SUBSET Node : Elect(n, voters)
    \/ \E l \in Node : \E f \in Node : Beat(l, f) \/ Copy(l, f)

Spec == Init /\ [][Next]_vars

(* What must hold. A leader may stamp before it has applied all that former leaders left in its log, and then with less  *)
(* than they did. So a state machine takes the highest stamp so far: neither clock goes back (C2).                       *)
Stamped == {i \in DOMAIN decided : decided[i].stamped}
TimeAt(i) == Highest(decided, "time", i)
LedAt(i) == Highest(decided, "led", i)
Between(i, j) == decided[j].at - decided[i].at

(* Between two entries no more led time passes than time: no lease ends early (L4, L8). *)
LedNeverHurries == \A i \in Stamped : \A j \in Stamped : i < j => LedAt(j) - LedAt(i) <= Between(i, j)

(* A change of leaders is no jump of the shard clock, if the new leader has heard any before it. *)
NoJump == own <= 1 => \A i \in Stamped : \A j \in Stamped : i < j => TimeAt(j) - TimeAt(i) <= Between(i, j)

(* C3: and it is never ahead by more than the most that a clock is held back to. *)
NeverAhead == \A i \in Stamped : \E n \in Node : TimeAt(i) <= decided[i].at + Max(0, Skew[n])

Same == Permutations(Node \ Ahead)
=============================================================================
