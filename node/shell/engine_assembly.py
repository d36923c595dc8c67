"""An engine from the settings of a node, and from who it is."""

import logging
import random
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from mayfly.cluster.group.settings import GroupSettings
from mayfly.cluster.host.failure_domains import SEPARATOR
from mayfly.cluster.host.settings import HostSettings
from mayfly.cluster.log.group_log import EntryCache
from mayfly.cluster.raft import Entry
from mayfly.cluster.versions import LEVEL_FEEDS, LEVELS
from mayfly.node import limits
from mayfly.node.catalog import Catalog
from mayfly.node.engine.engine import Engine
from mayfly.node.engine.settings import EngineSettings
from mayfly.node.membership.identity import Identity, KnownMembers
from mayfly.node.membership.plan_duty import PlanSettings
from mayfly.node.membership.settings import MembershipSettings
from mayfly.node.settings import NodeSettings
from mayfly.node.shell.arrival import founders
from mayfly.node.shell.log_events import RAFT

log = logging.getLogger("mayfly.node")

_NAMED: Final = {"event": RAFT}


def make_engine(
    settings: NodeSettings,
    identity: Identity,
    members: KnownMembers,
    name: str,
    read_entry: Callable[[int, int], Entry],
    incarnation: int,
) -> Engine:
    """The engine of a node that is who `identity` says, and called `name`."""
    group = GroupSettings(
        election_ticks=max(2, settings.election_timeout_ms // settings.tick_ms),
        heartbeat_ticks=max(1, settings.heartbeat_ms // settings.tick_ms),
        session_window=limits.SESSION_WINDOW,
        batch_bytes=limits.BATCH_BYTES,
        entry_bytes=limits.ENTRY_BYTES,
        repeat_after_ms=2 * settings.election_timeout_ms,
        session_timeout_ms=settings.session_timeout_ms,
        compact_bytes=settings.compact_bytes,
        compact_entries=settings.compact_entries,
        inflight_bytes=limits.INFLIGHT_BYTES,
        unhurried_ms=limits.ACKS_HELD_MS,
    )
    levels = LEVELS.limited(settings.feature_level_limit)
    host = HostSettings(
        identity.node, list(members.members), identity.replication_factor, settings.tick_ms,
        settings.election_timeout_ms, settings.clock_bound_ms, group,
        bootstrap=not identity.joined,
        everywhere=levels.highest < LEVEL_FEEDS,
    )  # fmt: skip
    addresses = {
        "amqp": str(settings.amqp_address),
        "http": str(settings.http_address),
        "peer": str(settings.reachable_peer_address),
    }
    if settings.amqp_tls_address is not None:
        addresses["amqps"] = str(settings.amqp_tls_address)
    if settings.http_tls_address is not None:
        addresses["https"] = str(settings.http_tls_address)
    membership = MembershipSettings(
        identity.store,
        founders(settings, identity),
        members.version,
        failure_domain(settings.failure_domain, socket.gethostname()),
        levels,
        PlanSettings(
            settings.replace_after_ms, settings.shards_per_node, settings.balance_by_load,
            moves_queues=settings.move_hot_queues,
        ),
    )
    engine = EngineSettings(
        name, identity.shards, settings.expiry_tick_ms, addresses, lambda: Catalog(identity.shards), membership
    )
    return Engine(
        host, engine, read_entry, EntryCache(settings.cache_bytes),
        random.SystemRandom().randrange, incarnation, partial(log.info, extra=_NAMED),
        partial(log.debug, extra=_NAMED),
    )


def failure_domain(setting: str, host_name: str) -> str:
    """What a node may be lost together with: its machine, unless the setting says otherwise, or in which zone it is."""
    return setting + host_name if not setting or setting.endswith(SEPARATOR) else setting
