"""Steps that several operations share: finding a queue, and doing something to it
in its shard, although catalog and shard learn of each other's news a little later."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from msgspec.structs import replace

from mayfly.cluster.versions import LEVEL_RIGHTS
from mayfly.node.broker.cluster_facade import SESSION_LOST
from mayfly.node.broker.operation import (
    AmqpError,
    BarrierStep,
    CatalogStep,
    LaterStep,
    Request,
    ShardStep,
    as_error,
    check,
    known,
)
from mayfly.node.broker.operation_channel import OperationChannel
from mayfly.node.catalog import (
    CheckedCommand,
    DeclareQueue,
    OtherRights,
    QueueRecord,
    Refusal,
    RemoveQueues,
    Rights,
    refusals,
)
from mayfly.node.catalog.permissions import Access, check_access, rights_digest
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.limits import DECLARE_ATTEMPTS
from mayfly.node.shard.commands import encode_create_queue
from mayfly.node.shard.results import Gone, Moved

NOT_FOUND: Final = 404


class QueueGone(AmqpError):
    """404: the shard of a queue says that it is gone, and nothing is left of it but its name."""

    def __init__(self, text: str, queue_id: int) -> None:
        super().__init__(NOT_FOUND, text)
        self.queue_id: int = queue_id


class OwnerUnreachable(AmqpError):
    """404: the queue lives on a node that cannot be reached. It may be there all the same."""

    def __init__(self, text: str, queue_id: int) -> None:
        super().__init__(NOT_FOUND, text)
        self.queue_id: int = queue_id


Found = Generator[Request, Any, QueueRecord]
"""Steps that answer a queue."""

Answered = Generator[Request, Any, tuple[QueueRecord, Any]]
"""Steps that answer a queue and what its shard said."""


def submit(
    channel: OperationChannel, command: CheckedCommand, refusal: Callable[[], Refusal | None]
) -> Generator[Request, Any, Any]:
    """Give a client's command to the catalog; answers its result. `refusal()` says, by the catalog here, why the client
    may not have it done, and is asked again as long as the log finds that it was asked of other permissions than those
    that count. A command whose answer is lost is given again, but for that of a new queue: done twice it does no more
    than once."""
    catalog = channel.cluster.catalog
    who = channel.client.who
    answer: Any = None
    for _ in range(DECLARE_ATTEMPTS):
        check(refusal())
        if isinstance(who, str) and catalog.level >= LEVEL_RIGHTS:
            # What a token says stays as it is, and stands in no catalog.
            command = replace(command, rights=Rights(who, rights_digest(catalog, who, command)))
        answer = yield CatalogStep(command)
        if not (isinstance(answer, OtherRights) or (answer is SESSION_LOST and not isinstance(command, DeclareQueue))):
            break
    return answer


def remove_queue(queue_id: int) -> Generator[Request, Any, None]:
    """Take a queue that is gone from its shard out of the catalog."""
    answer: Any = SESSION_LOST
    for _ in range(DECLARE_ATTEMPTS):
        if answer is SESSION_LOST:
            answer = yield CatalogStep(RemoveQueues((queue_id,)))
    known(answer)


def queue_name(channel: OperationChannel, name: str) -> str:
    """The name meant: an empty one is the last queue declared on the channel (AMQP 0-9-1, 1.7.2)."""
    if name:
        return name
    if not channel.last_queue:
        raise AmqpError(NOT_FOUND, "no previously declared queue")
    return channel.last_queue


def find_queue(channel: OperationChannel, name: str, access: Access | None) -> Found:
    """The queue of that name, if the user has this access; refused with 404 or 405 only after the catalog was brought
    up to date."""
    client = channel.client
    cluster = channel.cluster
    _check_use(channel, name, access)
    found = cluster.catalog.find_queue(client.vhost, name, cluster.node_id, client.name)
    if isinstance(found, Refusal):
        known((yield BarrierStep()))
        _check_use(channel, name, access)
        found = cluster.catalog.find_queue(client.vhost, name, cluster.node_id, client.name)
        if isinstance(found, Refusal):
            raise as_error(found)
    return found


def _check_use(channel: OperationChannel, name: str, access: Access | None) -> None:
    if access is not None:
        client = channel.client
        catalog = channel.cluster.catalog
        check(check_access(catalog, client.who, access, "queue", client.vhost, name))


def ask_shard(
    channel: OperationChannel, record: QueueRecord, encode: Callable[[QueueRecord], bytes]
) -> Answered:
    """Give a command to the shard of a queue, also if it has moved since this node has heard of it. Answers the queue
    with the shard where it is, and what that said."""
    catalog = channel.cluster.catalog
    there = record
    while True:
        result = yield ShardStep(there.shard, encode(there))
        if isinstance(result, Moved):
            if result.shard == there.shard:
                yield LaterStep()
            there = replace(record, shard=result.shard)
        elif there is not record and isinstance(result, Gone) and not result.reason:
            # It is still on its way there, unless it was deleted.
            known((yield BarrierStep()))
            if catalog.queue_by_id(record.id) is None:
                return record, result
            yield LaterStep()
            there = catalog.queue_by_id(record.id) or record
            record = there
        else:
            return there, result


def on_queue(
    channel: OperationChannel, name: str, access: Access | None, encode: Callable[[QueueRecord], bytes]
) -> Answered:
    """Give a command to a queue's shard.  Answers the queue and the shard's result, which is
    not Gone: a queue that is gone is looked up again, and refused with 404 (`QueueGone`) if it stays gone.

    `access` is what the user must be allowed, `encode` may raise what there is against it: both are asked at every
    look at the queue, which may be another one then."""
    client = channel.client
    for _ in range(DECLARE_ATTEMPTS):
        record = yield from find_queue(channel, name, access)
        record, result = yield from ask_shard(channel, record, encode)
        if result is SESSION_LOST:
            refuse_unreachable(record)
            continue
        if not isinstance(result, Gone):
            return record, result
        if result.reason:
            known((yield BarrierStep()))
            again = channel.cluster.catalog.queue(client.vhost, name)
            if again is None or again.id == record.id:
                raise QueueGone(refusals.not_found("queue", client.vhost, name).text, record.id)
        else:
            yield from create_missing(channel, record)
    raise as_error(refusals.not_found("queue", client.vhost, name))


def create_missing(channel: OperationChannel, record: QueueRecord) -> Generator[Request, Any, None]:
    """The shard has never heard of a queue that our catalog has: either it was removed and
    our catalog is behind, or whoever declared it has not got round to creating it."""
    known((yield BarrierStep()))
    catalog = channel.cluster.catalog
    if catalog.queue_by_id(record.id) is not None:
        yield ShardStep(record.shard, encode_create_queue(record.id, shard_settings(catalog, record)))


def refuse_unreachable(record: QueueRecord) -> None:
    """Raise 404 if the queue lives on a node that cannot be reached; a replicated one can be asked again."""
    if not record.replicated:
        raise OwnerUnreachable(
            f"home node of queue '{record.name}' in vhost '{record.vhost}' is down or inaccessible", record.id
        )
