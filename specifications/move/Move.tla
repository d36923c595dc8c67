--------------------------------- MODULE Move ---------------------------------
(* How the replicas of a group move between nodes: docs/decisions/members.md, 2 *)
(* and 15; cluster/host/membership_steps.py.                                    *)
(*                                                                              *)
(* The leader takes one step at a time: a node becomes a learner and gets the   *)
(* log; when it has it, it takes the place of a voter; who is no member any     *)
(* more is told so and gives its replica up. No step is remembered: any leader  *)
(* sees in the membership what comes next.                                      *)
(*                                                                              *)
(* Giving up is the dangerous step. The word "you are no member" may be late:   *)
(* the node may have been taken in again since, and be counted for what is      *)
(* committed. So it heeds only the word of a leader whose log is longer than    *)
(* all that it has heard of: every change that makes it a member again is later *)
(* than any word that it is none. And it keeps its term and vote, for it may    *)
(* come back within the same term, and how far its log went: it was counted for *)
(* that, and whoever has not heard of the move may still ask it for its vote.   *)
(*                                                                              *)
(* Raft is cut short: there is one log, and whoever leads has it. Each entry    *)
(* carries the membership in force from it on. One voter at a time changes, so  *)
(* the majorities of before and after meet; several at once go through a joint  *)
(* configuration (raft/Raft.tla), which comes to the same.                      *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Node, First,   \* All nodes, and the voters at first.
    Candidate,     \* Nodes that stand in the one term that is looked at.
    MaxLog, MaxWords, Nobody

VARIABLES
    log,       \* [voters, learners] by index.
    committed, \* The index up to which a majority has it.
    has,       \* By node: the index up to which it has the log on its disk.
    heard,     \* By node: the highest index that it has heard of; 0 again when it has given up.
    left,      \* By node: how far the log went that it gave up last.
    words,     \* <<node, index>>: "you are no member", from a leader whose log reached to this index.
    vote,      \* By node: its vote in the term.
    given      \* Known to nobody: <<voter, candidate>>, all votes that were ever given in the term.

vars == <<log, committed, has, heard, left, words, vote, given>>

Now == log[Len(log)]
Members(m) == m.voters \cup m.learners
Majority(nodes, voters) == Cardinality(nodes \cap voters) * 2 > Cardinality(voters)
Holders(index) == {n \in Node : has[n] >= index}

Init ==
    /\ log = <<[voters |-> First, learners |-> {}]>>
    /\ committed = 1
    /\ has = [n \in Node |-> IF n \in First THEN 1 ELSE 0]
    /\ heard = has
    /\ left = [n \in Node |-> 0]
    /\ words = {}
    /\ vote = [n \in Node |-> Nobody]
    /\ given = {}

(* The next entry: a change of the members, made only when the one before it is committed (thesis 4.1), or none. *)
Change(to) ==
    /\ Len(log) < MaxLog
    /\ committed = Len(log)
    /\ log' = Append(log, to)
    /\ UNCHANGED <<committed, has, heard, left, words, vote, given>>

(* Or an entry with messages. *)
Plain == Change(Now)

AddLearner(n) == n \notin Members(Now) /\ Change([Now EXCEPT !.learners = @ \cup {n}])

(* A learner that has caught up gets a vote. *)
Promote(n) ==
    /\ n \in Now.learners /\ has[n] = Len(log)
    /\ Change([voters |-> Now.voters \cup {n}, learners |-> Now.learners \ {n}])

(* A voter more than there shall be loses its vote and goes; so does a learner that is not wanted any more. *)
Remove(n) ==
    /\ n \in Members(Now) /\ Now.voters \ {n} # {}
    /\ Change([voters |-> Now.voters \ {n}, learners |-> Now.learners \ {n}])

(* A member is sent what it lacks, by appends or a snapshot, and has it on disk before it says so. *)
Copy(n) ==
    /\ n \in Members(Now) \/ (Len(log) > 1 /\ n \in Members(log[Len(log) - 1]))
    /\ has[n] < Len(log)
    /\ has' = [has EXCEPT ![n] = Len(log)]
    /\ heard' = [heard EXCEPT ![n] = Len(log)]
    /\ UNCHANGED <<log, committed, left, words, vote, given>>

(* A member hears how long the log is, in a heartbeat, before it has it. *)
Hear(n) ==
    /\ n \in Members(Now) /\ heard[n] < Len(log)
    /\ heard' = [heard EXCEPT ![n] = Len(log)]
    /\ UNCHANGED <<log, committed, has, left, words, vote, given>>

(* A change counts when it is applied, so it is the voters before it and those after it whose majorities are asked. *)
Commit ==
    /\ committed < Len(log)
    /\ Majority(Holders(Len(log)), Now.voters)
    /\ Majority(Holders(Len(log)), log[committed].voters)
    /\ committed' = Len(log)
    /\ UNCHANGED <<log, has, heard, left, words, vote, given>>

(* The leader tells who is none of the members any more, once that is committed. *)
SayGone(n) ==
    /\ n \notin Members(log[committed]) /\ committed = Len(log)
    /\ Cardinality(words) < MaxWords
    /\ words' = words \cup {<<n, Len(log)>>}
    /\ words' # words
    /\ UNCHANGED <<log, committed, has, heard, left, vote, given>>

(* It gives up its log and its state. Words stay: each may come again, at any time. *)
GiveUp(n, index) ==
    /\ <<n, index>> \in words
    /\ index > heard[n]
    /\ has[n] > 0
    /\ has' = [has EXCEPT ![n] = 0]
    /\ heard' = [heard EXCEPT ![n] = 0]
    /\ left' = [left EXCEPT ![n] = has[n]]
    /\ vote' = vote
    /\ UNCHANGED <<log, committed, words, given>>

Vote(n, c) ==
    /\ vote[n] = Nobody
    /\ n \in Members(Now)
    /\ vote' = [vote EXCEPT ![n] = c]
    /\ given' = given \cup {<<n, c>>}
    /\ UNCHANGED <<log, committed, has, heard, left, words>>

Next ==
    \/ Commit \/ Plain
    \/ \E n \in Node :
           \/ AddLearner(n) \/ Promote(n) \/ Remove(n) \/ Copy(n) \/ Hear(n) \/ SayGone(n)
           \/ \E index \in 1..MaxLog : GiveUp(n, index)
           \/ \E c \in Candidate : Vote(n, c)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold. *)

(* What is committed is on the disks of a majority of those who vote now, so that whoever they elect has it. *)
CommittedStays == Majority(Holders(committed), log[committed].voters)

(* Whoever may be elected has what is committed, also by members that were in force before (Raft 5.4.1): who votes for a *)
(* log that is shorter than one it has, or has had?                                                                      *)
WouldElect(c) == {n \in Node : has[n] <= has[c] /\ left[n] <= has[c]}
ElectedHasIt ==
    \A c \in Node :
        has[c] \in 1..(committed - 1) /\ c \in log[has[c]].voters => ~Majority(WouldElect(c), log[has[c]].voters)

(* Raft 5.2, over replicas that came, went and came again. *)
OneVote == \A one \in given : \A other \in given : one[1] = other[1] => one = other
=============================================================================
