------------------------------- MODULE MoveTrace -------------------------------
(* Whether the replicas of groups of whole nodes moved as Move.tla has it. The  *)
(* module `Recorded` is written by tests/specifications/move_traces.py from     *)
(* runs of the simulator: for each group of a run a line for each step, in the  *)
(* order in which they happened. A place in a log is one number, its term times *)
(* `Indices` and its index: who has an entry has a log that ends there or       *)
(* later (Raft 5.4.1). What nodes have, and up to where a majority was counted, *)
(* is told before the next line of another kind. A line that is not allowed is  *)
(* a deadlock: the last state that TLC prints has its number.                   *)
EXTENDS Move, Recorded, TLC

VARIABLES
    run,      \* Which of the runs this is.
    line,     \* How many of its lines have been followed.
    proposed, \* Changes of the members in some leader's log: the place, and the members after it.
    applied   \* By node: the index up to which it knows the members. It does not stand before it has applied that.

traced == <<run, line, proposed, applied>>
Place == <<run, line>>
Lines == Runs[run].lines
Index(at) == at % Indices
CaughtUp == 100

(* Members as the code has them: in a joint configuration `outgoing` votes too, and `next` are its voters that learn. *)
Conf(at, voters, outgoing, learners, next) ==
    [at |-> at, voters |-> voters, outgoing |-> outgoing, learners |-> learners, next |-> next]
Whole(conf) == Members(conf) \cup conf.outgoing
IsJoint(conf) == conf.outgoing # {}

TraceInit ==
    /\ run \in DOMAIN Runs
    /\ line = 0
    /\ log = <<Conf(1, Runs[run].voters, {}, Runs[run].learners, {})>>
    /\ committed = 0
    /\ has = [n \in Node |-> 0]
    /\ heard = has
    /\ words = {}
    /\ vote = [n \in Node |-> <<0, Nobody>>]
    /\ given = {}
    /\ proposed = {}
    /\ applied = has
    /\ left = has

(* The members in force where the log is known up to an index. *)
RECURSIVE ConfFrom(_, _)
ConfFrom(i, index) == IF i = 1 \/ log[i].at <= index THEN log[i] ELSE ConfFrom(i - 1, index)
ConfAt(index) == ConfFrom(Len(log), index)

(* Both majorities, where there are two. *)
Decides(nodes, conf) == Majority(nodes, conf.voters) /\ (IsJoint(conf) => Majority(nodes, conf.outgoing))

(* A replica begins with what is on the disk: at least what it said that it has, and its vote. One that was given up has *)
(* nothing, unless its process ended before that was written; then it has all.                                           *)
Begin(n, term, candidate, end, from, voters, knows) ==
    /\ \/ term > vote[n][1]
       \/ term = vote[n][1] /\ candidate \in {vote[n][2], Nobody}
    /\ IF left[n] # 0 /\ has[n] = 0 THEN end = 0 \/ end >= left[n] ELSE end >= has[n]
    /\ end # 0 => voters = ConfAt(from).voters
    /\ has' = [has EXCEPT ![n] = end]
    /\ applied' = [applied EXCEPT ![n] = knows]
    /\ UNCHANGED <<log, committed, heard, words, vote, given, proposed, left>>

(* One whose log is damaged says nothing before it has all again that it had. *)
Damaged(n, term, candidate) ==
    /\ \/ term > vote[n][1]
       \/ term = vote[n][1] /\ candidate \in {vote[n][2], Nobody}
    /\ UNCHANGED <<log, committed, has, heard, words, vote, given, proposed, applied, left>>

(* Copy: a node has written more of the log, or something else in its place. What is committed stays. *)
Has(n, end) ==
    /\ has[n] >= committed => end >= committed
    /\ has' = [has EXCEPT ![n] = end]
    /\ UNCHANGED <<log, committed, heard, words, vote, given, proposed, applied, left>>

(* Commit: a leader has counted, by the members that it knows. Its own disk need not have it, if a majority of others has *)
(* (thesis 10.2.1). One that was deposed may count late what is older.                                                   *)
Commits(n, at, knows) ==
    /\ Decides(Holders(at), ConfAt(knows))
    /\ committed' = IF at > committed THEN at ELSE committed
    /\ UNCHANGED <<log, has, heard, words, vote, given, proposed, applied, left>>

(* What becomes of the members by a change: one step by itself, several at once through a joint configuration. *)
Changed(conf, at, voting, learning, gone) ==
    LET voters == (conf.voters \cup voting) \ (learning \cup gone)
        learners == (conf.learners \cup (learning \ conf.voters)) \ (voting \cup gone)
        isJoint == Cardinality(voting) + Cardinality(learning) + Cardinality(gone) > 1
    IN IF isJoint THEN Conf(at, voters, conf.voters, learners, learning \cap conf.voters)
       ELSE Conf(at, voters, {}, learners \cup (learning \cap conf.voters), {})
Left(conf, at) == Conf(at, conf.voters, {}, conf.learners \cup conf.next, {})

(* AddLearner. *)
AddsOne(conf, voting, learning, gone) ==
    voting = {} /\ gone = {} /\ Cardinality(learning) = 1 /\ learning \cap Whole(conf) = {}
(* Remove, of one that does not vote. *)
RemovesOne(conf, voting, learning, gone) ==
    voting = {} /\ learning = {} /\ Cardinality(gone) = 1 /\ gone \subseteq conf.learners
(* Promote, and Remove of those in whose place they come: all that vote then have (nearly) all of the leader's log. *)
MovesVotes(n, conf, at, voting, learning, gone) ==
    /\ voting \subseteq conf.learners
    /\ (learning \cup gone) \subseteq conf.voters
    /\ LET after == Changed(conf, at, voting, learning, gone).voters
       IN after # {} /\ \A v \in after \ {n} : has[v] # 0 /\ Index(has[v]) + CaughtUp + 1 >= Index(at)

(* Change: the next one only when the one before it is applied. *)
Changes(n, at, knows, voting, learning, gone) ==
    LET conf == ConfAt(knows)
    IN /\ ~IsJoint(conf)
       /\ \A p \in proposed : p.place \div Indices = at \div Indices => Index(p.place) <= knows
       /\ \/ AddsOne(conf, voting, learning, gone)
          \/ RemovesOne(conf, voting, learning, gone)
          \/ MovesVotes(n, conf, at, voting, learning, gone)
       /\ proposed' = proposed \cup {[place |-> at, to |-> Changed(conf, Index(at), voting, learning, gone)]}
       /\ UNCHANGED <<log, committed, has, heard, words, vote, given, applied, left>>

(* A change is applied for the first time: one that a leader has made, or the end of a joint configuration. *)
Decided(at, voters, outgoing, learners, next) ==
    LET told == Conf(Index(at), voters, outgoing, learners, next)
    IN /\ at <= committed
       /\ \/ [place |-> at, to |-> told] \in proposed
          \/ IsJoint(Now) /\ told = Left(Now, Index(at))
       /\ log' = Append(log, told)
       /\ UNCHANGED <<committed, has, heard, words, vote, given, proposed, applied, left>>

Applies(n, index) ==
    /\ applied' = [applied EXCEPT ![n] = IF index > @ THEN index ELSE @]
    /\ UNCHANGED <<log, committed, has, heard, words, vote, given, proposed, left>>

(* GiveUp: some members were decided on of which it is none, and it has nothing of what made it one again; the leader's  *)
(* log was no shorter than its own.                                                                                      *)
GivesUp(n, word) ==
    /\ word >= has[n]
    /\ \E i \in DOMAIN log :
           /\ n \notin Whole(log[i]) /\ log[i].at <= Index(word)
           /\ \A k \in i..Len(log) : n \in Whole(log[k]) => Index(has[n]) < log[k].at
    /\ left' = [left EXCEPT ![n] = IF has[n] > @ THEN has[n] ELSE @]
    /\ has' = [has EXCEPT ![n] = 0]
    /\ applied' = [applied EXCEPT ![n] = 0]
    /\ UNCHANGED <<log, committed, heard, words, vote, given, proposed>>

(* Vote: one in a term, for a log that is no shorter than what it has, or had before it gave that up. (What is not       *)
(* committed may have been replaced in memory by then.)                                                                  *)
Votes(n, term, candidate, end) ==
    /\ term > vote[n][1] \/ (term = vote[n][1] /\ vote[n][2] \in {Nobody, candidate})
    /\ end >= left[n]
    /\ end >= has[n] \/ end >= committed
    /\ vote' = [vote EXCEPT ![n] = <<term, candidate>>]
    /\ UNCHANGED <<log, committed, has, heard, words, given, proposed, applied, left>>

FollowLine(l) ==
    CASE l[1] = "begin" -> Begin(l[2], l[3], l[4], l[5], l[6], l[7], l[8])
      [] l[1] = "damaged" -> Damaged(l[2], l[3], l[4])
      [] l[1] = "has" -> Has(l[2], l[3])
      [] l[1] = "commit" -> Commits(l[2], l[3], l[4])
      [] l[1] = "change" -> Changes(l[2], l[3], l[4], l[5], l[6], l[7])
      [] l[1] = "decide" -> Decided(l[2], l[3], l[4], l[5], l[6])
      [] l[1] = "apply" -> Applies(l[2], l[3])
      [] l[1] = "give up" -> GivesUp(l[2], l[3])
      [] l[1] = "vote" -> Votes(l[2], l[3], l[4], l[5])
      [] l[1] = "end" -> UNCHANGED <<vars, proposed, applied>>

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

-----------------------------------------------------------------------------
(* ElectedHasIt, by the members that a node knows.                                                                       *)
ElectedHasItTraced ==
    \A c \in Node :
        LET conf == ConfAt(applied[c])
        IN has[c] # 0 /\ has[c] < committed /\ c \in conf.voters => ~Decides(WouldElect(c), conf)
=============================================================================
