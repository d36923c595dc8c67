"""Members of the cluster, and which of them vote in which group."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from mayfly.cluster.versions import LEVEL_PLANS
from mayfly.node.catalog import Refusal
from mayfly.node.engine.engine import Engine


class GroupReplicas(NamedTuple):
    """Who leads a group, and has replicas of it, as one of them has it."""

    leader: int
    voters: list[int]
    learners: list[int]
    voters_outgoing: list[int]


class ReplicaStanding(NamedTuple):
    """How far a replica is, as the node that has it says."""

    leads: bool
    term: int
    committed: int
    applied: int


NOTHING_KNOWN: Final = GroupReplicas(0, [], [], [])


def replicas_here(engine: Engine, groups: Iterable[int]) -> dict[int, GroupReplicas]:
    """Of those of these groups that this node has a replica of."""
    found = {}
    for id in groups:
        group = engine.host.groups.get(id)
        if group is not None:
            has = group.conf_state
            found[id] = GroupReplicas(
                group.leader, list(has.voters), list(has.learners), list(has.voters_outgoing)
            )
    return found


def standings_here(engine: Engine) -> dict[int, ReplicaStanding]:
    """Of each group that this node has a replica of."""
    return {
        id: ReplicaStanding(group.leads, group.term, group.committed, group.applied)
        for id, group in engine.host.groups.items()
    }


def replica_rows(
    replicas: Mapping[int, GroupReplicas], told: Mapping[int, Mapping[int, ReplicaStanding]], groups: Iterable[int]
) -> list[dict[str, Any]]:
    """Which node has which of these groups, and how far each replica is; `told` by node and group. `behind` counts
    entries that are committed, as far as any of them knows, and not applied there; a node that tells nothing of its
    replica stands there with `unknown`."""
    rows = []
    for id in groups:
        known = replicas.get(id, NOTHING_KNOWN)
        standings = {node: standing[id] for node, standing in told.items() if id in standing}
        voters = {*known.voters, *known.voters_outgoing}
        committed = max((each.committed for each in standings.values()), default=0)
        shown: list[dict[str, Any]] = []
        for node in sorted({*voters, *known.learners, *standings}):
            standing = standings.get(node)
            role = "voter" if node in voters else "learner" if node in known.learners else "extra"
            if standing is None:
                shown.append({"node": node, "role": role, "unknown": "it has told nothing of its replica"})
                continue
            shown.append({
                "node": node, "role": role, "leads": standing.leads, "term": standing.term,
                "applied": standing.applied, "behind": committed - standing.applied,
            })  # fmt: skip
        term = max((each.term for each in standings.values()), default=0)
        rows.append({"group": id, "leader": known.leader, "term": term, "committed": committed, "replicas": shown})
    return rows


def member_rows(engine: Engine, replicas: Mapping[int, GroupReplicas], now_ms: int) -> list[dict[str, Any]]:
    """All members, removed ones too, with what they hold of the groups in `replicas`."""
    host = engine.host
    members = engine.catalog.members
    plan = members.plan
    groups = replicas.values()
    rows = []
    for record in members.all():
        present = record.state != "removed"
        node = engine.catalog.node(record.id)
        rows.append({
            "id": record.id,
            "name": record.name,
            "address": record.address,
            "failure_domain": record.failure_domain,
            "state": record.state,
            "away": record.away and record.state == "member",
            "replicas_to_move": members.to_move_from(record.id),
            "up": present and host.liveness.heard_within(record.id, now_ms, host.settings.election_timeout_ms),
            "draining": present and host.leadership.drains(record.id, now_ms),
            "votes": sum(record.id in group.voters for group in groups),
            "votes_planned": sum(record.id in voters for voters in plan.values()),
            "leads": sum(group.leader == record.id for group in groups),
            "levels": list(node.levels) if node is not None else [],
        })
    return rows


def is_own_or_down(engine: Engine, name: str, now_ms: int) -> bool:
    """Whether the member with that name or id is this node, or has not been heard of for an election timeout."""
    try:
        id = engine.catalog.members.find(name).id
    except Refusal:
        return False
    host = engine.host
    within_ms = host.settings.election_timeout_ms
    return id == engine.node_id or not host.liveness.heard_within(id, now_ms, within_ms)


def group_rows(
    engine: Engine, groups: Iterable[int], replicas: Mapping[int, GroupReplicas]
) -> list[dict[str, Any]]:
    """These groups: who votes, who shall vote, who leads, how many queues are there by the catalog; `owed`: whether
    the plan itself is still to be changed, for more than evenness. Of one that is not in `replicas` nothing but what
    every node knows."""
    members = engine.catalog.members
    is_gradual = engine.catalog.level >= LEVEL_PLANS and members.founded
    changed = set(members.owed() if is_gradual else ())
    queues = (0, *engine.catalog.shard_queue_counts)
    rows = []
    for id in groups:
        known = replicas.get(id, NOTHING_KNOWN._replace(leader=engine.leader_of(id)))
        rows.append({
            "group": id,
            **known._asdict(),
            "changing": bool(known.voters_outgoing),
            "plan": list(members.plan.get(id, ())),
            "pinned": members.pinned(id),
            "owed": id in changed,
            "queues": queues[id],
        })
    return rows
