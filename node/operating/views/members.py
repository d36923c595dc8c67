"""Members of the cluster, and which of them vote in which group, as this node has them."""

from typing import Any

from mayfly.node.catalog import Refusal
from mayfly.node.engine.engine import Engine


def member_rows(engine: Engine, now_ms: int) -> list[dict[str, Any]]:
    """All members, removed ones too, with what they hold."""
    host = engine.host
    plan = engine.catalog.members.plan
    groups = host.groups.values()
    rows = []
    for record in engine.catalog.members.all():
        present = record.state != "removed"
        node = engine.catalog.node(record.id)
        rows.append({
            "id": record.id,
            "name": record.name,
            "address": record.address,
            "failure_domain": record.failure_domain,
            "state": record.state,
            "up": present and host.liveness.heard_within(record.id, now_ms, host.settings.election_timeout_ms),
            "draining": present and host.leadership.drains(record.id, now_ms),
            "votes": sum(record.id in group.conf_state.voters for group in groups),
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


def group_rows(engine: Engine) -> list[dict[str, Any]]:
    """Every group: who votes, who shall vote, who leads."""
    members = engine.catalog.members
    return [
        {
            "group": group.id,
            "leader": group.leader,
            "voters": list(group.conf_state.voters),
            "learners": list(group.conf_state.learners),
            "voters_outgoing": list(group.conf_state.voters_outgoing),
            "changing": bool(group.conf_state.voters_outgoing),
            "plan": list(members.plan.get(group.id, ())),
            "pinned": members.pinned(group.id),
        }
        for group in engine.host.groups.values()
    ]
