-------------------------------- MODULE Outbox --------------------------------
(* Dead letters between shards: RULES D6 to D8, node/shard/outbox.py.           *)
(*                                                                              *)
(* A message that dies in a source shard waits in its outbox until the leader   *)
(* has decided where it goes, and then in the lane of that queue. A lane        *)
(* numbers what it holds 1, 2, 3, ... and never begins anew. The source's       *)
(* leader sends what is in the lane, over and over. The target shard, whose log *)
(* orders what arrives, takes an item only if it is the one after what the      *)
(* queue has received from this source, and remembers that number. The source   *)
(* forgets an item when it hears that the target has committed it ("settled").  *)
(*                                                                              *)
(* Both shards are logs that Raft replicates, so a death of a leader shows here *)
(* only as this: transfers and answers get lost, arrive late, twice, and in     *)
(* any order, and a leader may act on what was true earlier. Nothing else needs *)
(* to be remembered by anybody.                                                 *)
EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
    Target,      \* Queues in other shards that dead letters go to.
    Message,     \* What dies in the source, in this order: 1, 2, ...
    To,          \* Which queue each message goes to.
    Room         \* How many messages a queue takes that refuses more.

VARIABLES
    died,      \* How many have died.
    unrouted,  \* Deaths whose way is not decided, in order.
    lane,      \* For each target: [first, items]; items[i] has the number first + i - 1.
    transfers, \* On their way: <<target, number, message>>.
    received,  \* In each target shard: the highest number its queue has taken from this source.
    queue,     \* What is in each queue.
    taken,     \* Known to nobody: what was ever in each queue, in order.
    answers    \* On their way back: <<target, received so far>>.

vars == <<died, unrouted, lane, transfers, received, queue, taken, answers>>

Init ==
    /\ died = 0
    /\ unrouted = <<>>
    /\ lane = [t \in Target |-> [first |-> 1, items |-> <<>>]]
    /\ transfers = {}
    /\ received = [t \in Target |-> 0]
    /\ queue = [t \in Target |-> <<>>]
    /\ taken = [t \in Target |-> <<>>]
    /\ answers = {}

(* The next message expires or is rejected in the source. *)
Die ==
    /\ died < Cardinality(Message)
    /\ died' = died + 1
    /\ unrouted' = Append(unrouted, died + 1)
    /\ UNCHANGED <<lane, transfers, received, queue, taken, answers>>

(* An entry of the source's log says where the first of them goes. *)
Route ==
    /\ unrouted # <<>>
    /\ LET t == To[Head(unrouted)]
       IN lane' = [lane EXCEPT ![t].items = Append(@, Head(unrouted))]
    /\ unrouted' = Tail(unrouted)
    /\ UNCHANGED <<died, transfers, received, queue, taken, answers>>

(* A leader of the source sends an item, for the first time or again. *)
Send(t, i) ==
    /\ i \in DOMAIN lane[t].items
    /\ transfers' = transfers \cup {<<t, lane[t].first + i - 1, lane[t].items[i]>>}
    /\ transfers' # transfers
    /\ UNCHANGED <<died, unrouted, lane, received, queue, taken, answers>>

(* It is in the target's log: taken if it is the next one, and there is room. The answer says what was received. *)
Take(transfer) ==
    LET t == transfer[1]
        isNext == transfer[2] = received[t] + 1
        fits == Len(queue[t]) < Room[t]
    IN /\ transfer \in transfers
       /\ IF isNext /\ fits
          THEN /\ received' = [received EXCEPT ![t] = transfer[2]]
               /\ queue' = [queue EXCEPT ![t] = Append(@, transfer[3])]
               /\ taken' = [taken EXCEPT ![t] = Append(@, transfer[3])]
          ELSE UNCHANGED <<received, queue, taken>>
       /\ answers' = answers \cup {<<t, received'[t]>>}
       /\ <<received', answers'>> # <<received, answers>>
       /\ UNCHANGED <<died, unrouted, lane, transfers>>

(* An entry of the source's log, made of an answer: all up to this number has arrived. An old answer says less. *)
Settle(answer) ==
    LET t == answer[1]
        settled == answer[2]
        count == settled + 1 - lane[t].first
    IN /\ answer \in answers
       /\ settled >= lane[t].first
       /\ lane' = [lane EXCEPT ![t] = [first |-> settled + 1, items |-> SubSeq(@.items, count + 1, Len(@.items))]]
       /\ UNCHANGED <<died, unrouted, transfers, received, queue, taken, answers>>

(* A consumer of the target acknowledges. *)
Consume(t) ==
    /\ queue[t] # <<>>
    /\ queue' = [queue EXCEPT ![t] = Tail(@)]
    /\ UNCHANGED <<died, unrouted, lane, transfers, received, taken, answers>>

(* The network or a leader that dies: only what is on its way is lost. *)
Lose ==
    \/ \E x \in transfers : transfers' = transfers \ {x} /\ UNCHANGED <<died, unrouted, lane, received, queue, taken, answers>>
    \/ \E x \in answers : answers' = answers \ {x} /\ UNCHANGED <<died, unrouted, lane, transfers, received, queue, taken>>

Work(t) ==
    \/ \E i \in 1..Cardinality(Message) : Send(t, i)
    \/ \E x \in transfers : x[1] = t /\ Take(x)
    \/ \E x \in answers : x[1] = t /\ Settle(x)

Next ==
    \/ Die \/ Route \/ Lose
    \/ \E t \in Target : Work(t) \/ Consume(t)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* What must hold. *)

RECURSIVE Count(_, _)
Count(items, m) == IF items = <<>> THEN 0 ELSE (IF Head(items) = m THEN 1 ELSE 0) + Count(Tail(items), m)

(* D6: at most once, and only where it goes. *)
AtMostOnce == \A t \in Target : \A m \in Message : Count(taken[t], m) <= (IF To[m] = t THEN 1 ELSE 0)

(* D6: never gone on the way. *)
NeverLost ==
    \A m \in 1..died :
        \/ Count(unrouted, m) = 1
        \/ Count(lane[To[m]].items, m) = 1
        \/ Count(taken[To[m]], m) = 1

(* D7: in the order in which they died. *)
InOrder == \A t \in Target : \A i \in DOMAIN taken[t] : \A j \in DOMAIN taken[t] : i < j => taken[t][i] < taken[t][j]

(* What the numbers mean: the source never forgets what the target has not received, the lane never runs ahead. *)
NumbersFit ==
    \A t \in Target :
        /\ lane[t].first <= received[t] + 1
        /\ received[t] < lane[t].first + Len(lane[t].items)
        /\ Len(taken[t]) = received[t]

(* D8: with leaders that go on and a network that delivers in the end, what dies arrives, in each lane by itself: a   *)
(* queue that stays full (Room 0) holds up nobody else.                                                              *)
Honest ==
    /\ Init /\ [][Die \/ Route \/ \E t \in Target : Work(t) \/ Consume(t)]_vars
    /\ WF_vars(Die) /\ WF_vars(Route)
    /\ \A t \in Target : WF_vars(Work(t)) /\ WF_vars(Consume(t))

Arrives == \A m \in Message : Room[To[m]] > 0 => <>(Count(taken[To[m]], m) = 1)
=============================================================================
