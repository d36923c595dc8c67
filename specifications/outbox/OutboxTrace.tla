----------------------------- MODULE OutboxTrace -----------------------------
(* Whether dead letters between shards of whole nodes go as Outbox.tla allows. *)
(* The module `Recorded` is written by tests/specifications/node_traces.py     *)
(* from runs of the simulator: a line for each item that comes into a lane, is *)
(* taken by its queue, or is settled, in the order in which the first replica  *)
(* of either shard did it. A "target" is here a lane: a source shard and a     *)
(* queue. Items are known by their octets.                                     *)
EXTENDS Outbox, TLC, Recorded

VARIABLES
    run,  \* Which of the runs this is.
    line  \* How many of its lines have been followed.

everything == <<vars, run, line>>
Place == <<run, line>>
Lines == Runs[run]
RoomForAll == [t \in Target |-> 1000000]
Anywhere == <<>>

TraceInit == run \in DOMAIN Runs /\ line = 0 /\ Init

(* An entry of the source puts an item behind the others, under the number that follows theirs; from then on leaders   *)
(* may send it, as often as they like.                                                                                 *)
PutInLane(t, number, item) ==
    /\ number = lane[t].first + Len(lane[t].items)
    /\ lane' = [lane EXCEPT ![t].items = Append(@, item)]
    /\ transfers' = transfers \cup {<<t, number, item>>}
    /\ UNCHANGED <<died, unrouted, received, queue, taken, answers>>

(* Take, where the item went into the queue. *)
Arrive(t, number, item) ==
    /\ Take(<<t, number, item>>)
    /\ received'[t] = number /\ received[t] # number

(* The queue is gone for ever. *)
Close(t) ==
    /\ lane' = [lane EXCEPT ![t] = [first |-> received[t] + 1, items |-> <<>>]]
    /\ received[t] + 1 >= lane[t].first
    /\ UNCHANGED <<died, unrouted, transfers, received, queue, taken, answers>>

Follow(l) ==
    CASE l[1] = "put" -> PutInLane(l[2], l[3], l[4])
      [] l[1] = "take" -> Arrive(l[2], l[3], l[4])
      [] l[1] = "settle" -> Settle(<<l[2], l[3]>>)
      [] l[1] = "close" -> Close(l[2])

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

(* NumbersFit of Outbox.tla, but for lanes that were closed. *)
LanesFit ==
    \A t \in Target :
        /\ lane[t].first <= received[t] + 1
        /\ Len(taken[t]) = received[t]
=============================================================================
