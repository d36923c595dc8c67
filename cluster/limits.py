"""What the cluster layer takes of disk, memory and peers, and times of connections between nodes: value, unit, reason.

How one mechanism paces itself stands at the top of its module (`host`, `leadership`, `leader_balance`, `draining`,
`delayed_appends`, `log_upkeep`, `snapshot_offer`). Limits of Raft groups themselves (message sizes, inflight windows,
uncommitted bytes) are set by the host in each group's `cluster.raft.Config`.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- log on disk ---------------------------------------------------------------------------------------

DEFAULT_MAP_SIZE_BYTES: Final = 64 * GIB
"""Largest size of the log file unless configured. Address space only: the file grows with its content."""

LOG_FILE_STEP_BYTES: Final = 16 * MIB
"""The log file is lengthened in such steps, ahead of use, with its blocks reserved: a full file system shows
before a write begins and not in its middle, a file shorter than its content claims has been cut off by
someone else, and few syncs have to write a new file length."""

LOG_RESERVE_DIVISOR: Final = 32
LOG_RESERVE_MIN_BYTES: Final = 256 * KIB
LOG_RESERVE_MAX_BYTES: Final = 16 * MIB
"""Room that only batches without entries and snapshots may use (a share of the map, within these bounds):
deleting needs pages too, and a store that can't delete can't recover from being full."""

AHEAD_SEGMENT_BYTES: Final = 4 * MIB
"""Size of each of the two write-ahead files of the log: so much is moved into the log file at once, while the other
takes what comes."""

AHEAD_RECORD_MAX_BYTES: Final = 64 * KIB
"""A batch of more payload than this goes to the log file at once: it is worth the syncs of its own, and to write it
twice would cost more."""

LOG_MAP_HELD_BYTES: Final = 8 * MIB
"""After so much was written or read back, the pages of the log's map are let go (see
`cluster.store.map_pages`): much less than a node takes otherwise, much more than a write touches."""

SLOW_BYTES_PER_MS: Final = 20_000
"""20 MB a second: a disk, or a way through the log, that is slower than this counts as one that hangs."""

LARGE_WRITE_BYTES: Final = 4 * MIB
"""What several groups want written is one batch up to this; a group with more is a batch of its own, in turn with all
that is small, so that it waits for one large write at most."""

# --- elections -----------------------------------------------------------------------------------------

HEARTBEATS_IN_ELECTION_TIMEOUT: Final = 3
"""So many there are at least: one may come late."""

# --- one node to another -------------------------------------------------------------------------------

MAX_PEER_MESSAGE_BYTES: Final = 256 * MIB
"""Largest frame or gRPC message taken from a peer: an entry may hold one AMQP message, and those can be large."""

MAX_FRAME_BYTES: Final = 4 * MIB
"""Frames that wait for a write to end are merged up to this size; the rest leaves in the next frame. Larger
ones win nothing (the fixed cost per frame is long amortised) and delay heartbeats behind them."""

NOTICE_PIECE_BYTES: Final = MIB
"""A notice that is larger goes in pieces of this size (`cluster.host.divided_notices`)."""

FEED_PART_BYTES: Final = MIB
"""What a node without a replica is told (`cluster.host.feeding`) travels in notices of about this size; a single larger
message goes alone."""

MAX_PEER_QUEUE_BYTES: Final = 64 * MIB
"""What may wait for one peer, and as much again of what is unordered: a large message of each of three nodes, and room
beside. A slow or frozen peer costs at most this much memory; frames beyond it are dropped, and Raft and the sessions
send again."""

FRAME_STREAM_BUFFER_BYTES: Final = 256 * KIB
"""While more than this waits for the socket of a frame stream, frames are queued and merged. It goes on at a quarter of
it, so that the socket never runs dry."""

MAX_STRANGERS: Final = 32
"""Connections at the peer port that have not shown that they are a member's, and as many at the port for frames. Beyond
it the eldest of the address that has most of them is closed: a member shows it within a round trip or two."""

MAX_STRANGERS_OF_ADDRESS: Final = 16
"""The same for one address (of IPv6: 64 bits of it), so that it takes several to be in the way of others."""

MAX_STRANGER_BYTES: Final = 64 * KIB
"""What a connection at the peer port may send before that: certificates of TLS, a hello, a question for a place. At the
port for frames it is one greeting."""

SNAPSHOT_CHUNK_BYTES: Final = 512 * KIB
"""Size of a piece of a snapshot. Small enough that a heartbeat on the neighbouring stream isn't held up
behind it (4 ms at 1 Gbit/s), large enough that the fixed cost per message (~0.1 ms) is small."""

MAX_SNAPSHOT_BYTES: Final = 8 * GIB
"""Largest snapshot taken from a peer. A claim above it is nonsense or an attack, and refused."""

MAX_SNAPSHOTS_AT_ONCE: Final = 2
"""Snapshots being received at the same time, over all peers and groups: more would only share the disk's speed."""

MAX_SNAPSHOTS_KEPT: Final = 64
"""Groups of which something is kept that has not come whole; the one that rested longest goes first. As many as a node
may ordinarily be sent at once, and few enough that what a peer makes up can't fill the folder with files."""

SNAPSHOT_KEPT_SECONDS: Final = 120.0
"""What came of a snapshot is dropped when nobody has gone on with it for so long. A leader offers the same one for
30 s after the last attempt (`OFFER_KEPT_MS` in cluster.group.snapshot_offer); a node that restarts in between takes
some of this."""

SNAPSHOT_DISK_RESERVE_BYTES: Final = 64 * MIB
"""Room on the disk that a snapshot on its way in has to leave: the log needs it."""

SNAPSHOT_STALL_SECONDS: Final = 30.0
"""A snapshot transfer without progress for so long is given up (and reported as failed to Raft)."""

MAX_ENTRIES_PER_MESSAGE: Final = 1 << 17
MAX_ITEMS_PER_FRAME: Final = 1 << 17
"""Counts in a frame above these are refused: no honest sender comes near, and each item costs memory."""

MAX_CONTEXT_BYTES: Final = 64 * KIB
"""Longest context of a Raft message; ours are below 100 bytes."""

MAX_MEMBERS: Final = 1024
"""Most ids in one list of a membership."""

MAX_GROUP: Final = (1 << 15) - 1
"""Highest number of a group: with it, group and index together fit in one machine integer."""

MAX_INDEX: Final = (1 << 47) - 1
"""Highest log index: four thousand years at a thousand entries a second."""

MAX_TERM: Final = (1 << 62) - 1
"""Highest term, and clock in ms; above it integers would no longer fit the machine's."""

MAX_NAME_LENGTH: Final = 255
"""Longest name of a node or a cluster id, in characters."""

MAX_PEER_TEXT_LENGTH: Final = 500
"""So much of a text that somebody else has made up goes into the log."""

MIN_SECRET_LENGTH: Final = 16
MAX_SECRET_LENGTH: Final = 255
MAX_SECRETS: Final = 4
"""Characters of a cluster secret, and how many a node may know at once: two while one takes another's place. Whoever
connects can try one for each of these and connection; 16 characters made by chance are out of reach."""

# --- connections between nodes (all in seconds unless the name says otherwise) --------------------------

RECONNECT_FIRST_MS: Final = 50
RECONNECT_LAST_MS: Final = 500
"""Pauses between attempts to reach a peer, doubling from the first to the last. Short: a node that restarts
is back in the cluster before an election would end."""

GONE_AFTER_MS: Final = 300
"""A peer whose stream broke has ended if its host refuses connections for this long and no frame comes from it: some
heartbeats, since a firewall's rule, a proxy that starts anew or a service without endpoints may refuse for a moment
what is sent to a process that lives. Well below a second: its clients wait for the end of its sessions."""

CONNECT_TIMEOUT_MS: Final = 3_000
"""An attempt without an answer (packets dropped on the way) is given up after this."""

HELLO_TIMEOUT_SECONDS: Final = 5.0
"""A peer that connected and didn't say hello, prove the secret or show the ticket of its frame stream within this is
turned away."""

JOIN_TIMEOUT_SECONDS: Final = 15.0
"""How long one that asks for a place waits for the answer, and so how long its connection may stay: the catalog may
need an election first."""

ACCEPT_RETRY_SECONDS: Final = 1.0
"""Where a connection can't be accepted (no file descriptors), others have so long to give theirs back."""

REFUSED_RETRY_MS: Final = 5_000
"""Pause after a peer refused us (wrong cluster, unknown node, other version): that has to be mended first."""

KEEPALIVE_INTERVAL_MS: Final = 5_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000
"""HTTP/2 pings on connections between nodes: a peer that is gone without a word (power, cable) is noticed
after at most both together, long after Raft elected anew. A freeze of 2 s tears nothing down."""

STOP_GRACE_SECONDS: Final = 0.5
"""At stop, how long streams get to end by themselves before they are cut."""
