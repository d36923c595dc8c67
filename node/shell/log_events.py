"""The names of what nodes log, and of the values in it: for logs as JSON. tests/project/test_log_events.py holds this
against the sources.

A line is found by the text that it is made of. Texts that say nothing by themselves are found by who logs them, too.
"""

from typing import Final, NamedTuple


class LogEvent(NamedTuple):
    """What a line is about, and what its values are called, in their order."""

    name: str
    fields: tuple[str, ...] = ()


def _event(words: str) -> LogEvent:
    name, *fields = words.split()
    return LogEvent(name, tuple(fields))


_EVENTS: Final = {
    # a node's life
    "mayfly %s": "node.starting version",
    "settings: %s": "node.settings settings",
    "this build is three times as slow as one that is compiled: %s": "node.not_compiled reason",
    "open files allowed: %s": "node.open_files allowed",
    "%s (node %d) serves: AMQP %s%s, HTTP %s, peers %s, their frames %s, data in %s": (
        "node.serves name node amqp amqp_tls http peers frames data_dir"
    ),
    "%s: stopping": "node.stopping signal",
    "%s again: stopping already": "node.stopping_already signal",
    "%s again: not waiting any longer": "node.stopping_at_once signal",
    "%s stopped by itself: %s": "node.stopped name reason",
    "%s cannot start: %s%s": "node.cannot_start name reason way_out",
    "%s; it never served, so it gives its data up and joins as a new member": "node.gives_data_up reason",
    "a node that could not start did not end in order": "node.start_not_undone",
    "this node is being removed from the cluster: it drains": "node.removed",
    "defect in the engine": "node.defect",
    "%s has ended": "node.task_ended task",
    "aiomonitor: telnet 127.0.0.1 %d, and http://127.0.0.1:%d": "node.aiomonitor telnet_port http_port",
    "others may read what is in %s, and it is not this user's to change: %s": "node.data_readable folder files",
    "the node's own token can't be written: its hooks need a login: %s": "node.own_token_failed error",
    "certificates %s were read again (%s)": "tls.read_again certificates reason",
    "certificates %s can't be used (%s); those from before stay in use: %s": "tls.unusable certificates reason error",
    "the level of %s is %s": "log.level part level",
    # processes
    "processes = auto, cores = %d: %s": "processes.chosen cores settings",
    "%s of %d is pid %d; HTTP %s, peers %s, data in %s": "processes.started name count pid http peers data_dir",
    "%s; it is started again in %.1f s": "processes.ended end seconds",
    "%s, which means that it must not go on: it is not started again": "processes.ended_for_good end",
    "stopping %s": "processes.stopping names",
    "%s can't be started: %s; it is tried again in %.1f s": "processes.start_failed name error seconds",
    "no process is left": "processes.none_left",
    # clocks, memory, disk
    "the wall clock was set by %+d ms since this machine started; this node goes on with the time it had (delete %s "
    "while it is stopped to have it read the wall clock)": "clock.set ms file",
    "the clock can't be kept in %s: %s": "clock.not_kept folder error",
    "how far clocks are ahead can't be kept in %s: %s": "clock.ahead_not_kept folder error",
    "%s can't be deleted: %s": "clock.not_forgotten file error",
    "most nodes contradict this node's clock; its next start reads the wall clock": "clock.contradicted",
    "publishers are blocked: %s": "alarm.on reasons",
    "publishers go on%s": "alarm.off nothing",
    "%s: the data had format %d and has format %d now": "data.converted file before now",
    "%s is deleted: all that it held was rebuilt": "data.rebuilt file",
    "%s; what this node has promised could be read, all else is rebuilt from the other nodes (the damaged file is %s "
    "until a start that finds all rebuilt)": "data.damaged damage file",
    # members
    "joined cluster %s through %s as node %d (%s)": "cluster.joined cluster through node name",
    "founding the cluster with %s": "cluster.founding founders",
    "can't join through %s yet: %s": "cluster.cannot_join through reason",
    "node %d (%s) at %s joins": "cluster.member_joins node name address",
    "node %d (%s) at %s is new here": "cluster.member_is_new node name address",
    "%s (node %d) is there again, and may vote": "cluster.member_back name node",
    "%s (node %d) has been silent for %d s: others are to vote in its place": "cluster.member_away name node seconds",
    "queue %s of vhost %s moves from shard %d (%d thousandths of a core), which is hot, to shard %d (%d)": (
        "cluster.queue_moves name vhost shard load to_shard to_load"
    ),
    "group %d is left alone: most of its voters are away": "cluster.group_left_alone group",
    "the cluster is at feature level %d%s": "cluster.level level held_back",
    "the feature level was not noted for the next start: %s": "cluster.level_not_noted error",
    "the members were not noted for the next start, tried again: %s": "cluster.members_not_noted_yet error",
    "the members were not noted for the next start: %s": "cluster.members_not_noted error",
    "a question of another node could not be answered": "cluster.question_failed",
    # between nodes
    "listening for peers on port %d, for their frames on port %d": "peers.listening port frames_port",
    "connected to node %d at %s, protocol version %d": "peers.connected node address protocol",
    "lost node %d at %s: %s": "peers.lost node address reason",
    "node %d at %s refuses this node: %s": "peers.refused node address reason",
    "can't reach node %d at %s: %s": "peers.unreachable node address reason",
    "the stream to node %d failed": "peers.stream_failed node",
    "node %d at %s: %s; the connection is closed, and nothing of it used": "peers.damage node address reason",
    "turned away a peer at %s: %s (more of the same are not logged)": "peers.turned_away address reason",
    "a callback of the transport failed": "peers.callback_failed",
    "snapshot of group %d for node %d goes on at byte %d": "snapshot.goes_on group node byte",
    "snapshot of group %d did not reach node %d: %s": "snapshot.failed group node reason",
    "snapshot of group %d for node %d": "snapshot.defect group node",
    "a command of session %s for shard %d: %s": "transient.bad_command session shard error",
    "node %d does not answer for its transient queues": "transient.unanswered node",
    "a notice of kind %d from node %d cannot be read: %s": "transient.bad_notice kind node error",
    "a direct reply from node %d cannot be read: %s": "replies.unreadable node error",
    # clients
    "connection %s: login of %r refused: %s": "connection.login_refused connection user reason",
    "connection %s: another token of %r refused: %s": "connection.token_refused connection user reason",
    "a token was refused over HTTP: %s": "http.token_refused reason",
    "keys of tokens in %s: %s": "tokens.key_left_out where reason",
    "%d keys of tokens are read from %s": "tokens.keys_read count where",
    "a login that waited for keys of tokens failed": "tokens.waiting_failed",
    "keys of tokens can't be had from %s: %s; those from before stay in use: %d": "tokens.no_keys where reason count",
    "connection %s failed": "connection.failed connection",
    "connection %s: %s": "connection.closed connection reason",
    "connection %s has taken nothing for %d s: given up": "connection.stuck connection seconds",
    "connection %s: nothing is heard of its host: given up": "connection.host_lost connection",
    "connection %s does not take its direct replies: dropped": "connection.replies_dropped connection",
    "%d connections are open, %s: %d refused so far": "connection.limit open reason refused",
    "connection %s, channel %d: delivery %d was not acknowledged for %d ms: %s": (
        "channel.consumer_timeout connection channel delivery_tag ms outcome"
    ),
    "delivery to %s failed": "channel.delivery_failed connection",
    "delivery to %s failed: %s": "channel.delivery_unreadable connection error",
    "an operation failed": "channel.operation_failed",
    "an operation failed: %s": "channel.operation_unreadable error",
    "the fate of a clean-up command is unknown": "channel.clean_up_unknown",
    "no connection can be accepted, tried again in %g s: %s": "listener.cannot_accept seconds error",
    "a connection came to nothing: %s": "listener.came_to_nothing error",
    "a connection was gone before it was accepted: %s": "listener.gone_before error",
    "left out: %s": "listener.option_left_out error",
    "%d HTTP connections are open, the limit: %d dropped so far": "http.limit open dropped",
    "answering %s %s failed": "http.failed method path",
    # other clusters
    "mirror %r in vhost %r reads stream %r of cluster %r at %s:%d": (
        "upstream.reads mirror vhost stream cluster host port"
    ),
    "the headers at offset %d of stream %r can't be read, copies get them as they are": (
        "stream.headers_unreadable offset stream"
    ),
    "what cluster %r has sent for mirror %r can't be taken": "upstream.not_taken cluster mirror",
    "the connection of mirror %r to cluster %r has failed": "upstream.failed mirror cluster",
    "mirror %r in vhost %r can't read stream %r of cluster %r now: %s": (
        "upstream.cannot_read mirror vhost stream cluster reason"
    ),
    # queues and definitions
    "%d more queues are gone, reason expired": "queue.more_expired count",
    "queue %r in vhost %r is on brake: %d messages have failed within %d ms": (
        "queue.brake_on queue vhost failed window_ms"
    ),
    "%d more queues are on brake": "queue.more_brakes_on count",
    "queue %r in vhost %r is no longer on brake": "queue.brake_off queue vhost",
    "dead letters of queue %r in vhost %r would go in a circle, and are dropped: back to %s": (
        "queue.dead_letters_in_a_circle queue vhost back_to"
    ),
    "queue %r in vhost %r can't have %r as its journal: %s; what is to be noted there is %s": (
        "queue.no_journal queue vhost journal reason outcome"
    ),
    "the redrive of queue %r in vhost %r can't be read, and is cancelled: %s": "queue.bad_redrive queue vhost reason",
    "messages of the delayed exchange %r in vhost %r have no route when they are due, and are dropped": (
        "exchange.due_without_a_route exchange vhost"
    ),
    "a message that recurs in queue %r can't be given its next time here: %s": "queue.no_next_time queue reason",
    "the regular expression %r matches nothing: %s": "policy.bad_expression expression reason",
    "%s: %d definitions imported": "definitions.imported file count",
    "%s: unchanged since it was loaded": "definitions.unchanged file",
    "load_definitions = %s: %s; loaded then": "definitions.early file reason",
    "load_definitions = %s: %s": "definitions.bad file reason",
    "%s; tried again": "definitions.tried_again reason",
}
_OF_PARTS: Final = {
    ("mayfly.node.duties.lost_queues", "%s"): "queue.expired what",
    ("mayfly.node.command_line.node_command", "%s"): "node.warning what",
    ("mayfly.processes", "%s"): "processes.ended end",
    ("mayfly.node", "%s"): "node.waits_or_warns what",
    ("mayfly.node", "%s: %s"): "definitions.note file note",
    ("mayfly.cluster.store.lmdb_tables", "%s: %s"): "data.mended file what",
}
EVENTS: Final = {text: _event(words) for text, words in _EVENTS.items()}
OF_PARTS: Final = {key: _event(words) for key, words in _OF_PARTS.items()}
RAFT: Final = "raft"
"""What leaders and groups come to: the name is in `LogRecord.event`, the text says it."""


def event_of(part: str, text: str) -> LogEvent | None:
    """Of a line by its logger and the text that it is made of; None for one that is not this product's."""
    return EVENTS.get(text) or OF_PARTS.get((part, text))
