"""A node as a process: the asyncio shell around `node.engine.engine.Engine`.

    sockets (AMQP, gRPC, HTTP) -> engine -> pump once per turn of the loop -> frames to peers, one batch to the disk

The shell decides nothing. Its turns are in `node.shell.drive`; here the node is put together, started, drained and
stopped.
"""

import asyncio
import gc
import logging
import random
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

from mayfly.cluster.log.batch import CorruptEntry, CorruptStore, DiskFull, LogError, MissingEntry, StoreDamaged
from mayfly.cluster.raft import Entry
from mayfly.cluster.store.folder import make_folder
from mayfly.cluster.store.write_ahead_store import WriteAheadStore
from mayfly.cluster.transport.cluster_secret import NO_SECRET, ClusterSecrets
from mayfly.cluster.transport.peer_transport import LocalPeer, PeerTransport
from mayfly.cluster.transport.tls import SwitchedContext
from mayfly.cluster.versions import LEVELS, level_fault
from mayfly.node import limits
from mayfly.node.amqp.settings import ConnectionSettings
from mayfly.node.broker.broker import Broker
from mayfly.node.broker.certificates import user_of_certificate
from mayfly.node.broker.settings import BrokerSettings
from mayfly.node.catalog import UpgradePassword
from mayfly.node.engine.drain import DRAINED, NOT_DRAINING, TEXT_OF_DRAIN, TEXT_OF_STOP, Drain, DrainSettings
from mayfly.node.engine.engine import Engine
from mayfly.node.http.server import HttpServer
from mayfly.node.membership.identity import Identity, KnownMembers
from mayfly.node.operating.access import Access
from mayfly.node.operating.client_views import ClientViews
from mayfly.node.operating.clients import Clients
from mayfly.node.operating.dead_letter_office import DeadLetterOffice
from mayfly.node.operating.definitions_office import DefinitionsOffice
from mayfly.node.operating.management import Management
from mayfly.node.operating.operator import Operator
from mayfly.node.operating.operator_login import Logins
from mayfly.node.operating.own_token import OwnToken, write_own_token
from mayfly.node.settings import NodeSettings, SettingsError
from mayfly.node.shell.arrival import (
    STARTS_SHIFT,
    NodeRefused,
    establish_identity,
    is_proven,
    is_unproven,
    keep_level,
    next_start,
    peer_tls_files,
)
from mayfly.node.shell.catalog_at_start import CatalogAtStart
from mayfly.node.shell.certificates_watch import Certificates, check_files, client_tls
from mayfly.node.shell.data_copy import copy_data
from mayfly.node.shell.drive import RETRY_FULL_DISK_S, Drive, Outlets
from mayfly.node.shell.engine_assembly import make_engine
from mayfly.node.shell.listener import AmqpListener
from mayfly.node.shell.log_writer import LogWriter
from mayfly.node.shell.membership import MembershipShell
from mayfly.node.shell.node_view import NodeView
from mayfly.node.shell.open_files import FileShares, allowed_files, share_out
from mayfly.node.shell.peer_protection import cluster_secrets, peer_warnings
from mayfly.node.shell.private_files import make_private
from mayfly.node.shell.process_clock import ProcessClock, kept_clock, this_boot
from mayfly.node.shell.process_memory import MemoryWatch, limit_bytes
from mayfly.node.shell.resource_watch import ResourceWatch
from mayfly.node.shell.store_opening import forget_damaged_file, open_store

log = logging.getLogger("mayfly.node")

ASK_AGAIN_S: Final = 1.0
"""A replica that could not say whether it is up to date is asked again after this."""

_FEW: Final = 3

MANY_OBJECTS: Final = 100_000
"""Objects made before the youngest are looked at for cycles: there are hardly any, and each look holds the loop up."""

SWITCH_INTERVAL_S: Final = 0.0005
"""How long the loop may keep the interpreter from the disk thread; at Python's 5 ms a write took ten times as long."""


class NodeProcess:
    """One node. `start` returns when it serves."""

    def __init__(self, settings: NodeSettings) -> None:
        self.settings: NodeSettings = settings
        self.clock: ProcessClock = ProcessClock()
        self.engine: Engine
        self.stopped: asyncio.Event = asyncio.Event()
        self.failure: str | None = None
        self._sent_away = False
        self._removed = False
        self._known: ClusterSecrets = NO_SECRET
        self._unproven = False
        self._loop: asyncio.AbstractEventLoop
        self._store: WriteAheadStore
        self.drive: Drive
        self._writer: LogWriter
        self.identity: Identity
        self.membership: MembershipShell
        self._members: KnownMembers
        self._transport: PeerTransport
        self._broker: Broker
        self._listener: AmqpListener
        self.drain: Drain
        self.view: NodeView
        self._http: HttpServer
        self._definitions: DefinitionsOffice
        self._logins: Logins
        self._certificates: Certificates = Certificates([], {})
        self._watch: ResourceWatch
        self._tasks: set[asyncio.Task[None]] = set()
        """What runs beside the loop."""
        self._ends: AsyncExitStack = AsyncExitStack()
        """How each part ends that was opened, in the order of their beginnings; `stop` goes through it backwards."""
        self._memory: MemoryWatch = MemoryWatch(limit_bytes(settings.memory_limit_bytes, settings.memory_limit_percent))
        self._files: FileShares = share_out(allowed_files())
        self.serving = False
        self.behind: set[int] = set()
        """Groups whose replicas here have not been up to date since the start."""
        self._door_closed = False
        self._opening = asyncio.Lock()
        self._keeping_level = asyncio.Lock()
        self._following_members = asyncio.Lock()
        self._drained = asyncio.Event()
        self._stop_asked = False

    # ------------------------------------------------------------------ start and stop

    async def start(self) -> None:
        """Open the log, join the cluster, listen. Raises NodeRefused, LogError or OSError with a clear text.

        Where it raises, or is cancelled, whatever was opened is closed: the same data can be started again."""
        try:
            await self._start()
        except BaseException:
            try:
                await self.stop()
            except Exception:
                # Why it could not start is what is to be told.
                log.exception("a node that could not start did not end in order")
            raise

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        gc.set_threshold(MANY_OBJECTS, 20, 100)
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        if self._files.fault is not None:
            raise NodeRefused(self._files.fault)
        check_files(self.settings)
        try:
            self._known = cluster_secrets(self.settings)
        except SettingsError as error:
            raise NodeRefused(f"settings: {error}") from None
        for warning in peer_warnings(self.settings):
            log.warning("%s", warning)
        starts, previous = await self._open_engine()
        own_token = await self._loop.run_in_executor(None, self._write_own_token)
        # No await in it, and nothing listens before it is done: a frame, or a page, finds all that it may need.
        self._assemble(starts, previous, own_token)
        await self._transport.start()
        self.drive.begin_ticks(self._ticked)
        self._begin(self._watch.watch_disk_and_memory())
        self._begin(self._watch.watch_clock())
        self._begin(self._certificates.watch())
        self.drive.schedule_pump()
        await self._http.start()
        await self._serve_when_current()
        gc.collect()
        gc.freeze()

    async def _open_engine(self) -> tuple[int, int]:
        """Who this node is, and its engine with what the log holds; the count of starts now, and at the one before."""
        settings = self.settings
        opening = self._loop.run_in_executor(None, self._open_store)
        self._ends.push_async_callback(self._close_store, opening)
        # Shielded: the thread opens it whoever is cancelled meanwhile, and it is to be closed.
        self._store = await asyncio.shield(opening)
        self.clock = await self._loop.run_in_executor(None, kept_clock, settings.data_dir, this_boot())
        try:
            self.identity, self._members = await establish_identity(settings, self._store, self._known)
            self._unproven = is_unproven(self._store)
            previous, starts = next_start(self._store)
            stored = await self._loop.run_in_executor(None, self._store.load)
            if not any(group.damage for group in stored.values()):
                await self._loop.run_in_executor(None, forget_damaged_file, settings)
            self.engine = make_engine(
                settings, self.identity, self._members, self.name, self._read_entry, starts << STARTS_SHIFT
            )
            first = self.engine.start(stored, self.clock.now_ms())
            if first is not None:
                await self._loop.run_in_executor(None, self._store.write, first)
        except CorruptStore as error:
            raise StoreDamaged(f"the data in {settings.data_dir} is damaged: {error}") from error
        return starts, previous

    def _assemble(self, starts: int, previous: int, own_token: OwnToken | None) -> None:
        """All parts of the shell around the engine, none of which listens yet. Raises OSError: certificates.

        Those that have threads or will listen are noted in `_ends` here, where they are all to be seen: each can be
        ended whether or not it has begun. They end in this order turned round."""
        settings = self.settings
        tls = client_tls(settings.amqp_tls)
        self._broker = self._make_broker()
        self.engine.broker = self._broker
        self.drive = Drive(
            self._loop, self.engine, self.clock, self, settings.tick_ms,
            lambda drive: self._make_outlets(drive, starts, previous, tls),
        )
        self._writer, self._transport, self._listener = self.drive.writer, self.drive.transport, self.drive.listener
        self._ends.push_async_callback(self._end_writer)
        self._ends.push_async_callback(self._transport.stop)
        times = DrainSettings(settings.drain_notice_ms, settings.drain_acks_ms, settings.drain_timeout_ms)
        self.drain = Drain(self.engine.host, self._broker, self, times)
        self._watch = ResourceWatch(self.engine, self._store, self._memory, settings, self.drive.feed)
        self._certificates = self._make_certificates(tls)
        self._logins = Logins(self.engine.catalog, self._renew_password)
        self._ends.callback(self._logins.close)
        self._definitions = DefinitionsOffice(self.engine, self.membership, settings.rabbitmq_version)
        self.view = NodeView(
            self, self.engine, settings, self.clock.now_ms, self.membership, self._memory, self._writer, self._logins,
            self._broker, self._watch, self._transport.counters,
        )
        self._http = self._make_http(own_token)
        self._ends.push_async_callback(self._http.stop)
        self._ends.push_async_callback(self._listener.stop)
        self._ends.push_async_callback(self._end_tasks)
        self._ends.callback(self.drive.end_ticks)
        self.engine.membership.changed = self._members_changed
        self.engine.membership.level_changed = self._level_changed

    def _make_broker(self) -> Broker:
        memory_bytes = self._memory.limit_bytes
        own = BrokerSettings(
            ConnectionSettings(self.settings.rabbitmq_version, max_message_bytes=self.settings.max_message_bytes),
            transactions_bytes=limits.open_transactions_bytes(memory_bytes),
            unfinished_bytes=limits.unfinished_bytes(memory_bytes),
            consumer_timeout_ms=self.settings.consumer_timeout_ms,
            consumer_windows_bytes=limits.consumer_windows_bytes(memory_bytes),
        )
        return Broker(self.engine, lambda: random.SystemRandom().randbytes(16), own)

    def _make_outlets(self, drive: Drive, starts: int, previous: int, tls: SwitchedContext | None) -> Outlets:
        settings = self.settings
        self.membership = MembershipShell(
            self.engine, self.identity, settings, drive.schedule_pump, self._send_away, self._members.stores,
            lambda: self._unproven and self._members.version == 0 and self.engine.untouched,
        )
        amqp, beside = settings.amqp_address, settings.amqp_tls_address
        listener = AmqpListener(
            self._broker, amqp.host, amqp.port, drive.schedule_pump,
            None if tls is None else tls.front, self._files.clients, self._files.first_kept,
            reuse_port=settings.amqp_reuse_port,
            tls_address=None if beside is None else (beside.host, beside.port),
            user_of=self._user_of_certificate if settings.amqp_tls_ca is not None else None,
        )
        transport = self._make_transport(drive, starts, previous)
        return Outlets(LogWriter(self._store, self._loop, drive.written, self._store), transport, listener)

    async def _serve_when_current(self) -> None:
        """Let clients in once the catalog here is what it was anywhere. Raises NodeRefused, OSError."""
        at_start = CatalogAtStart(
            self.engine, self.settings, self._definitions, self.drive.schedule_pump, self.stopped, lambda: self.failure
        )
        await at_start.wait()
        if self._unproven:
            self._unproven = False
            await self._loop.run_in_executor(None, is_proven, self._store)
        self.behind = set(self.engine.host.groups)
        for group in self.engine.host.groups:
            self._ask_whether_behind(group)
        await self._listener.start()
        self._begin(at_start.load_when_raised())
        self.serving = True

    def _write_own_token(self) -> OwnToken | None:
        try:
            return write_own_token(self.settings.data_dir)
        except OSError as error:
            log.warning("the node's own token can't be written: its hooks need a login: %s", error)
            return None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done beside the loop until it is done, or the node stops."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("%s has ended", task.get_coro(), exc_info=error)

    def _make_http(self, own_token: OwnToken | None) -> HttpServer:
        operator = Operator(
            self._logins, self.membership, DeadLetterOffice(self.engine), self.clock.now_ms, self.drive.schedule_pump,
            self, own_token,
        )
        clients = Clients(self.engine, ClientViews(self.engine, self._broker), self.drive.schedule_pump)
        management = Management(
            self.engine, self.membership, self._logins, self.drive.schedule_pump, self.view, clients,
            self.settings.rabbitmq_version,
        )
        access = Access(self.engine, self.membership, self._logins, self._logins.threads)
        address = self.settings.http_address
        return HttpServer(
            self.view, address.host, address.port, operator, management, access, self._definitions, self._files.http,
            open_pages=self.settings.http_open_pages,
        )

    def _make_certificates(self, tls: SwitchedContext | None) -> Certificates:
        settings = self.settings
        reloads: dict[str, Callable[[], None]] = {}
        if settings.peer_tls is not None:
            reloads["for nodes"] = self._transport.reload_tls
        if tls is not None:
            reloads["for clients"] = tls.reload
        return Certificates([*(settings.peer_tls or ()), *(settings.amqp_tls or ())], reloads)

    def reload_certificates(self) -> None:
        """Read the certificates' files again, for connections from here on."""
        self._certificates.reload("asked for")

    def _user_of_certificate(self, certificate: Mapping[str, Any]) -> str | None:
        settings = self.settings
        return user_of_certificate(certificate, settings.ssl_cert_login_from, settings.ssl_cert_login_san_type)

    def _open_store(self) -> WriteAheadStore:
        make_folder(self.settings.data_dir)
        open_to_others = make_private(self.settings.data_dir)
        if open_to_others:
            log.warning("others may read what is in %s, and it is not this user's to change: %s",
                        self.settings.data_dir, ", ".join(open_to_others[:_FEW]))  # fmt: skip
        return open_store(self.settings)

    @property
    def name(self) -> str:
        """What the node is called; one that joined keeps the name under which it did."""
        return self.identity.name if self.identity.joined else self.settings.name

    def _make_transport(self, drive: Drive, starts: int, previous: int) -> PeerTransport:
        settings, identity = self.settings, self.identity
        known = self._members.members.items()
        peers = {id: address for id, (_, address) in known if id != identity.node and address}
        local = LocalPeer(
            identity.node, self.name, identity.cluster, identity.store, starts, str(settings.reachable_peer_address),
            previous,
        )
        return PeerTransport(
            local, str(settings.peer_address), peers, drive.on_frame, drive.on_peer_up, drive.on_peer_down,
            drive.on_snapshot_sent, peer_tls_files(settings), self.membership, settings.data_dir / "snapshots",
            (settings.frames_listen_address.host, settings.frames_listen_address.port), drive.on_peer_gone,
            self._known,
        )

    def _members_changed(self) -> None:
        """The catalog has other members: connections follow, and the next start knows them."""
        members = self.engine.catalog.members
        if self.engine.membership.removed:
            self._send_away(f"this node (node {self.identity.node}, {self.name}) was removed from the cluster", True)
            return
        own = members.get(self.identity.node)
        if own is not None and own.state == "leaving" and self.serving and self.drain.step == NOT_DRAINING:
            log.info("this node is being removed from the cluster: it drains")
            self._loop.call_soon(self.begin_drain)
        known = {record.id: (record.name, record.address) for record in members.with_replicas()}
        stores = {record.id: record.store for record in members.with_replicas() if record.store}
        self._members = KnownMembers(members.version, known, stores)
        self._begin(self._follow_members())

    def _level_changed(self, level: int) -> None:
        """The cluster's feature level is known here, or was raised: the next start knows it, and so does an older node
        that is started on this data."""
        fault = level_fault(LEVELS, level)
        if fault:
            self._send_away(f"this node can't go on: {fault}")
            return
        log.info("the cluster is at feature level %d%s", level, _held_back(level, self.settings.feature_level_limit))
        self._begin(self._keep_level())

    async def _keep_level(self) -> None:
        """The one that it is by then: two that are raised quickly may come here in any order."""
        async with self._keeping_level:
            try:
                await self._loop.run_in_executor(None, keep_level, self._store, self.engine.catalog.level)
            except LogError as error:
                log.warning("the feature level was not noted for the next start: %s", error)

    async def _follow_members(self) -> None:
        """Those that there are by then, one change after the other: the next start must not find older ones."""
        async with self._following_members:
            while True:
                known = self._members
                addresses = {id: address for id, (_, address) in known.members.items() if address}
                ids = [record.id for record in self.engine.catalog.members.all()]
                # Whoever has greeted this node and came after all that the catalog here knows stays until it knows
                # better.
                newcomers = {id: at for id, at in self._transport.peers().items() if id > max(ids)}
                await self._transport.set_peers(newcomers | addresses)
                try:
                    await self._loop.run_in_executor(None, self._store.put_meta, "members", known.encode())
                    return
                except DiskFull as error:
                    log.warning("the members were not noted for the next start, tried again: %s", error)
                except LogError as error:
                    log.warning("the members were not noted for the next start: %s", error)
                    return
                await asyncio.sleep(RETRY_FULL_DISK_S)

    def _ask_whether_behind(self, group: int) -> None:
        """Until the replica here has what was committed before, its vote stands in for no other one, and whoever stops
        nodes one after the other, when the one before is ready, would be too early."""

        def answered(result: object) -> None:
            if result is None:
                self.behind.discard(group)
            else:
                self._loop.call_later(ASK_AGAIN_S, self._ask_whether_behind, group)

        if not self.stopped.is_set():
            self.engine.host.read_index(group, answered)
            self.drive.schedule_pump()

    def _renew_password(self, command: UpgradePassword) -> None:
        self.engine.submit_catalog(command, lambda _: None)
        self.drive.schedule_pump()

    def _ticked(self) -> None:
        if self.drain.step != NOT_DRAINING:
            self.drive.feed(self.drain.tick)
            if self.drain.step == DRAINED:
                self._drained.set()

    async def run_until_stopped(self) -> None:
        """Serve until `stop` is called or the node fails."""
        await self.stopped.wait()

    async def drain_before_stop(self) -> None:
        """Let clients and other nodes go before a stop that was asked for; returns at the time limit at the latest."""
        self._stop_asked = True
        self.drive.feed(lambda now_ms: self.drain.begin(TEXT_OF_STOP, now_ms))
        waiting = [asyncio.ensure_future(event.wait()) for event in (self._drained, self.stopped)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()

    async def copy_data(self, folder: Path) -> int:
        """See `NodeControl.copy_data`. All that the replicas have taken in by now is in it."""
        await self.drive.until_stored()
        return await self._loop.run_in_executor(None, copy_data, self._store, folder)

    # ------------------------------------------------------------------ drained by an operator

    def begin_drain(self) -> None:
        """See `NodeControl.begin_drain`."""
        self.drive.feed(lambda now_ms: self.drain.begin(TEXT_OF_DRAIN, now_ms))

    async def revive(self) -> None:
        """See `NodeControl.revive`. Raises OSError if the AMQP address can't be had, or a stop was asked for."""
        async with self._opening:
            self._refuse_if_stopping()
            if self._door_closed:
                await self._listener.open_door()
                self._door_closed = False
            if self._stop_asked:  # while the door was opened
                self.take_no_clients()
                self._refuse_if_stopping()
        self.drain.revive()
        self._drained.clear()
        self.drive.schedule_pump()

    def _refuse_if_stopping(self) -> None:
        """Nobody revives a node that has been told to stop: the process would wait for the end of a drain for ever."""
        if self._stop_asked:
            raise OSError("the node was told to stop")

    def take_no_clients(self) -> None:
        """See `DrainPort.take_no_clients`."""
        self._door_closed = True
        self._listener.close_door()

    def pending_bytes(self) -> int:
        """See `DrainPort.pending_bytes`."""
        return self.engine.pending_bytes()

    def drain_status(self) -> dict[str, object]:
        """How far a drain has come."""
        return {
            "state": self.drain.state,
            "leads": sum(group.leads for group in self.engine.host.groups.values()),
            "connections": self._listener.connection_count,
            "unacknowledged": self._broker.unacknowledged,
        }

    async def stop(self) -> None:
        """Stop serving; what is on disk stays. Also for a node that was started in part; a second time it does nothing.
        A part that fails to end keeps no other one from it; then this raises what that raised."""
        try:
            await self._ends.aclose()
        finally:
            self.stopped.set()

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end_writer(self) -> None:
        self.drive.leave_log()
        await self._loop.run_in_executor(None, self._writer.stop)

    async def _close_store(self, opening: asyncio.Future[WriteAheadStore]) -> None:
        """Close the store, once it is open; there is nothing to close where it could not be opened."""
        await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            # It waits for whoever is in the store, on a disk that may hang.
            await self._loop.run_in_executor(None, opening.result().close)

    def _read_entry(self, group: int, index: int) -> Entry:
        """Read an entry back; one that is damaged or gone on disk stops the node, and its replica is rebuilt at the
        next start. Any thread may do this: a snapshot is read beside the loop.

        Whoever asked must not go on as if it had the entry, so this raises as well."""
        try:
            return self._store.read_entry(group, index)
        except (CorruptEntry, MissingEntry) as error:
            in_loop = threading.current_thread() is threading.main_thread()
            if isinstance(error, MissingEntry) and not (in_loop and self.engine.host.peers):
                # Beside the loop it is none: what a snapshot needs may be released before it was read.
                raise
            with suppress(LogError):
                self._store.mark_damaged(group, str(error))
            text = f"{error}; started again, this node has group {group} rebuilt from the others"
            if in_loop:
                self.fail(text)
            else:
                self._loop.call_soon_threadsafe(self.fail, text)
            raise

    def fail(self, text: str) -> None:
        """The node can't go on without breaking a promise: stop at once, without writing anything more."""
        if self.failure is not None:
            return
        log.critical("stopping: %s", text)
        self.failure = text
        self.stopped.set()

    def lost_log(self, why: str) -> None:
        """See `Failing.lost_log`."""
        self._send_away(
            f"the data in {self.settings.data_dir} was lost or is an older copy ({why}); put the right data back, or "
            "see 'A node whose data is lost' in docs/operations.md"
        )

    def _send_away(self, text: str, removed: bool = False) -> None:
        """The node fails because it is not, or no longer, a member with this data: it would fail again."""
        self._removed = self._removed or (removed and self.failure is None)
        self._sent_away = self._sent_away or self.failure is None
        self.fail(text)

    def may_join_anew(self) -> bool:
        """Whether a node that could not start was sent away as a founder that came too late: it never served, so its
        data is nothing, and it can join the cluster that is there. Not one that an operator has removed."""
        return self._sent_away and self._unproven and not self._removed

    def may_not_go_on(self) -> bool:
        """Whether a node that has ended, or could not start, would do the same when started again."""
        return self._sent_away or self.failure is None


def _held_back(level: int, limit: int) -> str:
    """For the log: that a setting of this node keeps the cluster's feature level from rising; "" if it does not."""
    held = level < LEVELS.highest and LEVELS.limited(limit) != LEVELS
    return f"; feature_level_limit = {limit} keeps it from {LEVELS.highest}" if held else ""
