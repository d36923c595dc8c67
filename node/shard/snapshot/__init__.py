"""The state as bytes and back: the same state gives the same bytes on every replica (RULES C1).

Messages are columns of 64-bit numbers, so that a million of them take well under a second; a column in which
all numbers are the same is that number. What follows from the rest (timers, live counts, sessions, sums) is
not written but made anew.

Millions of messages would keep a node silent for seconds. They never change, so a snapshot can be made in
steps: at first all else is written, and which messages are where; then so many messages in each step. It is read
in such steps, too.

`writer` and `reader` are what others call. A row of the snapshot and how it is read stand together, a module for each
kind of row.
"""
