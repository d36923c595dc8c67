----------------------------- MODULE OutboxModel -----------------------------
(* Two queues, of which the second has no room, or room for one.              *)
EXTENDS Outbox

TwoOfThree == <<"a", "b", "a">>
OneIsFull == [t \in {"a", "b"} |-> IF t = "a" THEN 2 ELSE 0]
OneAtATime == [t \in {"a", "b"} |-> 1]
=============================================================================
