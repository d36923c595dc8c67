-------------------------------- MODULE Lease --------------------------------
(* The lease of a queue (x-expires): RULES L2 to L5, docs/decisions/time.md.   *)
(*                                                                             *)
(* Raft gives the shard one log. What is in it is applied in order, and the    *)
(* queue is what comes of it. A leader looks at what it has applied so far     *)
(* and, when the lease has run out there, proposes to delete the queue. Until  *)
(* that is in the log anything may happen: the leader is replaced, others      *)
(* propose the same, a client uses the queue. So the proposal names the epoch  *)
(* that it saw. Every use raises the epoch, and an old one deletes nothing.    *)
(*                                                                             *)
(* Time is led time: each entry carries it, it counts only while there is a    *)
(* leader (L7), and no wall clock is in it (L8). A new leader may know less of *)
(* it than the one before, and all after it go on from there: stamps may fall  *)
(* behind, they never catch up (Clock.tla says why).                           *)
EXTENDS Naturals, FiniteSets, Sequences

CONSTANTS
    Queue,      \* Queues of the shard.
    Consumer,   \* Consumers that come and go; each consumes from one queue.
    Period,     \* x-expires.
    MaxTime, MaxEpoch, MaxProposals, MaxLag

VARIABLES
    now,       \* The led time there really was.
    lag,       \* How far the stamps are behind it.
    queue,     \* For each queue: there or not, its epoch, when its lease began, who suspends it.
    proposals, \* What leaders have proposed and the log does not have yet: <<queue, epoch>>.
    known,     \* For each queue, (epoch, began, suspended) as a leader may see it that has not applied all.
    used       \* Known to nobody: the real time of the last use of each queue.

vars == <<now, lag, queue, proposals, known, used>>

Fresh == [there |-> TRUE, epoch |-> 1, began |-> 0, holders |-> {}]

Init ==
    /\ now = 0 /\ lag = 0
    /\ queue = [q \in Queue |-> Fresh]
    /\ known = [q \in Queue |-> Fresh]
    /\ proposals = {}
    /\ used = [q \in Queue |-> 0]

(* Time passes with a leader. *)
Tick == now < MaxTime /\ now' = now + 1 /\ UNCHANGED <<lag, queue, proposals, known, used>>

Stamp == now - lag

(* A new leader that was not told all of its predecessor's led time. *)
LeadAnew == lag < MaxLag /\ lag < now /\ lag' = lag + 1 /\ UNCHANGED <<now, queue, proposals, known, used>>

(* A use: declare, basic.get, the end of the last consumer. The lease begins anew, under another epoch. *)
Renewed(q) == [q EXCEPT !.epoch = @ + 1, !.began = Stamp]

Use(q) ==
    /\ queue[q].there /\ queue[q].epoch < MaxEpoch
    /\ queue' = [queue EXCEPT ![q] = Renewed(@)]
    /\ used' = [used EXCEPT ![q] = now]
    /\ UNCHANGED <<now, lag, proposals, known>>

(* basic.consume. From here on consume-ok may be sent: the queue must not go. *)
Attach(q, c) ==
    /\ queue[q].there /\ queue[q].epoch < MaxEpoch
    /\ \A k \in Queue : c \notin queue[k].holders
    /\ queue' = [queue EXCEPT ![q] = [Renewed(@) EXCEPT !.holders = @ \cup {c}]]
    /\ used' = [used EXCEPT ![q] = now]
    /\ UNCHANGED <<now, lag, proposals, known>>

(* Cancelled, or gone with its channel, connection or node, and what it held is settled (L3). *)
Detach(q, c) ==
    /\ c \in queue[q].holders /\ queue[q].epoch < MaxEpoch
    /\ queue' = [queue EXCEPT ![q] = [Renewed(@) EXCEPT !.holders = @ \ {c}]]
    /\ used' = [used EXCEPT ![q] = now]
    /\ UNCHANGED <<now, lag, proposals, known>>

(* Some leader, old or new, has applied so far. *)
CatchUp(q) == known' = [known EXCEPT ![q] = queue[q]] /\ known[q] # queue[q] /\ UNCHANGED <<now, lag, queue, proposals, used>>

(* L3: while somebody consumes, or still holds what was delivered, the lease does not run. *)
IsUnused(lease) == lease.holders = {}

(* The ticker of a leader: by what it knows, and by its led clock, the lease has run out. *)
Propose(q) ==
    LET k == known[q]
    IN /\ k.there /\ IsUnused(k) /\ Stamp >= k.began + Period
       /\ Cardinality(proposals) < MaxProposals
       /\ proposals' = proposals \cup {<<q, k.epoch>>}
       /\ UNCHANGED <<now, lag, queue, known, used>>

(* The proposal is in the log. It counts only if nothing has happened to the lease since (L5): the epoch is the same, *)
(* nobody holds it, and it has run out by the stamp of this very entry. A proposal may be in the log twice.           *)
Guard(q, epoch) ==
    /\ queue[q].there
    /\ queue[q].epoch = epoch
    /\ IsUnused(queue[q])
    /\ Stamp >= queue[q].began + Period

Expire(q, epoch) ==
    /\ <<q, epoch>> \in proposals
    /\ queue' = IF Guard(q, epoch) THEN [queue EXCEPT ![q].there = FALSE] ELSE queue
    /\ UNCHANGED <<now, lag, proposals, known, used>>

(* It got lost with its leader. *)
Lose(p) == p \in proposals /\ proposals' = proposals \ {p} /\ UNCHANGED <<now, lag, queue, known, used>>

Next ==
    \/ Tick \/ LeadAnew
    \/ \E q \in Queue :
           \/ Use(q) \/ CatchUp(q) \/ Propose(q)
           \/ \E c \in Consumer : Attach(q, c) \/ Detach(q, c)
           \/ \E epoch \in 1..MaxEpoch : Expire(q, epoch)
    \/ \E p \in proposals : Lose(p)

Spec == Init /\ [][Next]_vars

(* What must hold. *)

(* L4: a queue that is gone was unused for the whole period. *)
NeverEarly == [][\A q \in Queue : queue[q].there /\ ~queue'[q].there => now - used[q] >= Period]_vars

(* L5: a consumer whose consume-ok was sent does not lose its queue. *)
HeldIsThere == \A q \in Queue : queue[q].holders # {} => queue[q].there

(* L5: a decision that was made before a renewal deletes nothing. *)
OldDecisionsDoNothing ==
    [][\A q \in Queue : queue[q].there /\ ~queue'[q].there => <<q, queue[q].epoch>> \in proposals]_vars

(* L6: with leaders that go on a lease does end, whatever clients do or leave, and however often a proposal gets lost *)
(* with its leader, if not every time: in the end a queue is gone, or somebody has it, or it was used so late that   *)
(* the time of this model is over before.                                                                            *)
Honest ==
    /\ Spec
    /\ WF_vars(Tick)
    /\ \A q \in Queue :
           /\ WF_vars(CatchUp(q)) /\ WF_vars(Propose(q))
           /\ SF_vars(\E epoch \in 1..MaxEpoch : Expire(q, epoch))

Ends ==
    \A q \in Queue :
        <>[](~queue[q].there \/ queue[q].holders # {} \/ used[q] + Period + MaxLag > MaxTime)
=============================================================================
