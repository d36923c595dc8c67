"""Classes confirm and tx."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pamqp import commands

from mayfly.cluster.versions import LEVEL_LARGE_DEAD_LETTERS
from mayfly.node.broker.confirms import Confirms
from mayfly.node.broker.large_publishes import TurnStep
from mayfly.node.broker.operation import AmqpError, BarrierStep, PiecesStep, ShardsStep, Steps, known
from mayfly.node.broker.operation_channel import OperationChannel
from mayfly.node.broker.transaction import Transaction
from mayfly.node.broker.unacknowledged import DeliveryHolder
from mayfly.node.shard.results import Applied


def select(channel: OperationChannel, method: Any, arguments: bytes) -> None:
    """confirm.select; a second one changes nothing."""
    if channel.publisher.transaction is not None:
        raise AmqpError(406, "cannot switch from tx to confirm mode")
    if channel.publisher.confirms is None:
        channel.publisher.confirms = Confirms()
    if not method.nowait:
        channel.send(commands.Confirm.SelectOk())


def select_transactions(channel: OperationChannel, method: Any, arguments: bytes) -> None:
    """tx.select; a second one changes nothing."""
    publisher = channel.publisher
    if publisher.confirms is not None:
        raise AmqpError(406, "cannot switch from confirm to tx mode")
    if publisher.transaction is None:
        publisher.begin_transaction()
    channel.send(commands.Tx.SelectOk())


def commit(channel: OperationChannel, method: Any, arguments: bytes) -> Steps:
    """tx.commit: answered when all of it is stored. What was published goes to the queues that have the names now to
    which it was routed.

    What a queue refuses, or nobody knows the fate of, closes the channel with 406, as in RabbitMQ; of the shard that
    refused nothing is done then, and nothing is acknowledged unless all publishes to other shards are stored.
    """
    transaction = _transaction(channel)
    channel.publisher.begin_transaction()
    unacknowledged = channel.unacknowledged
    cluster = channel.cluster
    crossings = channel.node.routes.crossings
    settling: list[DeliveryHolder] = []
    try:
        settling = transaction.holders(unacknowledged)
        if transaction.lacks_queues(cluster.catalog):
            known((yield BarrierStep()))
        # One of them may move once more meanwhile: it is routed to where that leads, so that is waited for as well.
        while uncrossed := crossings.uncrossed(transaction.queues(cluster.catalog)):
            yield from crossings.cross(uncrossed)
        queues_moved = cluster.catalog.queues_moved
        returned = transaction.route(cluster.catalog)
        if channel.open:
            channel.publisher.send_returns(returned)
        _check_complete(transaction.can_settle(unacknowledged))
        yield from _commit_round(channel, transaction, transaction.first_round(unacknowledged))
        _check_complete(transaction.can_settle(unacknowledged))
        yield from _commit_round(channel, transaction, transaction.second_round(unacknowledged))
        if queues_moved != cluster.catalog.queues_moved:
            # Whoever has gone over meanwhile has not waited for this.
            crossings.forget()
    except AmqpError:
        # Its tags are settled for this channel, which ends: what was not done goes back with it.
        channel.give_back(settling)
        raise
    finally:
        transaction.release()
    channel.client.traffic.routed += transaction.routed
    channel.traffic.acknowledge(transaction.acknowledged)
    for address, content in transaction.replies:
        cluster.reply(address, content)
    channel.send(commands.Tx.CommitOk())


def _commit_round(
    channel: OperationChannel, transaction: Transaction, parts: Iterable[tuple[int, bytes]]
) -> Steps:
    """Have the shards do their parts: those that are large in their turn, in pieces, the others behind them at once.
    What is mandatory and came to no queue there is returned."""
    line = channel.node.large_publishes
    in_pieces = channel.cluster.catalog.level >= LEVEL_LARGE_DEAD_LETTERS
    small: list[tuple[int, bytes]] = []
    for shard_id, part in parts:
        if not in_pieces or len(part) <= line.body_bytes:
            small.append((shard_id, part))
            continue
        yield TurnStep(line, shard_id, len(part))
        try:
            result = yield PiecesStep(shard_id, part)
        finally:
            line.leave(shard_id, len(part))
        _check_complete(isinstance(result, Applied))
        channel.publisher.send_returns(transaction.answered(shard_id, result))
    results = yield ShardsStep(small)
    _check_complete(all(isinstance(result, Applied) for result in results))
    for (shard_id, _), result in zip(small, results, strict=True):
        channel.publisher.send_returns(transaction.answered(shard_id, result))


def _check_complete(complete: bool) -> None:
    if not complete:
        raise AmqpError(406, "partial tx completion")


def roll_back(channel: OperationChannel, method: Any, arguments: bytes) -> None:
    """tx.rollback: publishes are forgotten, what was settled is outstanding as before."""
    _transaction(channel).release()
    channel.publisher.begin_transaction()
    channel.send(commands.Tx.RollbackOk())


def _transaction(channel: OperationChannel) -> Transaction:
    transaction = channel.publisher.transaction
    if transaction is None:
        raise AmqpError(406, "channel is not transactional")
    return transaction
