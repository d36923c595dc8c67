"""Every method of AMQP 0-9-1, once: which input of the state machines it is.

What follows from an input is said in `connection_state.TRANSITIONS` (channel 0) and `channel_state.TRANSITIONS` (all
other channels); what the broker does for RECEIVE_METHOD, RECEIVE_PUBLISH and RECEIVE_SETTLEMENT in
`node/broker/handlers.py`.  Arguments and their order are pamqp's; `methods.py` reads and writes them.
"""

from typing import Final

from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx

from mayfly.node.amqp import channel_state, connection_state

ON_CHANNEL_0: Final[dict[int, int]] = {
    Connection.StartOk.index: connection_state.RECEIVE_START_OK,
    Connection.TuneOk.index: connection_state.RECEIVE_TUNE_OK,
    Connection.Open.index: connection_state.RECEIVE_OPEN,
    Connection.UpdateSecret.index: connection_state.RECEIVE_UPDATE_SECRET,
    Connection.Close.index: connection_state.RECEIVE_CLOSE,
    Connection.CloseOk.index: connection_state.RECEIVE_CLOSE_OK,
    # An answer to a challenge: no mechanism has one.
    Connection.SecureOk.index: connection_state.RECEIVE_OTHER_METHOD,
    # Only a server sends them.
    Connection.Start.index: connection_state.RECEIVE_OTHER_METHOD,
    Connection.Secure.index: connection_state.RECEIVE_OTHER_METHOD,
    Connection.Tune.index: connection_state.RECEIVE_OTHER_METHOD,
    Connection.OpenOk.index: connection_state.RECEIVE_OTHER_METHOD,
    Connection.Blocked.index: connection_state.RECEIVE_OTHER_METHOD,
    Connection.Unblocked.index: connection_state.RECEIVE_OTHER_METHOD,
    Connection.UpdateSecretOk.index: connection_state.RECEIVE_OTHER_METHOD,
}
"""Methods of channel 0; there any other is RECEIVE_OTHER_METHOD as well."""

ON_CHANNELS: Final[dict[int, int]] = {
    Channel.Open.index: channel_state.RECEIVE_OPEN,
    Channel.Close.index: channel_state.RECEIVE_CLOSE,
    Channel.CloseOk.index: channel_state.RECEIVE_CLOSE_OK,
    Channel.Flow.index: channel_state.RECEIVE_FLOW,
    # Read and written without an object of pamqp: frames.py, frame_writer.py.
    Basic.Publish.index: channel_state.RECEIVE_PUBLISH,
    Basic.Ack.index: channel_state.RECEIVE_SETTLEMENT,
    Basic.Nack.index: channel_state.RECEIVE_SETTLEMENT,
    Basic.Reject.index: channel_state.RECEIVE_SETTLEMENT,
    # For the broker.
    Exchange.Declare.index: channel_state.RECEIVE_METHOD,
    Exchange.Delete.index: channel_state.RECEIVE_METHOD,
    Exchange.Bind.index: channel_state.RECEIVE_METHOD,
    Exchange.Unbind.index: channel_state.RECEIVE_METHOD,
    Queue.Declare.index: channel_state.RECEIVE_METHOD,
    Queue.Bind.index: channel_state.RECEIVE_METHOD,
    Queue.Unbind.index: channel_state.RECEIVE_METHOD,
    Queue.Purge.index: channel_state.RECEIVE_METHOD,
    Queue.Delete.index: channel_state.RECEIVE_METHOD,
    Basic.Qos.index: channel_state.RECEIVE_METHOD,
    Basic.Consume.index: channel_state.RECEIVE_METHOD,
    Basic.Cancel.index: channel_state.RECEIVE_METHOD,
    Basic.Get.index: channel_state.RECEIVE_METHOD,
    Basic.Recover.index: channel_state.RECEIVE_METHOD,
    Basic.RecoverAsync.index: channel_state.RECEIVE_METHOD,
    Confirm.Select.index: channel_state.RECEIVE_METHOD,
    Tx.Select.index: channel_state.RECEIVE_METHOD,
    Tx.Commit.index: channel_state.RECEIVE_METHOD,
    Tx.Rollback.index: channel_state.RECEIVE_METHOD,
    # The server never stops the flow, so there is nothing to confirm.
    Channel.FlowOk.index: channel_state.RECEIVE_OTHER_METHOD,
    # Only a server sends them.
    Channel.OpenOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Exchange.DeclareOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Exchange.DeleteOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Exchange.BindOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Exchange.UnbindOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Queue.DeclareOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Queue.BindOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Queue.UnbindOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Queue.PurgeOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Queue.DeleteOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Basic.QosOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Basic.ConsumeOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Basic.CancelOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Basic.Return.index: channel_state.RECEIVE_OTHER_METHOD,
    Basic.Deliver.index: channel_state.RECEIVE_OTHER_METHOD,
    Basic.GetOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Basic.GetEmpty.index: channel_state.RECEIVE_OTHER_METHOD,
    Basic.RecoverOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Confirm.SelectOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Tx.SelectOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Tx.CommitOk.index: channel_state.RECEIVE_OTHER_METHOD,
    Tx.RollbackOk.index: channel_state.RECEIVE_OTHER_METHOD,
}
"""Methods of the other channels; there any other is RECEIVE_OTHER_METHOD as well."""
