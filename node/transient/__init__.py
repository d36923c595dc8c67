"""Queues that live in the memory of one node, and how clients of other nodes reach them. Pure."""
