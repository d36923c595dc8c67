"""What a node above consensus takes of memory, of clients and into one entry of a log: value, unit, reason.

How one duty paces itself stands at the top of its module (`node.duties`, `node.broker`, `node.shell.catching_up`). The
limits of the layer below are in `cluster.limits`.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- commands on their way into a group ------------------------------------------------------------------

SESSION_WINDOW: Final = 4
"""Batches of one node under way to one group. More would make batches smaller, fewer would leave the leader idle."""

ACKS_HELD_MS: Final = 5
"""How long acknowledgements may wait for other commands of the same shard to go with: alone they cost an entry, with
its writes on every node. A client that vanishes meanwhile has them count; a node that dies has them delivered again."""

BATCH_BYTES: Final = 512 * KIB
"""A batch is closed at this size: below it, the longer the way takes, the larger batches become by themselves."""

ENTRY_BYTES: Final = 1 * MIB
"""Largest log entry made of several batches. A single larger message still makes one entry."""

INFLIGHT_BYTES: Final = 4 * MIB
"""Entries under way to one follower of one group, which may come to write all of them at once; one alone may be
larger."""

PENDING_BYTES_HIGH: Final = 64 * MIB
"""Commands given and not yet applied, over all groups, above which publishers are not read from."""

PENDING_BYTES_LOW: Final = 16 * MIB
"""...and below which they are again."""

TRANSIENT_BYTES_HIGH: Final = 512 * MIB
"""Messages in this node's transient queues, which live in memory alone, above which publishers are not read from."""

TRANSIENT_BYTES_LOW: Final = 384 * MIB
"""...and below which they are again."""

LARGE_PUBLISH_BYTES: Final = 4 * MIB
"""What one channel has published at once goes to its shards one after the other if it is larger, counted for each
shard: far above what one read of a socket brings for a few queues."""

LARGE_BODY_BYTES: Final = MIB
"""A message with a larger body goes this way in any case, and in pieces (`cluster.group.pieces`): no write, frame or
turn has more than some of them."""

LARGE_PUBLISHES_BYTES: Final = 32 * MIB
"""Of that so much is under way from one node at a time, or two that are larger: so one that waits for a shard without a
leader does not stop all others."""

LARGE_TRANSFERS_BYTES: Final = 64 * MIB
"""Of large dead letters, and of large messages of queues that move, those to one shard are on their way from a node at
a time, and beside them those to shards that have lost their leader, which are in memory for as long: together so much,
or one."""

LARGE_TRANSFERS_AHEAD_PIECES: Final = 8
"""Of those to one shard so many pieces are given to the session, or one item: the next ones are there when the last
pieces of the first have gone. Of a larger one the octets take far longer than the way."""

# --- shards ----------------------------------------------------------------------------------------------

SHARDS: Final = 1024
"""Of one cluster. Every node has a replica, a session and timers of each, and its leader tells every peer of it with
each heartbeat. Their numbers would go further: 15 bits of a group (`cluster.limits.MAX_GROUP`), then come the shards
in nodes' memory. The log decides by it: another number needs a feature level."""

# --- routing ---------------------------------------------------------------------------------------------

ROUTING_WEIGHT: Final = 2**19
"""Words of topic patterns, but for those without wildcards or with one `#` at the end alone, and fields that bindings
of headers exchanges look at, in all exchanges of a vhost: 170 000 bindings such as `*.orange.*`. Patterns made to be
slow take some 10 ms for a key of 128 words then, and 0.2 s for the first; how many such messages are routed in a turn
ROUTING_STEPS_PER_TURN says. The log decides by it: another number needs a feature level."""

ROUTING_STEPS_PER_TURN: Final = 20_000
"""Steps (`catalog.routing_steps`) after which publishes and dead letters wait for the next turn of the node: some 10
ms. Ordinary messages take a few each."""

ROUTING_STEPS_OF_MESSAGE: Final = 2**20
"""Steps after which one message has no route: half a second, in which nobody else has a turn. Patterns alone, with as
many long keys in CC as there may be, come to half of it; hundreds of exchanges, with thousands of keys, to more."""

WIDE_ROUTE_QUEUES: Final = 64
"""A message that goes to more queues takes a step for each, also when its route is remembered."""

COPIES_CHARACTERS: Final = 8192
"""Of the routing keys in the CC and BCC headers of one message, one more for each: some hundred keys. Each is routed as
a message is, by topic exchanges in a step for each word."""

# --- the log ---------------------------------------------------------------------------------------------

COMPACT_BYTES: Final = 32 * MIB
"""A group's log is compacted when this much was added since the last time (a leader waits for lagging members up to
four times this)."""

COMPACT_ENTRIES: Final = 20_000
"""...or this many entries: terms are kept in memory."""

# --- dead letters ----------------------------------------------------------------------------------------

DEAD_LETTERS_PER_ENTRY: Final = 1000
"""Decisions in one ROUTE, messages in one TRANSFER: bounds the time one entry takes to apply (RULES C4)."""

DEAD_LETTERS_ROUTED_AHEAD: Final = 4000
"""Deaths of one shard decided about while an earlier decision is still on its way through the log."""

DEAD_LETTERS_UNDER_WAY: Final = 8000
"""Messages of one lane sent and not yet seen committed in the target."""

REDRIVE_LOOKS: Final = 250
"""Messages of a redriven queue that its leader looks at in one go: their headers are read, some milliseconds."""

TRANSFER_BYTES: Final = 512 * KIB
"""Contents in one ROUTE or TRANSFER."""

# --- bindings --------------------------------------------------------------------------------------------

HASHES_OF_TOPIC_KEY: Final = 2
"""Words `#` of a binding's key at a topic exchange, as in RabbitMQ 4.3; bindings that are there already stay."""

# --- policies --------------------------------------------------------------------------------------------

POLICIES: Final = 1000
"""Policies of one vhost, and operator policies as many: a name is held against all of them, in a microsecond or a few
each."""

POLICY_STEPS: Final = 2**22
"""What all patterns of a vhost may take to be made ready, at every start of a node: a second or two. An ordinary one
takes some hundred steps, a millisecond at most."""

SEARCHES_PER_TICK: Final = 16_384
"""Patterns held against names when the leader of a shard compares its queues with the catalog: some 20 ms."""

QUEUES_COMPARED_PER_TICK: Final = 500
"""Queues of one shard that its leader compares with the catalog in a tick at least: a millisecond..."""

QUEUES_COMPARED_PER_TICK_AT_MOST: Final = 4000
"""...and at most: some milliseconds, for a shard with so many queues that a fifth of them would be more."""

QUEUES_UPDATED_PER_ENTRY: Final = 2000
"""Queues of one shard that one command gives new settings: about a millisecond (RULES C4)."""

MESSAGES_TOUCHED_PER_ENTRY: Final = 4096
"""Messages ready in the queues that one command gives new settings, those of its last queue aside: lower limits and
other deadlines count for them (RULES C4). What is deep inside a long queue costs next to nothing."""

# --- a full disk ------------------------------------------------------------------------------------------

NO_ROOM_AFTER_MS: Final = 2_000
"""A node whose log had no room for so long, over several attempts, is not ready, and its clients are told so: what was
released may have given its room back within the first of them."""

# --- queues that go --------------------------------------------------------------------------------------

QUEUES_BURIED_PER_COMMAND: Final = 1000
"""Deleted queues of one shard that one command takes out of the catalog: a few milliseconds (RULES C4)."""

# --- queues of nodes that cannot be reached --------------------------------------------------------------

OWNER_LATE_MS: Final = 2_000
"""A declare of such a queue waits so much longer than the session timeout: the cluster may need an election first."""

OWNER_SETTLED_MS: Final = 1_000
"""A node that came up so recently may have begun anew and not have said so yet: its old queues are still known."""

# --- AMQP clients ----------------------------------------------------------------------------------------

CONSUMER_TIMEOUT_MS: Final = 1_800_000
"""How long a delivery may be unacknowledged before its channel is closed, unless set otherwise: as in RabbitMQ."""

CONSUMER_TIMEOUT_LOOKS: Final = 60
"""A channel is looked at so often within this time: every 30 s. So it is kept to within two of these, a minute."""

HANDSHAKE_SECONDS: Final = 10.0
"""From the first byte to connection.open-ok."""

CLOSE_OK_SECONDS: Final = 5.0
"""How long a client may take to answer connection.close."""

FAREWELL_BYTES: Final = 64 * MIB
"""What a client may have sent behind its connection.close: read and dropped for up to CLOSE_OK_SECONDS, since a socket
that is closed with input unread is reset, and its close-ok lost."""

FAREWELL_SILENCE_SECONDS: Final = 0.25
"""Over TLS, which can't end one direction alone: how long nothing must have come before the socket is closed."""

CONNECTIONS: Final = 50_000
"""Connections on one node, fewer where the system allows fewer open files (`node.shell.open_files`)."""

SURPLUS_CONNECTIONS: Final = 32
"""So many beyond that may log in to be told so (530); those beyond these are closed without a word."""

LOGIN_FAILURES_FREE: Final = 3
"""Failed logins of one user from one address that slow nothing: typing errors."""

LOGIN_FAILURES_FREE_OF_ORIGIN: Final = 16
"""Failed logins from one address, of whomever, that slow nobody else there: behind a load balancer all have one."""

LOGIN_DELAY_FIRST_MS: Final = 500
"""How long the next login waits. It doubles with each further failure..."""

LOGIN_DELAY_MOST_MS: Final = 4_000
"""...up to this: less than a handshake may take."""

LOGIN_FAILURES_KEPT_MS: Final = 60_000
"""Failures are forgotten after so long without one."""

LOGIN_ADDRESSES: Final = 4_096
"""Addresses of failed logins that are remembered, as many users with their addresses, and as many that succeeded: some
MiB."""

TOKEN_BYTES: Final = 32 * KIB
"""Of a token of an OAuth 2 provider. It comes in one frame, before sizes of frames are agreed."""

TOKEN_FRAME_BYTES: Final = 40 * KIB
"""The largest frame before that, where tokens are taken: a token, and what a client says of itself."""

TOKEN_HEADER_BYTES: Final = 48 * KIB
"""Of one header of an HTTP request, where tokens are taken: as a password a token is encoded once more."""

TOKEN_SCOPES: Final = 2_048
"""Scopes of one token that are for this broker, as in RabbitMQ: each is looked at where something is allowed or not."""

TOKEN_SCOPE_CHARACTERS: Final = 4_096
"""Longer scopes count for nothing: no name and no routing key has more than 255 octets."""

TOKEN_NAME_BYTES: Final = 255
"""Of the name of a token's user: what AMQP's user-id can hold."""

SIGNING_KEYS: Final = 64
"""Of one provider."""

SIGNING_KEYS_BYTES: Final = 256 * KIB
"""The longest file or answer with them."""

LOGIN_NAME_CHARACTERS: Final = 255
"""So much of a user's name is remembered with a failure; nobody's is longer."""

LOGINS_WAITING: Final = 8
"""Logins of one user from one address that may wait at once; further ones are refused. With the delay: two guesses a
second."""

LOGINS_WAITING_OF_ORIGIN: Final = 32
"""The same for all users from one address together."""

PASSWORD_CHECKS_OF_ORIGIN: Final = 4
"""Passwords from one address that are with the threads at once; the others stand in line behind them, so that the first
failures count before the next guess is looked at, and other addresses get their turn."""

PASSWORD_CHECKS_WAITING: Final = 256
"""Logins from one address that stand in line for a check, and checks given to the threads from all addresses; further
logins are refused. About as many as can be checked within the time that a handshake may take."""

PASSWORD_LINES_MOST: Final = 4_096
"""Logins from all addresses that stand in line."""

OUTPUT_HIGH_WATER_BYTES: Final = 4 * MIB
"""Unsent bytes of one connection above which its consumers are paused."""

OUTPUT_LOW_WATER_BYTES: Final = 1 * MIB
"""Unsent bytes of one connection below which its consumers go on."""

OUTPUT_PART_BYTES: Final = MIB
"""A larger body leaves in parts of about this size, one in each turn of the node: what is copied, and written, of it
takes a ms or two."""

OUTPUT_FULL_BYTES: Final = 16 * MIB
"""Unsent bytes of one connection above which it is not read from: what it asks for would be answered with more. Clients
that send without reading get so many confirms and answers ahead."""

CONSUMER_WINDOW_BYTES: Final = 8 * MIB
"""What a shard may give one consumer, as `Message.counted_bytes` counts, before its node has said that some of that was
taken: also when that node lags behind. It is said for each quarter, so that 6 MiB last for a round trip: 70 ms of the
fastest queue. Each ATTACH carries its own, so another number here needs no feature level."""

CONNECTION_WINDOWS_BYTES: Final = 16 * MIB
"""Of a connection with several consumers the n-th to come gets the n-th part of this, if that is less..."""

CONSUMER_WINDOW_LEAST_BYTES: Final = 128 * KIB
"""...but no less than this: a hundred messages of 1 KB in a round trip."""

CONSUMER_WINDOWS_BYTES: Final = 512 * MIB
"""The windows of all consumers of a node: what those that take nothing may have waiting in its memory..."""

CONSUMER_WINDOWS_PERCENT: Final = 10
"""...and no more than this share of its memory limit..."""

CONSUMER_WINDOW_LAST_BYTES: Final = 16 * KIB
"""...but for this, which each has when all of that is used up: it is enough for a message at a time."""

OUTPUT_STALL_SECONDS: Final = 300.0
"""A client that takes nothing of what waits for it is given up after this. One that agreed on heartbeats and does not
send them goes sooner; RabbitMQ has heartbeats alone."""

HTTP_CONNECTIONS: Final = 256
"""Connections to the HTTP port of one node: some hundred monitors and operators, and few enough to leave descriptors to
clients, nodes and the log where a process may have 1024."""

HTTP_FIRST_REQUEST_SECONDS: Final = 10.0
"""From the connection to the end of the first request's header."""

HTTP_KEEPALIVE_SECONDS: Final = 75.0
"""From an answer to the end of the next request's header: longer than the minute that is customary between looks."""

KEEPALIVE_IDLE_SECONDS: Final = 60
"""TCP asks whether the other side is there after so much silence: for clients without heartbeats..."""

KEEPALIVE_INTERVAL_SECONDS: Final = 15
"""...then so often..."""

KEEPALIVE_PROBES: Final = 4
"""...and this many times."""

WAITING_EVENTS_BYTES: Final = 8 * MIB
"""What may be under way and wait behind it on one connection, as `node.broker.waiting_events` counts: above it the
connection is not read."""

WAITING_EVENTS_OF_NODE_BYTES: Final = 64 * MIB
"""The same of all connections of a node, above which those with more than WAITING_EVENTS_LEAST_BYTES are not read..."""

WAITING_EVENTS_OF_NODE_LOW_BYTES: Final = 48 * MIB
"""...and below which they are again."""

WAITING_EVENTS_LEAST_BYTES: Final = 64 * KIB
"""What every connection may have waiting, also while there is an alarm, the cluster is slow to take commands, or others
have too much: a consumer that starts anew, to empty what has caused the alarm, declares its queues first."""

ARGUMENTS_BYTES: Final = 16 * KIB
"""Octets of the arguments of one method (a queue's, an exchange's, a binding's, a consumer's), of a definition of a
policy, and of a user's tags, each about as AMQP encodes it. Every node keeps them in memory, logs and snapshots."""

ARGUMENT_VALUES: Final = 256
"""Values in them, those inside of tables and arrays as well: each takes up to 261 octets of memory once decoded."""

MADE_IN_ALARM: Final = 1_000
"""Queues, exchanges and bindings that one user may make through one node while an alarm is on. Some, since who comes to
empty queues may need some of his own; not any number, since they are what takes memory and disk."""

ROUTES_CACHED: Final = 20_000
"""Remembered routes per vhost and user."""

ROUTES_CACHED_OF_TOKEN: Final = 500
"""The same of a connection that came by a token: it shares them with no other, and there may be many thousand."""

MESSAGE_BYTES: Final = 16 * MIB
"""The body of a message, unless set otherwise: as in RabbitMQ 4."""

MESSAGE_BYTES_MOST: Final = 128 * MIB
"""What can be set for it."""

TRANSACTION_BYTES: Final = 128 * MIB
"""What one transaction of a channel holds: as much as one message may have at most. It waits in memory for the commit,
and what is for one shard makes one log entry."""

TRANSACTION_STEPS: Final = 20_000
"""Messages given to queues and acknowledgements of one transaction: bounds the time that its entry takes to apply
(RULES C4)."""

TRANSACTION_STEP_BYTES: Final = 200
"""What each publish, return, direct reply and acknowledgement counts for, besides its octets."""

UNFINISHED_BYTES_OF_CONNECTION: Final = 256 * MIB
"""What may have come, on one connection, of messages whose rest is still to come: two of the largest there may be."""

UNFINISHED_BYTES: Final = 1024 * MIB
"""The same on all connections of one node..."""

UNFINISHED_PERCENT: Final = 25
"""...and no more than this share of its memory limit."""

OPEN_TRANSACTIONS_BYTES: Final = 256 * MIB
"""What all open transactions of one node hold..."""

OPEN_TRANSACTIONS_PERCENT: Final = 25
"""...and no more than this share of its memory limit."""

OPEN_TRANSACTIONS_ALARM_PERCENT: Final = 10
"""How much of that they may hold while there is an alarm: who is not read cannot commit, so what waits for a commit
must not be what keeps the alarm on."""

DECLARE_ATTEMPTS: Final = 8
"""How often a declare starts again when the queue was deleted under it, or another operation when its home was lost."""


def open_transactions_bytes(memory_limit_bytes: int) -> int:
    """What all open transactions of a node with this memory limit (0: none) may hold."""
    if not memory_limit_bytes:
        return OPEN_TRANSACTIONS_BYTES
    return min(OPEN_TRANSACTIONS_BYTES, memory_limit_bytes * OPEN_TRANSACTIONS_PERCENT // 100)


def consumer_windows_bytes(memory_limit_bytes: int) -> int:
    """What the windows of all consumers of a node with this memory limit (0: none) may be."""
    if not memory_limit_bytes:
        return CONSUMER_WINDOWS_BYTES
    return min(CONSUMER_WINDOWS_BYTES, memory_limit_bytes * CONSUMER_WINDOWS_PERCENT // 100)


def unfinished_bytes(memory_limit_bytes: int) -> int:
    """What may have come of unfinished messages on a node with this memory limit (0: none)."""
    if not memory_limit_bytes:
        return UNFINISHED_BYTES
    return min(UNFINISHED_BYTES, memory_limit_bytes * UNFINISHED_PERCENT // 100)
