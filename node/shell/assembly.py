"""What a node is made of, around its engine, and how that is wired."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mayfly.cluster.transport.cluster_secret import ClusterSecrets
from mayfly.cluster.transport.local_peer import LocalPeer
from mayfly.cluster.transport.peer_events import PeerEvents
from mayfly.cluster.transport.peer_transport import PeerTransport, TransportSettings
from mayfly.cluster.transport.tls import SwitchedContext
from mayfly.node import limits
from mayfly.node.amqp.settings import ConnectionSettings
from mayfly.node.broker.broker import Broker
from mayfly.node.broker.certificates import user_of_certificate
from mayfly.node.broker.settings import BrokerSettings
from mayfly.node.catalog import UpgradePassword
from mayfly.node.engine.drain import DrainSettings
from mayfly.node.engine.engine import Engine
from mayfly.node.http.server import HttpServer, HttpSettings
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.operating.import_and_export import Definitions
from mayfly.node.operating.operator_login import Logins
from mayfly.node.settings import NodeSettings
from mayfly.node.settings.upstreams import Upstream, read_upstreams
from mayfly.node.shell.arrival import peer_tls_files
from mayfly.node.shell.catalog_at_start import CatalogAtStart
from mayfly.node.shell.catching_up import CatchingUp
from mayfly.node.shell.certificates_watch import Certificates, client_tls
from mayfly.node.shell.control import Control
from mayfly.node.shell.data_folder import DataFolder
from mayfly.node.shell.drive import Drive, Outlets
from mayfly.node.shell.ending import Ending
from mayfly.node.shell.following import Following
from mayfly.node.shell.listener import AmqpListener, ListenerSettings
from mayfly.node.shell.log_writer import LogWriter
from mayfly.node.shell.membership import MembershipShell
from mayfly.node.shell.node_view import NodeView, Shown
from mayfly.node.shell.open_files import FileShares
from mayfly.node.shell.opening import OpenedNode
from mayfly.node.shell.pages import Pages
from mayfly.node.shell.process_memory import MemoryWatch, limit_bytes
from mayfly.node.shell.resource_watch import ResourceWatch
from mayfly.node.shell.tasks import Tasks
from mayfly.node.shell.tick_times import TickTimes
from mayfly.node.shell.upstream_links import UpstreamLinks

if TYPE_CHECKING:
    from mayfly.node.shell.node_tokens import NodeTokens


@dataclass(frozen=True, slots=True)
class Node:
    """The parts of a node, each in its place. Which of them listen, and what runs, is the business of its life cycle
    (`node.shell.process`)."""

    opened: OpenedNode
    broker: Broker
    memory: MemoryWatch
    cluster: ClusterControl
    drive: Drive
    tasks: Tasks
    catching_up: CatchingUp
    control: Control
    watch: ResourceWatch
    certificates: Certificates
    at_start: CatalogAtStart
    view: NodeView
    sample: Callable[[], Coroutine[None, None, None]]
    """Has rates of queues known before anybody asks."""
    http: HttpServer
    tokens: "NodeTokens | None"
    upstreams: UpstreamLinks

    @property
    def engine(self) -> Engine:
        """The node without its shell."""
        return self.opened.engine

    @property
    def transport(self) -> PeerTransport:
        """To the other nodes."""
        return self.drive.transport

    @property
    def listener(self) -> AmqpListener:
        """For clients."""
        return self.drive.listener


def assemble(
    settings: NodeSettings,
    opened: OpenedNode,
    known: ClusterSecrets,
    files: FileShares,
    ending: Ending,
    ends: AsyncExitStack,
) -> Node:
    """All parts of the shell around the engine, none of which listens yet. Raises OSError: certificates.

    It awaits nothing: whatever comes once something listens, a frame or a page, finds all that it may need. The parts
    that have threads or will listen are noted in `ends` here, where they are all to be seen: each can be ended whether
    or not it has begun. They end in this order turned round. `known` is the cluster secret."""
    loop, engine, clock = asyncio.get_running_loop(), opened.engine, opened.clock
    memory = MemoryWatch(limit_bytes(settings.memory_limit_bytes, settings.memory_limit_percent))
    tls, http_tls = client_tls(settings.amqp_tls), client_tls(settings.http_tls, "http")
    tasks = Tasks(loop)
    tokens = _make_tokens(settings, tasks)
    broker = _make_broker(settings, engine, memory, tokens, opened.identity.cluster)
    engine.broker = broker

    def pump() -> None:
        drive.schedule_pump()

    cluster = ClusterControl(engine, opened.identity.cluster, pump)
    membership = MembershipShell(
        engine, opened.identity, cluster, ending.send_away, opened.members,
        lambda: ending.unproven and engine.membership.version == 0 and engine.untouched,
    )  # fmt: skip

    def make_outlets(drive: Drive) -> Outlets:
        listener = _make_listener(settings, broker, drive.schedule_pump, tls, files)
        transport = _make_transport(settings, opened, drive, membership, known)
        return Outlets(LogWriter(opened.store, loop, drive.written), transport, listener)

    draw = random.SystemRandom().randrange
    ticks = TickTimes(settings.tick_ms, engine.host.settings.heartbeat_ticks_at_rest, draw)
    drive = Drive(loop, engine, clock, ending, ticks, make_outlets)
    writer, transport, listener = drive.writer, drive.transport, drive.listener

    async def end_writer() -> None:
        drive.leave_log()
        await loop.run_in_executor(None, writer.stop)

    ends.push_async_callback(end_writer)
    ends.push_async_callback(transport.stop)
    catching_up = CatchingUp(engine.host, pump, ending)
    times = DrainSettings(settings.drain_notice_ms, settings.drain_acks_ms, settings.drain_timeout_ms)
    control = Control(engine, broker, drive, opened.store, catching_up, ending, times)
    engine.upstreams.most_body_bytes = settings.max_message_bytes
    upstreams = UpstreamLinks(
        engine.upstreams, _upstreams(settings.upstreams_file), drive.feed, tasks.begin, clock.now_ms
    )
    watch = ResourceWatch(engine, opened.store, memory, settings, drive.feed, drive.pause)
    certificates = _make_certificates(settings, transport, tls, http_tls, tokens)

    def renew_password(command: UpgradePassword) -> None:
        engine.submit_catalog(command, lambda _: None)
        pump()

    logins = Logins(engine.catalog, renew_password, tokens=tokens)
    ends.callback(logins.close)
    definitions = Definitions(engine, cluster, settings.rabbitmq_version)
    at_start = CatalogAtStart(engine, settings, definitions, pump, ending)
    shown = Shown(
        settings=settings,
        engine=engine,
        broker=broker,
        ending=ending,
        catching_up=catching_up,
        control=control,
        memory=memory,
        watch=watch,
        writer=writer,
        logins=logins,
        peers=transport.counters,
        cluster=opened.identity.cluster,
        files=files,
        now_ms=clock.now_ms,
    )
    pages = Pages(shown, cluster, definitions, opened.own_token, pump)
    http = HttpServer(pages.ports, _http_settings(settings, files, http_tls))
    ends.push_async_callback(http.stop)
    ends.push_async_callback(listener.stop)
    ends.push_async_callback(tasks.end)
    ends.callback(drive.end_ticks)
    following = Following(
        engine, opened.name, opened.record, transport, ending, tasks, control.drain_because_removed,
        settings.feature_level_limit,
    )  # fmt: skip
    engine.membership.changed = following.members_changed
    engine.membership.level_changed = following.level_changed
    return Node(
        opened=opened,
        broker=broker,
        memory=memory,
        cluster=cluster,
        drive=drive,
        tasks=tasks,
        catching_up=catching_up,
        control=control,
        watch=watch,
        certificates=certificates,
        at_start=at_start,
        view=pages.view,
        sample=pages.sample,
        http=http,
        tokens=tokens,
        upstreams=upstreams,
    )


def _upstreams(path: Path | None) -> dict[str, Upstream]:
    """The clusters in the file, which was looked at before. Raises OSError."""
    try:
        return {} if path is None else read_upstreams(path)
    except ValueError as error:
        raise OSError(f"upstreams_file: {error}") from None


def _http_settings(settings: NodeSettings, files: FileShares, tls: SwitchedContext | None) -> HttpSettings:
    return HttpSettings(
        settings.http_address,
        settings.http_open_pages,
        files.http,
        tls_address=settings.http_tls_address,
        tls=None if tls is None else tls.front,
        body_bytes=settings.http_body_bytes,
        cors_origins=settings.http_cors_origins,
        **({"header_bytes": limits.TOKEN_HEADER_BYTES} if settings.takes_tokens else {}),
    )


def _make_tokens(settings: NodeSettings, tasks: Tasks) -> "NodeTokens | None":
    if not settings.takes_tokens:
        return None
    # It loads `cryptography`, 8 MB.
    from mayfly.node.shell.node_tokens import NodeTokens

    return NodeTokens(settings, tasks.begin)


def _make_broker(
    settings: NodeSettings, engine: Engine, memory: MemoryWatch, tokens: "NodeTokens | None", cluster_id: str
) -> Broker:
    connection = ConnectionSettings(settings.rabbitmq_version, max_message_bytes=settings.max_message_bytes)
    if tokens is not None:
        connection.initial_frame_max_bytes = limits.TOKEN_FRAME_BYTES
    own = BrokerSettings(
        connection,
        transactions_bytes=limits.open_transactions_bytes(memory.limit_bytes),
        unfinished_bytes=limits.unfinished_bytes(memory.limit_bytes),
        consumer_timeout_ms=settings.consumer_timeout_ms,
        consumer_windows_bytes=limits.consumer_windows_bytes(memory.limit_bytes),
        cluster_id=cluster_id,
    )
    return Broker(engine, lambda: random.SystemRandom().randbytes(16), own, tokens)


def _make_listener(
    settings: NodeSettings, broker: Broker, pump: Callable[[], None], tls: SwitchedContext | None, files: FileShares
) -> AmqpListener:
    amqp, beside = settings.amqp_address, settings.amqp_tls_address

    def user_of(certificate: Mapping[str, Any]) -> str | None:
        return user_of_certificate(certificate, settings.ssl_cert_login_from, settings.ssl_cert_login_san_type)

    own = ListenerSettings(
        amqp.host,
        amqp.port,
        tls=None if tls is None else tls.front,
        tls_address=None if beside is None else (beside.host, beside.port),
        reuse_port=settings.amqp_reuse_port,
        user_of=user_of if settings.amqp_tls_ca is not None else None,
        connection_limit=files.clients,
        first_kept_file=files.first_kept,
    )
    return AmqpListener(broker, pump, own)


def _make_transport(
    settings: NodeSettings, opened: OpenedNode, drive: Drive, membership: MembershipShell, known: ClusterSecrets
) -> PeerTransport:
    identity = opened.identity
    members = opened.members.members.items()
    peers = {id: address for id, (_, address) in members if id != identity.node and address}
    local = LocalPeer(
        identity.node, opened.name, identity.cluster, identity.store, opened.starts,
        str(settings.reachable_peer_address), opened.earlier_starts,
    )  # fmt: skip
    frames = settings.frames_listen_address
    own = TransportSettings(
        str(settings.peer_address),
        DataFolder(settings.data_dir).snapshots,
        frames_address=(frames.host, frames.port),
        tls=peer_tls_files(settings),
        known=known,
        snapshot_bytes_per_second=settings.replica_move_bytes_per_second,
    )
    events = PeerEvents(
        on_frame=drive.on_frame,
        on_up=drive.on_peer_up,
        on_down=drive.on_peer_down,
        on_gone=drive.on_peer_gone,
        on_snapshot_sent=drive.on_snapshot_sent,
    )
    return PeerTransport(local, peers, events, own, membership)


def _make_certificates(
    settings: NodeSettings, transport: PeerTransport, tls: SwitchedContext | None, http_tls: SwitchedContext | None,
    tokens: "NodeTokens | None",
) -> Certificates:  # fmt: skip
    reloads: dict[str, Callable[[], None]] = {}
    if settings.peer_tls is not None:
        reloads["for nodes"] = transport.reload_tls
    if tls is not None:
        reloads["for clients"] = tls.reload
    if http_tls is not None:
        reloads["of the HTTP API"] = http_tls.reload
    if tokens is not None:
        reloads["for tokens"] = tokens.read_file
    files = dict.fromkeys([*(settings.peer_tls or ()), *(settings.amqp_tls or ()), *(settings.http_tls or ())])
    if tokens is not None:
        files[tokens.file] = None
    return Certificates(files, reloads)
