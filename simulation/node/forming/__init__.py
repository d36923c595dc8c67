"""Clusters that form: empty nodes started in any order, lost, cut off and wiped meanwhile.

Every place (an address, with a machine that may be emptied) runs what `mayfly node` does: an empty one asks
(`node.membership.forming`), over a network that is cut now and then, all founders and what a name stands for at that
moment, which may be some, all, or addresses at which nobody or somebody else is. What decides becomes a whole node
with its disk.

Judged at the end, when all has been quiet for a while: there is one cluster, every node that was started is a member of
it, and it has everything that any node said was done. On the way: no group has two leaders in a term, no node meets a
log that contradicts its own, and none is sent away but those that were wiped, or had not served yet.
"""
