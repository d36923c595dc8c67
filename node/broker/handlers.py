"""What the broker does for each method that a client may send on a channel, other than messages and settlements.

The methods are those that `node/amqp/method_table.py` calls RECEIVE_METHOD.  Each function checks, and gives commands
to the catalog or to a queue's shard; what it raises as AmqpError closes the channel or the connection.  basic.publish
is `Publisher.publish` (publishing.py); basic.ack, basic.nack and basic.reject are `Channel.settle` (channel.py).
"""

from __future__ import annotations

from typing import Final

from pamqp.commands import Basic, Confirm, Exchange, Queue, Tx

from mayfly.node.broker.operation_channel import Handler
from mayfly.node.broker.operations import basic, exchange, queue, session

HANDLERS: Final[dict[int, Handler]] = {
    Exchange.Declare.index: exchange.declare,
    Exchange.Delete.index: exchange.delete,
    Exchange.Bind.index: exchange.bind,
    Exchange.Unbind.index: exchange.unbind,
    Queue.Declare.index: queue.declare,
    Queue.Bind.index: queue.bind,
    Queue.Unbind.index: queue.unbind,
    Queue.Purge.index: queue.purge,
    Queue.Delete.index: queue.delete,
    Basic.Qos.index: basic.qos,
    Basic.Consume.index: basic.consume,
    Basic.Cancel.index: basic.cancel,
    Basic.Get.index: basic.get,
    Basic.Recover.index: basic.recover,
    Basic.RecoverAsync.index: basic.recover_async,
    Confirm.Select.index: session.select,
    Tx.Select.index: session.select_transactions,
    Tx.Commit.index: session.commit,
    Tx.Rollback.index: session.roll_back,
}
"""By the method's index."""
