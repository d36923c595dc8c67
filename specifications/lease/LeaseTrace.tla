------------------------------ MODULE LeaseTrace ------------------------------
(* Whether what shards of whole nodes did with leases is what Lease.tla        *)
(* allows. The module `Recorded` is written by                                 *)
(* tests/specifications/node_traces.py from runs of the simulator: for each    *)
(* shard of a run the period of its leases and a line for each step, in the    *)
(* order of its log as the first replica applied it. A line that is not        *)
(* allowed is a deadlock: the last state that TLC prints has its number.       *)
EXTENDS Lease, TLC, Recorded

VARIABLES
    run,  \* Which of the runs this is.
    line, \* How many of its lines have been followed.
    seen  \* For each queue: every (epoch, began, unused) it has had. A leader may know any of them.

everything == <<vars, run, line, seen>>
Place == <<run, line>>
Lines == Runs[run].lines
PeriodOf == Runs[run].period

Absent == [there |-> FALSE, epoch |-> 0, began |-> 0, holders |-> {}]

TraceInit ==
    /\ run \in DOMAIN Runs
    /\ line = 0
    /\ now = 0 /\ lag = 0
    /\ queue = [q \in Queue |-> Absent]
    /\ known = queue
    /\ proposals = {}
    /\ used = [q \in Queue |-> 0]
    /\ seen = [q \in Queue |-> {}]

Holding(count) == 1..count

(* An entry with this stamp, applied when there had been a leader for so long: never more than that (L7, L8), and *)
(* never less than before (C2).                                                                                  *)
Enter(stamp, led) ==
    /\ stamp >= Stamp
    /\ led >= stamp
    /\ now' = (IF led > now THEN led ELSE now)
    /\ lag' = now' - stamp
    /\ UNCHANGED <<queue, proposals, known, used, seen>>

(* L2, L3: a use. Several in one batch of commands are told as one; the lease is what the last left. *)
Become(q, new) ==
    /\ queue' = [queue EXCEPT ![q] = new]
    /\ seen' = [seen EXCEPT ![q] = @ \cup {new}]
    /\ used' = [used EXCEPT ![q] = Stamp]
    /\ UNCHANGED <<now, lag, proposals, known>>

Create(q, began, count) ==
    /\ ~queue[q].there /\ began = Stamp
    /\ Become(q, [Fresh EXCEPT !.began = Stamp, !.holders = Holding(count)])

Renew(q, epoch, began, count) ==
    /\ queue[q].there /\ epoch > queue[q].epoch /\ began = Stamp
    /\ Become(q, [Renewed(queue[q]) EXCEPT !.epoch = epoch, !.holders = Holding(count)])

(* One of several consumers goes: the others suspend the lease as before, and it does not begin anew. *)
LeaveOthers(q, epoch, began, count) ==
    /\ queue[q].there /\ epoch = queue[q].epoch /\ began = queue[q].began
    /\ count > 0 /\ count < Cardinality(queue[q].holders)
    /\ queue' = [queue EXCEPT ![q].holders = Holding(count)]
    /\ UNCHANGED <<now, lag, proposals, known, used, seen>>

(* A leader, by what it had applied and by its led clock: Propose of Lease.tla. *)
Decide(q, epoch, led) ==
    /\ \E k \in seen[q] : k.epoch = epoch /\ IsUnused(k) /\ led >= k.began + PeriodOf
    /\ proposals' = proposals \cup {<<q, epoch>>}
    /\ UNCHANGED <<now, lag, queue, known, used, seen>>

(* L4, L5: Expire of Lease.tla, where the guard let it pass. *)
End(q) ==
    /\ <<q, queue[q].epoch>> \in proposals
    /\ queue[q].there /\ IsUnused(queue[q]) /\ Stamp - queue[q].began >= PeriodOf
    /\ queue' = [queue EXCEPT ![q].there = FALSE]
    /\ UNCHANGED <<now, lag, proposals, known, used, seen>>

(* A client deletes it. *)
Delete(q) == queue' = [queue EXCEPT ![q] = Absent] /\ UNCHANGED <<now, lag, proposals, known, used, seen>>

Follow(l) ==
    CASE l[1] = "enter" -> Enter(l[2], l[3])
      [] l[1] = "create" -> Create(l[2], l[3], l[4])
      [] l[1] = "renew" -> Renew(l[2], l[3], l[4], l[5])
      [] l[1] = "leave" -> LeaveOthers(l[2], l[3], l[4], l[5])
      [] l[1] = "decide" -> Decide(l[2], l[3], l[4])
      [] l[1] = "end" -> End(l[2])
      [] l[1] = "delete" -> Delete(l[2])

TraceNext ==
    IF line = Len(Lines) THEN UNCHANGED everything
    ELSE /\ Follow(Lines[line + 1])
         /\ line' = line + 1
         /\ UNCHANGED run

(* For runs of which some are to be refused: each is told, with the line that was, and ends there. *)
TraceNextOrTell ==
    \/ TraceNext
    \/ /\ ~ENABLED TraceNext
       /\ PrintT(<<"refused", run, line + 1, Lines[line + 1][1]>>)
       /\ FALSE

EarlyNever == [][\A q \in Queue : queue[q].there /\ ~queue'[q].there /\ queue'[q].epoch > 0
                                  => now - used[q] >= PeriodOf]_everything
=============================================================================
