------------------------------ MODULE LeaseModel ------------------------------
(* Queues and consumers of which it does not matter which is which.             *)
EXTENDS Lease, TLC

Same == Permutations(Queue) \cup Permutations(Consumer)
=============================================================================
