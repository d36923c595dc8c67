----------------------------- MODULE SessionTrace -----------------------------
(* Whether the sessions of whole nodes with groups went as Session.tla allows. *)
(* The module `Recorded` is written by tests/specifications/session_traces.py  *)
(* from runs of the simulator: for each node and group of a run a line for     *)
(* each step, in the order in which they happened. It is the same whether the  *)
(* node has a replica that tells it, or feeds of other nodes do. A line that   *)
(* is not allowed is a deadlock: the last state that TLC prints has its        *)
(* number.                                                                     *)
EXTENDS Session, Recorded

VARIABLES
    run,   \* Which of the runs this is.
    line,  \* How many of its lines have been followed.
    given, \* By life: the number of the last batch that the node has sent.
    done,  \* What was admitted, in order: <<life, number, index>>.
    told   \* How many batches of this life were answered.

traced == <<run, line, given, done, told>>
Place == <<run, line>>
Lines == Runs[run].lines
WindowOf == Runs[run].window
Unchanged == UNCHANGED <<next, answers, sent, log, replica, notices>>

TraceInit ==
    /\ Init
    /\ run \in DOMAIN Runs
    /\ line = 0 /\ given = <<>> /\ done = <<>> /\ told = 0

Given(of) == IF of \in DOMAIN given THEN given[of] ELSE 0

(* The number of the last batch of this life that was admitted up to an index: of so many the node must have heard. *)
RECURSIVE DoneUpTo(_, _)
DoneUpTo(i, index) ==
    IF i = 0 \/ done[i][1] < life THEN 0
    ELSE IF done[i][1] = life /\ done[i][3] <= index THEN done[i][2]
    ELSE DoneUpTo(i - 1, index)
Done == IF done = <<>> THEN 0 ELSE DoneUpTo(Len(done), done[Len(done)][3])

(* A process starts, or begins anew because its session is over: BeginAnew of Session.tla. *)
Anew(of) ==
    /\ of > life \/ given = <<>>
    /\ life' = of
    /\ told' = 0 /\ cursor' = 0 /\ over' = FALSE
    /\ UNCHANGED <<table, given, done>> /\ Unchanged

(* A batch goes for the first time: Send. *)
Sends(number) ==
    /\ ~over
    /\ number = Given(life) + 1 /\ number <= told + WindowOf
    /\ given' = (life :> number) @@ given
    /\ UNCHANGED <<life, cursor, over, table, done, told>> /\ Unchanged

(* An entry has it, or the end of a session: Commit. Only what was sent can be there. *)
Commits(kind, of, number, admitted, index) ==
    LET entry == <<kind, of, number>>
    IN /\ admitted = Admits(entry)
       /\ kind = "batch" => number <= Given(of)
       /\ table' = IF ~admitted THEN table
                   ELSE IF kind = "close" THEN [table EXCEPT !.open = FALSE]
                   ELSE [life |-> of, number |-> number, open |-> TRUE]
       /\ done' = IF admitted /\ kind = "batch" THEN Append(done, <<of, number, index>>) ELSE done
       /\ UNCHANGED <<life, cursor, over, given, told>> /\ Unchanged

(* The node has the answers of its next batch, which was done: AnswersFit, NoFalseAnswer. *)
Answers(number) ==
    /\ ~over
    /\ number = told + 1 /\ number <= Done
    /\ told' = number
    /\ UNCHANGED <<life, cursor, over, table, given, done>> /\ Unchanged

(* It was told all up to an index: no answer is missed. *)
Told_(index) ==
    /\ index >= cursor
    /\ ~over => told = DoneUpTo(Len(done), index)
    /\ cursor' = index
    /\ UNCHANGED <<life, over, table, given, done, told>> /\ Unchanged

(* It hears that its session is over, and how far that went: nothing of it is done later. *)
Ends_(number) ==
    /\ ~over
    /\ ~(table.life = life /\ table.open)
    /\ number = 0 \/ number = Done
    /\ over' = TRUE
    /\ UNCHANGED <<life, cursor, table, given, done, told>> /\ Unchanged

FollowLine(l) ==
    CASE l[1] = "anew" -> Anew(l[2])
      [] l[1] = "send" -> Sends(l[2])
      [] l[1] = "batch" -> Commits("batch", l[2], l[3], l[4], l[5])
      [] l[1] = "close" -> Commits("close", l[2], 0, l[3], l[4])
      [] l[1] = "answer" -> Answers(l[2])
      [] l[1] = "told" -> Told_(l[2])
      [] l[1] = "over" -> Ends_(l[2])

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
