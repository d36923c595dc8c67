"""What one channel publishes: routing, checks, one run per shard, confirms.  HOT.

All publishes of one event go out as one run per shard they are routed to; the
answer for the run settles all of them.  Publishing does not wait, with two
exceptions: an exchange or a route that the local catalog replica does not have
may be on its way from another node, so the catalog is brought up to date first;
and what is large goes to one shard after the other (`node.broker.large_publishes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from mayfly.cluster.versions import LEVEL_PIECES, LEVEL_PUBLISHER_HEADERS
from mayfly.node.amqp.content import Content, replace_properties, short_string
from mayfly.node.amqp.events import IMMEDIATE, MANDATORY
from mayfly.node.broker.client import Client, ClientChannel
from mayfly.node.broker.cluster_facade import SESSION_LOST, ClusterFacade, OnDone, ShardHandle
from mayfly.node.broker.confirms import Confirms, PublishGroup
from mayfly.node.broker.direct_replies import REPLY_TO_OCTETS, is_address_in
from mayfly.node.broker.due_times import due_of, encode_content, is_delayed
from mayfly.node.broker.large_publishes import LargePublishes, TurnStep
from mayfly.node.broker.mandatory import MandatoryPart, MandatoryPublish
from mayfly.node.broker.meanings import CHANGE, COPIES, KEPT_APART, STREAM_TTL, meanings_of
from mayfly.node.broker.operation import AmqpError, Request, Steps, as_error
from mayfly.node.broker.routes import Route, Routes, Target, copies_of
from mayfly.node.broker.schedule_changes import CANCELLED, digest_to_change, refused_in_transaction
from mayfly.node.broker.stream_ttls import NO_FLOOR, RefusedTtl, with_ttl
from mayfly.node.broker.stream_ttls import stream_ttl_ms as stream_ttl_ms_of
from mayfly.node.broker.traffic import ChannelTraffic
from mayfly.node.broker.transaction import OpenTransactions, Transaction
from mayfly.node.broker.watching import Watch
from mayfly.node.catalog import Refusal, expiration_ttl_ms
from mayfly.node.catalog.token_user import TokenUser
from mayfly.node.content_header import EXPIRATION, FLAGS_AT, HEADERS, REPLY_TO, USER_ID
from mayfly.node.dead_letter.publisher_headers import as_shown, as_stored
from mayfly.node.limits import LARGE_PUBLISH_BYTES
from mayfly.node.shard.commands import (
    NO_TTL,
    RECURRING,
    RECURRING_ONE,
    encode_change_scheduled,
    encode_guard,
    encode_publish,
)
from mayfly.node.shard.results import Published

if TYPE_CHECKING:
    from mayfly.node.catalog import QueueRecord

_WITH_CARE: Final = (HEADERS | REPLY_TO | EXPIRATION) >> 8
"""In the first octet of the property flags."""

BASIC_CLASS: Final = 60
PUBLISH_METHOD: Final = 40


class PublishRun:
    """The publishes of one event that go to one shard."""

    def __init__(self, handle: ShardHandle) -> None:
        self.handle: ShardHandle = handle
        self.parts: list[bytes] = []
        self.size_bytes: int = 0
        # Positions within the event, ascending, each once.
        self.offsets: list[int] = []
        # Whether a queue may refuse some of them.
        self.guarded: bool = False
        # Whether one must not be refused, as nobody could be told.
        self.is_taken_whole: bool = False
        # Those that are mandatory; None if none is.
        self.mandatory: MandatoryPart | None = None
        self.in_pieces: bool = False
        """Whether it is one message, whose body is so large that it goes in pieces."""

    def add_mandatory(self, publish: MandatoryPublish) -> None:
        """The last of its publishes is one."""
        if self.mandatory is None:
            self.mandatory = MandatoryPart()
        self.mandatory.add(len(self.offsets) - 1, publish)

    def send(self, done: OnDone | None) -> None:
        """Give the run to its shard."""
        if self.guarded:
            guard = encode_guard(len(self.offsets))
            self.parts.insert(0, guard)
            self.size_bytes += len(guard)
        if self.in_pieces:
            self.handle.publish_in_pieces(self.parts, self.size_bytes, done)
        else:
            self.handle.publish(self.parts, self.size_bytes, done)


class LargeRun(Request):
    """A run whose channel waits until its shard has it."""

    def __init__(self, run: PublishRun, settled: OnDone | None, queues_moved: int) -> None:
        """`settled`: who is told the shard's answer; `queues_moved`: how many had when it was routed."""
        self.run: PublishRun = run
        self.queues_moved: int = queues_moved
        self._settled = settled
        self._done: OnDone | None = None

    def start(self, cluster: ClusterFacade, done: OnDone) -> None:
        """See `Request.start`."""
        self._done = done
        self.run.send(self._answered)

    def _answered(self, result: object) -> None:
        if self._settled is not None:
            self._settled(result)
        if self._done is not None:
            self._done(result)


class ConfirmsDue:
    """The publishers of one client that have confirms to send at the end of the turn: `ClientConnection.flush`."""

    def __init__(self) -> None:
        self.publishers: list[Publisher] = []

    def add(self, publisher: Publisher) -> None:
        """It has some."""
        if not publisher.is_due:
            publisher.is_due = True
            self.publishers.append(publisher)
            publisher.channel.client.mark()


class Publisher:
    """The publishing side of one channel."""

    def __init__(
        self,
        channel: ClientChannel,
        routes: Routes,
        confirms_due: ConfirmsDue,
        cluster: ClusterFacade,
        open_transactions: OpenTransactions,
        large_publishes: LargePublishes,
    ) -> None:
        self.channel: ClientChannel = channel
        self.routes: Routes = routes
        self._client: Client = channel.client
        self._confirms_due: ConfirmsDue = confirms_due
        self._cluster: ClusterFacade = cluster
        self._open_transactions: OpenTransactions = open_transactions
        self._large_publishes: LargePublishes = large_publishes
        self.is_due: bool = False
        """Whether it is among `ConfirmsDue`."""
        self._traffic: ChannelTraffic = channel.traffic
        self._has_published = False
        self.confirms: Confirms | None = None
        self.transaction: Transaction | None = None
        """Set in tx mode: what is published waits there for its commit."""
        self.large_runs: list[LargeRun] = []
        """What `publish` has left for `send_large`."""
        self._refused: list[int] = []
        # Positions within the event, of publishes that are refused by a nack.
        self.stops_behind_large: bool = False
        """Whether `publish` has left off, or would have, behind a large message, which goes alone."""
        self.uncrossed: Sequence[QueueRecord] = ()
        """Queues for which `publish` has left off: they are to be waited for (`Crossings.cross`)."""
        self.waits_for_turn: bool = False
        """Whether `publish` has left off in front of a message that is to be routed in another turn."""

    def publish(self, contents: list[Content], flags: list[int], first: int, fresh: bool) -> int:
        """Publish contents[first:].  The position reached: less than their number if the catalog must be
        brought up to date before the next one, or `uncrossed` queues be waited for, or its turn (`waits_for_turn`).

        `fresh` says that this has just been done.  Raises AmqpError for the first publish
        that is refused; those before it are on their way.  What is in `large_runs` then is
        to be sent by `send_large` before anything else is done.
        """
        routes = self.routes
        routes.renew()
        self.waits_for_turn = False
        known = routes.known
        runs: dict[int, PublishRun] = {}
        run: PublishRun | None = None
        target: Target | None = None
        position = first
        count = len(contents)
        # What a read of a socket completes has one large body at most, and that comes first.
        self.stops_behind_large = (
            first + 1 < count and len(contents[first].body) > self._large_publishes.body_bytes
        )
        if self.stops_behind_large:
            count = first + 1
        waits = self.transaction is not None
        watches = self._traffic.node.watches
        routed = 0
        error: AmqpError | None = None
        try:
            while position < count:
                content = contents[position]
                flag = flags[position]
                route = known.get(content.exchange_and_key)
                header = content.header
                if (
                    route is None
                    or route.only is None
                    or waits
                    or flag & IMMEDIATE
                    or header[FLAGS_AT] & _WITH_CARE
                    or header[FLAGS_AT + 1] & USER_ID
                ):
                    if not self._publish_with_care(content, flag, position, route, runs, fresh):
                        break
                    position += 1
                    continue
                if route.only is not target or run is None:
                    target = route.only
                    run = runs.get(target.shard_id)
                    if run is None:
                        run = runs[target.shard_id] = PublishRun(target.handle)
                run.size_bytes += encode_publish(
                    run.parts, target.queue_ids, NO_TTL, content.exchange_and_key, header, content.body
                )
                run.offsets.append(position)
                if flag & MANDATORY:
                    run.add_mandatory(MandatoryPublish(content, 1))
                routed += len(target.queue_ids)
                if watches:
                    self._watched(watches, content, target.queue_ids)
                position += 1
        except AmqpError as refused:
            error = refused
        if position > first:
            self._count(contents, first, position, routed)
            self._send(runs, first, position, contents[first].body)
        if error is not None:
            raise error
        return position

    def _count(self, contents: list[Content], first: int, end: int, routed: int) -> None:
        traffic = self._traffic
        traffic.receive(contents, first, end)
        traffic.node.routed += routed
        if self.confirms is not None:
            traffic.node.received_confirm += end - first
        if not self._has_published and self.channel.open:
            self._has_published = True
            traffic.node.publishers += 1

    def _watched(self, watches: list[Watch], content: Content, queue_ids: Sequence[int]) -> None:
        client = self._client
        for watch in watches:
            watch.published(client.user, client.name, content, queue_ids)

    def forget(self) -> None:
        """The channel is over."""
        if self._has_published:
            self._has_published = False
            self._traffic.node.publishers -= 1

    def _publish_with_care(
        self,
        content: Content,
        flags: int,
        position: int,
        route: Route | None,
        runs: dict[int, PublishRun],
        fresh: bool,
    ) -> bool:
        """Everything the hot way leaves out.  False: the catalog must be fresh for this one, or see `publish`."""
        if flags & IMMEDIATE:
            raise AmqpError(540, "immediate=true")
        routes = self.routes
        said = meanings_of(content.header)
        may_have_copies = said & COPIES != 0
        if route is None or route.by_headers or route.may_delay or route.wide_copies or may_have_copies:
            if routes.turns.is_over:
                self.waits_for_turn = True
                return False
            if route is not None:
                routes.turns.steps.taken += route.wide_copies
        if route is None:
            try:
                route = routes.find(content)
            except AmqpError as error:
                if error.code != 404 or fresh:
                    raise
                return False
        if content.short_property(REPLY_TO) == REPLY_TO_OCTETS:
            content = self._with_reply_address(content)
        if content.header[FLAGS_AT + 1] & USER_ID:
            self._check_user(content)
        ttl_ms = self._ttl_ms_of(content)
        copies = copies_of(content) if may_have_copies else ()
        stored = self._stored(content) if said & KEPT_APART else content
        route = self._route_by_content(content, said, flags, route, copies)
        if route.read_only is not None:
            # Its name may be another queue's by now.
            return fresh and self._refuse(route.read_only.text, position)
        if route.uncrossed and self.transaction is None:
            self.uncrossed = route.uncrossed
            return False
        due = due_of(content, said, self._cluster.now_ms) if route.schedules else None
        digest = digest_to_change(content) if route.schedules and said & CHANGE else b""
        if digest:
            is_mandatory = flags & MANDATORY != 0
            self._change_scheduled(content, is_mandatory, position, route, runs, digest, due)
            return True
        stream_ttl_ms = NO_TTL
        if route.ttl_floor_ms is not None and said & STREAM_TTL:
            try:
                stream_ttl_ms = stream_ttl_ms_of(content, route.ttl_floor_ms)
            except RefusedTtl as refused:
                if not fresh and route.ttl_floor_ms == NO_FLOOR:
                    return False  # The stream may allow it by now.
                return self._refuse(f"invalid message: {refused}", position)
            if stream_ttl_ms != NO_TTL:
                stored = Content(stored.exchange_and_key, with_ttl(stored.header, stream_ttl_ms), stored.body)
        addresses = _reply_addresses(self._client.vhost, content, copies)
        if not route.targets and not fresh and len(addresses) <= len(copies):
            # Some of its keys are no addresses.
            return False
        if self._traffic.node.watches:
            queue_ids = [queue_id for target in route.targets for queue_id in target.queue_ids]
            self._watched(self._traffic.node.watches, content, queue_ids)
        if addresses:
            self._reply(addresses, Content(stored.exchange_and_key, as_shown(stored.header), stored.body))
        if not route.targets and not flags & MANDATORY:
            if not addresses:
                self._traffic.drop()
        elif self.transaction is not None:
            returned = content if flags & MANDATORY else None
            self.transaction.publish(stored, returned, ttl_ms, routes.queues_of(route), due, stream_ttl_ms)
        elif not route.targets:
            self.send_returns([content])
        recurs = due is not None and due[0] in (RECURRING, RECURRING_ONE)
        mandatory = MandatoryPublish(content, len(route.targets)) if flags & MANDATORY else None
        for target in () if self.transaction is not None else route.targets:
            self._traffic.node.routed += len(target.queue_ids)
            run = _run_to(target, runs)
            # Its queue may be on its way, and refuse what recurs (RULES S6). Without confirms nobody could be told.
            run.guarded = run.guarded or target.guarded or (recurs and self.confirms is not None)
            run.is_taken_whole = run.is_taken_whole or (recurs and self.confirms is None)
            run.size_bytes += encode_content(run.parts, target.queue_ids, ttl_ms, stored, due, stream_ttl_ms)
            run.offsets.append(position)
            if mandatory is not None:
                run.add_mandatory(mandatory)
        return True

    def _refuse(self, text: str, position: int) -> bool:
        """The message is stored nowhere: a nack, or without confirms AmqpError. True: that is all there is to do."""
        if self.confirms is None:
            raise AmqpError(406, text)
        self._refused.append(position)
        return True

    def _ttl_ms_of(self, content: Content) -> int:
        """By its `expiration`; AmqpError for one that is none (RULES T2), or is switched off (X3)."""
        expiration = content.expiration_bytes()
        if expiration is None:
            return NO_TTL
        ttl_ms = expiration_ttl_ms(expiration)
        if isinstance(ttl_ms, Refusal):
            raise as_error(ttl_ms)
        off = self._cluster.catalog.switches.expiration_refusal(self._client.vhost, expiration)
        if off is not None:
            raise as_error(off)
        return ttl_ms

    def _route_by_content(
        self, content: Content, said: int, flags: int, route: Route, copies: tuple[str, ...]
    ) -> Route:
        """Where it goes, if its headers have a say in that; `route` goes by exchange and key."""
        may_delay = route.may_delay
        if route.by_headers or copies:
            route = self.routes.find_by_content(content, copies)
        # One that is mandatory and has no route now is not kept for one that may be there later.
        if may_delay and (
            said & CHANGE or (is_delayed(content, said) and (route.targets or not flags & MANDATORY))
        ):
            waits = route.waiting
            if waits is None:
                waits = route.waiting = self.routes.find_by_content(content, copies, waits=True)
                # What no stream takes as things are is refused now: when it is due, nobody is there to be told (J2).
                waits.ttl_floor_ms = route.ttl_floor_ms
            return waits
        return route

    def _change_scheduled(
        self, content: Content, mandatory: bool, position: int, route: Route, runs: dict[int, PublishRun],
        digest: bytes, due: tuple[int, int] | None,
    ) -> None:  # fmt: skip
        """What waits under an id is cancelled, or `due` at another time (RULES S4)."""
        if self.transaction is not None:
            raise refused_in_transaction()
        targets = [target for target in route.targets if target.schedules]
        change = MandatoryPublish(content, len(targets))
        for target in targets:
            run = _run_to(target, runs)
            run.guarded = True
            command = encode_change_scheduled(target.queue_ids, digest, due or CANCELLED)
            run.parts.append(command)
            run.size_bytes += len(command)
            run.offsets.append(position)
            if mandatory:
                run.add_mandatory(change)

    def _stored(self, content: Content) -> Content:
        """The message as its queues keep it."""
        header = as_stored(content.header)
        if header is content.header:
            return content
        if self._cluster.catalog.level < LEVEL_PUBLISHER_HEADERS:
            # An older node would show all of it.
            header = as_shown(header)
        return Content(content.exchange_and_key, header, content.body)

    def _with_reply_address(self, content: Content) -> Content:
        """The request, with the address of this channel to reply to."""
        address = self.channel.reply_address
        if not address:
            raise AmqpError(406, "fast reply consumer does not exist")
        header = replace_properties(content.header, {REPLY_TO: short_string(address)})
        return Content(content.exchange_and_key, header, content.body)

    def _reply(self, addresses: list[str], content: Content) -> None:
        """Send a direct reply, in tx mode with the commit."""
        for address in addresses:
            if self.transaction is not None:
                self.transaction.add_reply(address, content)
            else:
                self._cluster.reply(address, content)

    def send_returns(self, contents: list[Content]) -> None:
        """Tell the client what was mandatory and came to no queue."""
        channel = self.channel
        self._traffic.return_(len(contents))
        if not contents or not channel.open:
            return  # Another one may have its number now.
        for content in contents:
            self._client.output.send_return(channel.channel_id, 312, "NO_ROUTE", content)
        self._client.mark()

    def begin_transaction(self) -> None:
        """What is published and settled from now on waits for a commit."""
        self.transaction = Transaction(self._open_transactions)

    def end_transaction(self) -> None:
        """Forget what waits for a commit."""
        if self.transaction is not None:
            self.transaction.release()
            self.transaction = None

    def _check_user(self, content: Content) -> None:
        """The user-id property must be the user's own, as RabbitMQ has it."""
        named = content.short_property(USER_ID)
        user = self._client.user
        if named is not None and named != user.encode("utf-8", "surrogateescape"):
            who = self._client.who
            record = who if isinstance(who, TokenUser) else self._cluster.catalog.user(user)
            if record is not None and "impersonator" in record.tags:
                return
            shown = named.decode("utf-8", "replace")
            raise AmqpError(406, f"user_id property set to '{shown}' but authenticated user was '{user}'")

    def send_large(self) -> Steps:
        """Send what is too large to be sent at once: each run in its turn, when the one before is where it belongs."""
        runs, self.large_runs = self.large_runs, []
        line = self._large_publishes
        runs.reverse()
        while runs:
            # The last reference, so that of each nothing is kept when it is done.
            large = runs.pop()
            shard_id, size_bytes = large.run.handle.shard_id, large.run.size_bytes
            yield TurnStep(line, shard_id, size_bytes)
            try:
                yield large
            finally:
                line.leave(shard_id, size_bytes)
            if large.queues_moved != self._cluster.catalog.queues_moved:
                # Whoever has gone over meanwhile has not waited for this.
                self.routes.crossings.forget()

    def _send(self, runs: dict[int, PublishRun], first: int, end: int, body: bytes) -> None:
        """`body`: of the first message."""
        size_bytes = 0
        for run in runs.values():
            size_bytes += run.size_bytes
        large = size_bytes > LARGE_PUBLISH_BYTES
        if size_bytes > self._large_publishes.body_bytes and end - first == 1:
            large = self._go_in_pieces(runs, body) or large
        confirms = self.confirms
        if confirms is None:
            for run in runs.values():
                self._give(run, None, large)
            return
        base = confirms.assign(end - first)
        if len(runs) == 1:
            (run,) = runs.values()
            if len(run.offsets) == end - first:
                done = partial(self._whole_run_done, base, base + end - first - 1)
                self._give(run, done, large)
                return
        for position in self._refused:
            confirms.refuse(base + position - first, base + position - first)
        group = PublishGroup(confirms, base, end - first)
        for run in runs.values():
            if first:
                run.offsets = [offset - first for offset in run.offsets]
            group.expect(run.offsets)
        if self._refused:
            group.leave_out([position - first for position in self._refused])
            self._refused = []
        group.settle_unexpected()
        self._confirms_due.add(self)
        for run in runs.values():
            self._give(run, partial(self._run_done, group, run.offsets), large)

    def _go_in_pieces(self, runs: dict[int, PublishRun], body: bytes) -> bool:
        """Whether the runs of a single message go in pieces."""
        if len(body) <= self._large_publishes.body_bytes or self._cluster.catalog.level < LEVEL_PIECES:
            return False
        for run in runs.values():
            run.in_pieces = True
        return True

    def _give(self, run: PublishRun, done: OnDone | None, large: bool) -> None:
        if run.mandatory is not None and (run.guarded or not run.is_taken_whole):
            run.guarded = True
            done = partial(self._answered, run.mandatory, done)
        if large:
            self.large_runs.append(LargeRun(run, done, self._cluster.catalog.queues_moved))
        else:
            run.send(done)

    def _answered(self, mandatory: MandatoryPart, done: OnDone | None, result: object) -> None:
        """A shard's answer to a run; `done` is told it behind the returns that follow from it."""
        self.send_returns(mandatory.answered(result))
        if done is not None:
            done(result)

    def _whole_run_done(self, first: int, last: int, result: object) -> None:
        confirms = self.confirms
        if confirms is not None:
            base = first
            if result is SESSION_LOST:
                confirms.refuse(first, last)
            elif isinstance(result, Published) and result.refused:
                for position in result.refused:
                    refused = base + position
                    if refused > first:
                        confirms.acknowledge(first, refused - 1)
                    confirms.refuse(refused, refused)
                    first = refused + 1
                if first <= last:
                    confirms.acknowledge(first, last)
            else:
                confirms.acknowledge(first, last)
            self._confirms_due.add(self)

    def _run_done(self, group: PublishGroup, offsets: list[int], result: object) -> None:
        if isinstance(result, Published) and result.refused:
            group.refused.update([offsets[position] for position in result.refused])
        group.settled(offsets, result is SESSION_LOST)
        self._confirms_due.add(self)

    def let_go(self) -> None:
        """The channel has given back what it held: what is still answered finds a closed one, and does not hold it."""
        closed = ClientChannel(self._client, self.channel.channel_id)
        closed.open = False
        self.channel = closed

    @property
    def owes_confirms(self) -> bool:
        """Whether a confirm is still to be sent."""
        confirms = self.confirms
        return confirms is not None and (confirms.lowest_open < confirms.next_sequence or confirms.has_news)

    def send_confirms(self) -> None:
        """Tell the client what was settled since the last call."""
        confirms = self.confirms
        if confirms is None or not confirms.has_news:
            return
        self._traffic.confirm(confirms.acknowledged)
        confirms.acknowledged = 0
        output = self._client.output
        channel_id = self.channel.channel_id
        acks: list[tuple[int, bool]] = []
        nacks: list[tuple[int, bool]] = []
        for sequence, multiple, refused in confirms.take():
            if refused:
                if acks:
                    output.send_confirms(channel_id, acks)
                    acks = []
                nacks.append((sequence, multiple))
            else:
                if nacks:
                    output.send_confirms(channel_id, nacks, nack=True)
                    nacks = []
                acks.append((sequence, multiple))
        if acks:
            output.send_confirms(channel_id, acks)
        if nacks:
            output.send_confirms(channel_id, nacks, nack=True)


def _run_to(target: Target, runs: dict[int, PublishRun]) -> PublishRun:
    """What goes to the target's shard, begun if need be."""
    run = runs.get(target.shard_id)
    if run is None:
        run = runs[target.shard_id] = PublishRun(target.handle)
    return run


def _reply_addresses(vhost: str, content: Content, copies: tuple[str, ...]) -> list[str]:
    """The channels that a message goes to as a direct reply: keys in the default exchange that are addresses of
    channels in that vhost, each once."""
    if content.exchange_and_key[0]:
        return []
    return [key for key in dict.fromkeys((content.routing_key, *copies)) if is_address_in(vhost, key)]
