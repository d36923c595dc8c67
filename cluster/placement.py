"""Which nodes vote in which group, and which of them should lead it.

Every node holds a replica of every group, because a node serves its clients from its own replicas. `replication_factor`
nodes of a group vote; the others are learners. Voters and preferred leaders go round the nodes, so that each node
leads its share.
"""


def voters(group: int, nodes: list[int], replication_factor: int) -> list[int]:
    """The voting nodes of a group, the preferred leader first. `nodes` is sorted."""
    count = min(replication_factor, len(nodes))
    first = group % len(nodes)
    return [nodes[(first + step) % len(nodes)] for step in range(count)]


def learners(group: int, nodes: list[int], replication_factor: int) -> list[int]:
    """The nodes with a replica that does not vote."""
    chosen = set(voters(group, nodes, replication_factor))
    return [node for node in nodes if node not in chosen]
