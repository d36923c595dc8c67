------------------------------- MODULE Session -------------------------------
(* Sessions and feeds: commands exactly once and in order, and their answers   *)
(* too, whatever replicas die or are replaced (cluster/group/sessions.py,      *)
(* cluster/group/feeds.py, docs/decisions/consensus.md, 9).                    *)
(*                                                                             *)
(* A node numbers its batches 1, 2, 3, ... in each of its lives               *)
(* ("incarnations") and sends them to whoever leads, again and again until it  *)
(* has the answers. Leaders put them into the log, some twice, some never. The *)
(* table that is part of the replicated state admits a batch only if it is the *)
(* next one of the session; anything else in the log does nothing.             *)
(*                                                                             *)
(* This node has no replica. What its batches were answered is a function of   *)
(* the log, so every replica can tell it, from any index on: a notice says     *)
(* from where to where it reaches. The node takes from it what lies behind its *)
(* cursor, and nothing from one that begins too late. Now and then it says     *)
(* where its cursor is, and replicas forget what is before that. A replica     *)
(* that was made from a snapshot has nothing from before it; one that can't    *)
(* tell the node from its cursor on has the session closed, through the log.   *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Replica, MaxBatch, MaxLife, MaxLog, Window

VARIABLES
    life,     \* The node's incarnation.
    next,     \* The number of the next new batch.
    cursor,   \* The index up to which the node was told.
    answers,  \* What it was told: the numbers of its batches, in order. Of this life.
    over,     \* Whether it was told that its session is over.
    sent,     \* Batches and ends of sessions on their way to the log: <<kind, life, number>>.
    log,      \* <<kind, life, number, whether it was admitted>>.
    table,    \* The state at the end of the log: [life, number, open].
    replica,  \* [applied, base, heard]: what it has applied, from where it can tell, and where it believes the cursor is.
    notices   \* On their way to the node: <<life, from, to>>.

vars == <<life, next, cursor, answers, over, sent, log, table, replica, notices>>

Max(a, b) == IF a > b THEN a ELSE b

Init ==
    /\ life = 1 /\ next = 1 /\ cursor = 0 /\ answers = <<>> /\ over = FALSE
    /\ sent = {} /\ log = <<>> /\ table = [life |-> 0, number |-> 0, open |-> FALSE]
    /\ replica = [r \in Replica |-> [applied |-> 0, base |-> 0, heard |-> 0]]
    /\ notices = {}

-----------------------------------------------------------------------------
(* The node. *)

(* A new batch, or one again that was not answered. *)
Send(number) ==
    /\ ~over
    /\ number \in (Len(answers) + 1)..next
    /\ number <= MaxBatch /\ number <= Len(answers) + Window
    /\ next' = IF number = next THEN next + 1 ELSE next
    /\ sent' = sent \cup {<<"batch", life, number>>}
    /\ <<next', sent'>> # <<next, sent>>
    /\ UNCHANGED <<life, cursor, answers, over, log, table, replica, notices>>

(* What of this session the entries behind one index, up to another, have to say: the numbers that were admitted. *)
RECURSIVE Told(_, _, _)
Told(of, from, to) ==
    IF from >= to THEN <<>>
    ELSE (IF log[from + 1][1] = "batch" /\ log[from + 1][2] = of /\ log[from + 1][4] THEN <<log[from + 1][3]>> ELSE <<>>)
         \o Told(of, from + 1, to)

Ends(of, from, to) ==
    \E i \in (from + 1)..to : log[i][4] /\ ((log[i][1] = "close" /\ log[i][2] = of) \/ log[i][2] > of)

TakeNotice(notice) ==
    /\ notice \in notices
    /\ notice[1] = life
    /\ notice[2] <= cursor
    /\ notice[3] > cursor
    /\ answers' = answers \o Told(life, Max(cursor, notice[2]), notice[3])
    /\ over' = (over \/ Ends(life, cursor, notice[3]))
    /\ cursor' = notice[3]
    /\ UNCHANGED <<life, next, sent, log, table, replica, notices>>

(* A heartbeat: a replica hears of the cursor and forgets what is before it. *)
Hear(r) ==
    /\ replica[r].heard # cursor
    /\ table.life = life
    /\ replica' = [replica EXCEPT ![r].heard = cursor, ![r].base = IF @ > cursor THEN @ ELSE cursor]
    /\ replica[r].applied >= cursor
    /\ UNCHANGED <<life, next, cursor, answers, over, sent, log, table, notices>>

(* The process starts again, or begins anew because its session is over. What was under way is nobody's any more. *)
BeginAnew ==
    /\ life < MaxLife
    /\ life' = life + 1
    /\ next' = 1 /\ cursor' = 0 /\ answers' = <<>> /\ over' = FALSE
    /\ replica' = [r \in Replica |-> [replica[r] EXCEPT !.heard = 0]]
    /\ UNCHANGED <<sent, log, table, notices>>

-----------------------------------------------------------------------------
(* The group. *)

Admits(entry) ==
    IF entry[1] = "close" THEN table.life = entry[2] /\ table.open
    ELSE \/ entry[2] = table.life /\ table.open /\ entry[3] = table.number + 1
         \/ entry[2] > table.life /\ entry[3] = 1

(* An entry is committed. It may come again as long as anybody has it. *)
Commit(entry) ==
    /\ entry \in sent
    /\ Len(log) < MaxLog
    /\ log' = Append(log, <<entry[1], entry[2], entry[3], Admits(entry)>>)
    /\ table' = IF ~Admits(entry) THEN table
                ELSE IF entry[1] = "close" THEN [table EXCEPT !.open = FALSE]
                ELSE [life |-> entry[2], number |-> entry[3], open |-> TRUE]
    /\ UNCHANGED <<life, next, cursor, answers, over, sent, replica, notices>>

Apply(r) ==
    LET i == replica[r].applied + 1
    IN /\ i <= Len(log)
       (* Of a session that begins nothing can be missed: it is told from the beginning. *)
       /\ replica' = [replica EXCEPT ![r] = [
              applied |-> i, heard |-> @.heard,
              base |-> IF log[i][1] = "batch" /\ log[i][3] = 1 /\ log[i][4] THEN 0 ELSE @.base]]
       /\ UNCHANGED <<life, next, cursor, answers, over, sent, log, table, notices>>

(* It is replaced, or falls behind and gets a snapshot of the state: what was answered before is not in it. *)
Replace(r) ==
    /\ replica[r].applied > 0 \/ Len(log) > 0
    /\ replica' = [replica EXCEPT ![r] = [applied |-> Len(log), base |-> Len(log), heard |-> 0]]
    /\ replica' # replica
    /\ UNCHANGED <<life, next, cursor, answers, over, sent, log, table, notices>>

(* A replica that leads, or believes so, tells the node what it has from behind the cursor, as far as it knows that. *)
Tell(r) ==
    LET mine == replica[r]
        from == Max(mine.heard, mine.base)
    IN /\ mine.applied > from
       /\ notices' = notices \cup {<<life, from, mine.applied>>}
       /\ notices' # notices
       /\ UNCHANGED <<life, next, cursor, answers, over, sent, log, table, replica>>

(* Or it has forgotten something of that, or never had it: then the session has to end. *)
GiveUp(r) ==
    /\ replica[r].heard < replica[r].base
    /\ table.life = life /\ table.open
    /\ sent' = sent \cup {<<"close", life, 0>>}
    /\ sent' # sent
    /\ UNCHANGED <<life, next, cursor, answers, over, log, table, replica, notices>>

Next ==
    \/ \E number \in 1..MaxBatch : Send(number)
    \/ \E notice \in notices : TakeNotice(notice)
    \/ \E entry \in sent : Commit(entry)
    \/ \E r \in Replica : Hear(r) \/ Apply(r) \/ Replace(r) \/ Tell(r) \/ GiveUp(r)
    \/ BeginAnew

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold. *)

Executed(of) == Told(of, 0, Len(log))

(* Each batch is done once, in order, and none after one that was not. *)
ExactlyOnce == \A of \in 1..MaxLife : \A i \in DOMAIN Executed(of) : Executed(of)[i] = i

(* Nothing of a session is done once it is over. *)
NothingAfterTheEnd ==
    \A i \in DOMAIN log : \A j \in DOMAIN log :
        i < j /\ log[i][1] = "close" /\ log[i][4] /\ log[j][1] = "batch" /\ log[j][4] => log[j][2] > log[i][2]

(* No more was answered than was done. *)
NoFalseAnswer == Len(answers) <= Len(Executed(life))

(* And the node was told just what was done up to its cursor: no answer is missed, none comes twice. *)
AnswersFit == answers = Told(life, 0, cursor)

Same == Permutations(Replica)
=============================================================================
