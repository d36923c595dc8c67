------------------------------ MODULE RaftTrace ------------------------------
(* Whether what nodes did is what Raft.tla allows. The module `Recorded` is    *)
(* written by tests/specifications/raft_traces.py from runs of the simulator:  *)
(* for each run its settings, all its messages, and a line for each step.      *)
(* Every line names the action that it claims to be; TLC follows it only if    *)
(* that action is allowed there. Lines "is" say what the code had in memory    *)
(* then, and must find the same here. A line that is not allowed is a          *)
(* deadlock: the last state that TLC prints has its number.                    *)
EXTENDS Raft, TLC, Recorded

VARIABLES
    run,   \* Which of the runs this is.
    line,  \* How many of its lines have been followed.
    asked  \* For each read under way: how much was decided when it was asked.

state == <<node, net, decided, sealed, reigns, told>>
everything == <<settings, node, net, decided, sealed, reigns, told, run, line, asked>>

(* The lines decide everything, so two states of one run and line are the same. *)
Place == <<run, line>>

Lines == Runs[run].lines
Message(number) == Runs[run].messages[number]
Messages(numbers) == {Message(number) : number \in numbers}

RoleNames == <<"follower", "candidate", "leader", "precandidate">>

Is(n, is) ==
    LET s == node[n]
    IN /\ s.role = RoleNames[is[1] + 1] /\ s.term = is[2] /\ s.vote = is[3] /\ s.commit = is[4]
       /\ Len(s.log) = is[5] /\ LastTerm(s.log) = is[6]
       (* The code counts an entry as applied a little after its change of the members is in force. *)
       /\ s.applied >= is[7]
       /\ (is[8] = 0 \/ s.conf = is[8])

Take(n, m, again) ==
    \/ TakeAppend(n, m, again)
    \/ TakeSnapshot(n, m, again)
    \/ TakeBeat(n, m, again)
       /\ ~(m.type = "append" /\ m.prev >= node[n].commit /\ m.prevTerm = TermAt(node[n].log, m.prev)
            /\ m.prev <= Len(node[n].log))
       /\ ~(m.type = "snapshot" /\ m.index > node[n].commit)

Follow(l) ==
    CASE l[1] = "restart" -> Restart(l[2], l[3], l[4], FALSE)
      [] l[1] = "hear" -> Hear(l[2], Message(l[3]))
      [] l[1] = "down" -> StepDown(l[2])
      [] l[1] = "ask" -> AskBefore(l[2])
      [] l[1] = "stand" -> Stand(l[2], l[3])
      [] l[1] = "grant" -> Grant(l[2], Message(l[3]), l[4])
      [] l[1] = "count" -> Count(l[2], Message(l[3]), l[4])
      [] l[1] = "lead" -> Lead(l[2])
      [] l[1] = "learn" -> Learn(l[2], Message(l[3]), l[4])
      [] l[1] = "propose" -> Propose(l[2], l[3])
      [] l[1] = "take" -> Take(l[2], Message(l[3]), l[4])
      [] l[1] = "accepted" -> TakeAccept(l[2], Message(l[3]), l[4])
      [] l[1] = "commit" -> Commit(l[2], l[3])
      [] l[1] = "apply" -> Apply(l[2], l[3])
      [] l[1] = "say" -> Say(l[2], Messages(l[3]), Messages(l[4]))
      [] l[1] = "promise" -> Promise(l[2], Message(l[3]))
      [] l[1] = "write" -> Write(l[2])
      [] l[1] = "written" -> Written(l[2], {m \in node[l[2]].writing[2] : m \notin Messages(l[3])})
      [] l[1] = "is" -> Is(l[2], l[3]) /\ UNCHANGED state
      (* Reads: linearizable means that an answer is not older than what was decided when it was asked for. *)
      [] l[1] = "read" -> UNCHANGED state
      [] l[1] = "answer" -> l[4] >= asked[l[3]] /\ UNCHANGED state

TraceInit ==
    /\ run \in DOMAIN Runs
    /\ settings = Runs[run].settings
    /\ Init
    /\ line = 0
    /\ asked = <<>>

TraceNext ==
    IF line = Len(Lines) THEN UNCHANGED everything
    ELSE /\ Follow(Lines[line + 1])
         /\ line' = line + 1
         /\ UNCHANGED <<settings, run>>
         /\ asked' = IF Lines[line + 1][1] = "read" THEN Append(asked, Len(decided)) ELSE asked

(* For runs of which many are to be refused: each is told, with the line that was, and ends there. *)
TraceNextOrTell ==
    \/ TraceNext
    \/ /\ ~ENABLED TraceNext
       /\ PrintT(<<"refused", run, line + 1, Lines[line + 1][1]>>)
       /\ FALSE
=============================================================================
