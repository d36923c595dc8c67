"""The settings of one node: every key, its default, its bounds, and what must hold between them.

Where values come from (defaults, TOML file, environment, command line) is in `node.settings.sources`.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from mayfly.cluster.limits import (
    HEARTBEATS_IN_ELECTION_TIMEOUT,
    MAX_SECRET_LENGTH,
    MAX_SECRETS,
    MIN_SECRET_LENGTH,
)
from mayfly.node import limits
from mayfly.node.broker.certificates import LOGIN_FROM, SAN_TYPES
from mayfly.node.oauth.algorithms import ALGORITHMS
from mayfly.node.settings.kinds import (
    LARGEST_PORT,
    Address,
    AddressKind,
    AddressList,
    Choice,
    Folder,
    Kind,
    Number,
    NumberOrAuto,
    OptionalAddress,
    OptionalFile,
    Size,
    Switch,
    Text,
    describe_size,
)
from mayfly.node.version import RABBITMQ_VERSION

T = TypeVar("T")

_KIBI: Final = 1024
_MEBI: Final = 1024**2
_GIBI: Final = 1024**3
_TEBI: Final = 1024**4
# Fewer than this many heartbeats within an election timeout, and one late packet ends a leader's term.
FRAMES_OFFSET: Final = 5_000
MOST_PROCESSES: Final = 64
_ONE_SECRET: Final = f"[!-~]{{{MIN_SECRET_LENGTH},{MAX_SECRET_LENGTH}}}"
_ANY_HOST: Final = ("0.0.0.0", "::", "")


class Problem(NamedTuple):
    """A setting that cannot be used."""

    key: str
    value: object
    origin: str
    """Where the value came from: a file, `environment variable MAYFLY_NAME`, `option --name`."""
    expected: str

    def __str__(self) -> str:
        value = "(hidden)" if is_secret(self.key) else repr(self.value)
        return f"{self.key} = {value} ({self.origin}): expected {self.expected}"


class SettingsError(Exception):
    """Settings that a node cannot start with; the text has one line for each problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class TlsFiles(NamedTuple):
    """PEM files of one side of a TLS connection; the other side's certificate is checked with `authority`."""

    certificate: Path
    key: Path
    authority: Path | None


def _setting(kind: Kind[T], default: T, explanation: str, *, secret: bool = False) -> T:
    metadata = {"kind": kind, "explanation": explanation, "secret": secret}
    return field(default=default, repr=not secret, metadata=metadata)


INTERNAL: Final = "internal"
OAUTH2: Final = "oauth2"
OPEN_PAGES: Final = ("none", "loopback", "metrics", "all")
_NAME: Final = Text(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,62})?", "up to 63 letters, digits, '.', '_' and '-'")
_ADDRESS: Final = AddressKind()
_FILE: Final = OptionalFile()
_SMALLEST_BODY: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """What a node is started with. Immutable; secrets appear in no repr and no log."""

    name: str = _setting(_NAME, "", "how people call the node [default: node1, or by its place in seeds]")
    data_dir: Path = _setting(Folder(), Path("mayfly-data"), "folder for the log and all else that lasts")
    amqp_address: Address = _setting(_ADDRESS, Address("127.0.0.1", 5672), "where AMQP clients connect")
    peer_address: Address = _setting(_ADDRESS, Address("127.0.0.1", 25672), "where the other nodes connect")
    advertised_peer_address: Address | None = _setting(
        OptionalAddress(), None, "how others reach this node, as it stands in seeds [default: peer_address]"
    )
    frames_address: Address | None = _setting(
        OptionalAddress(),
        None,
        f"where the other nodes send their frames [default: the host of peer_address, {FRAMES_OFFSET} ports above]",
    )
    http_address: Address = _setting(_ADDRESS, Address("127.0.0.1", 15672), "health, metrics and status")
    http_tls_address: Address | None = _setting(
        OptionalAddress(), None, "where the same is spoken over TLS, beside http_address [default: none]"
    )
    http_tls_cert: Path | None = _setting(_FILE, None, "certificate there (PEM) [default: amqp_tls_cert]")
    http_tls_key: Path | None = _setting(_FILE, None, "its private key (PEM) [default: amqp_tls_key]")
    http_body_bytes: int = _setting(
        Size(_SMALLEST_BODY, 256 * _MEBI), 20_000_000, "longest body of a request; definitions have 64 MiB"
    )
    http_cors_origins: str = _setting(
        Text(
            r"(\*|(https?://[^\s,*]+)(,https?://[^\s,*]+)*)?",
            "*, or origins such as https://example.org, with commas between",
        ),
        "",
        "pages of which other sites may use the management API from browsers; *: all; none unless it is said",
    )
    http_open_pages: str = _setting(
        Choice(*OPEN_PAGES),
        "loopback",
        "who sees names and counts over HTTP (metrics, status, queues, members, shards) without a login: none; "
        "loopback: this machine; metrics: everybody sees those; all: everybody",
    )
    rabbitmq_version: str = _setting(
        Text(r"[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}", "three numbers with points between, such as 3.13.7"),
        RABBITMQ_VERSION,
        "the version of RabbitMQ that clients and tools are told, and go by",
    )
    processes: int = _setting(
        NumberOrAuto(1, MOST_PROCESSES),
        1,
        "how many nodes to run here as processes: they share clients' addresses, and have other ports each; auto: as "
        "many as there are cores",
    )
    amqp_reuse_port: bool = _setting(
        Switch(), False, "let other nodes on this machine serve the same amqp_address (SO_REUSEPORT)"
    )
    failure_domain: str = _setting(
        Text(r"[^\x00-\x20\x7f]{0,255}", "up to 255 characters, no spaces"),
        "",
        "what this node may be lost together with, as zone/machine or machine: voters of a shard are in different ones "
        "where possible; with a / at its end the machine's host name follows [default: the machine's host name]",
    )
    seeds: tuple[Address, ...] = _setting(
        AddressList(),
        (),
        "peer addresses of the nodes that found the cluster, in the same order on each; none: a single node. "
        "pod-{0..2}:25672 is three",
    )
    join: Address | None = _setting(
        OptionalAddress(),
        None,
        "where a node that is not among the seeds joins at its first start: peer address of a member, or a name with "
        "the addresses of several [default: none]",
    )
    shards: int = _setting(
        Number(1, limits.SHARDS),
        16,
        "with how many Raft groups that hold queues the cluster is founded; stays as it is when shards are added",
    )
    shards_per_node: int = _setting(
        Number(0, limits.SHARDS),
        0,
        "so many shards for each member: the node that leads the catalog adds what is missing when members come, none "
        "is ever taken away; 0: shards are added by operators alone",
    )
    replication_factor: int = _setting(Number(1, 15), 3, "voting replicas of each shard, at most one a node")

    default_user: str = _setting(
        Text(r"[^\x00-\x1f]{1,255}", "a name of 1 to 255 characters"), "guest", "user made at the first start"
    )
    default_pass: str = _setting(
        Text(r"[^\x00]{1,1024}", "1 to 1024 characters"), "guest", "that user's password", secret=True
    )

    auth_backends: str = _setting(
        Choice(INTERNAL, OAUTH2, f"{INTERNAL},{OAUTH2}", f"{OAUTH2},{INTERNAL}"),
        INTERNAL,
        "who may log in: users of the catalog (internal), whom a token of an OAuth 2 provider names (oauth2), or both; "
        "a password that has the form of a token is one",
    )
    oauth2_resource_server_id: str = _setting(
        Text(r"[!-~]{0,255}", "up to 255 characters from ! to ~"),
        "",
        "what this cluster is called where tokens are issued: their aud, and what scopes begin with",
    )
    oauth2_key_file: Path | None = _setting(
        _FILE, None, "the provider's public keys: PEM (keys, certificates) or a JWK set; read again when it changes"
    )
    oauth2_jwks_url: str = _setting(
        Text(
            r"(https://[^\s@]{1,1000}|http://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?(/\S{0,900})?)?",
            "an https:// address, or an http:// one of this machine's loopback",
        ),
        "",
        "where the provider shows its public keys, instead of a file",
    )
    oauth2_jwks_ca: Path | None = _setting(
        _FILE, None, "what the certificate there is checked with (PEM) [default: the system's authorities]"
    )
    oauth2_issuer: str = _setting(
        Text(r"\S{0,1000}", "text without spaces"), "", "what iss of a token must be [default: anything]"
    )
    oauth2_verify_aud: bool = _setting(
        Switch(), True, "whether a token's aud must have the oauth2_resource_server_id in it"
    )
    oauth2_algorithms: str = _setting(
        Text(f"({'|'.join(ALGORITHMS)})(,({'|'.join(ALGORITHMS)}))*", "some of " + ",".join(ALGORITHMS)),
        ",".join(ALGORITHMS),
        "by which of them tokens may be signed",
    )
    oauth2_scope_prefix: str = _setting(
        Text(r"\S{0,255}", "up to 255 characters, no spaces"),
        "",
        "what scopes for this cluster begin with; none: they have no prefix "
        "[default: oauth2_resource_server_id and a point]",
    )
    oauth2_additional_scopes_key: str = _setting(
        Text(r"([^\s]+( [^\s]+)*)?", "names of claims with spaces in between"),
        "",
        "claims with more scopes, as paths such as realm_access.roles, with spaces in between",
    )
    oauth2_scope_aliases: str = _setting(
        Text(r"([^,=]+=[^,=]+(,[^,=]+=[^,=]+)*)?", "such as admin=rabbitmq.tag:administrator rabbitmq.read:*/*,..."),
        "",
        "what scopes or roles stand for: name=scope scope, with commas between names",
    )
    oauth2_preferred_username_claims: str = _setting(
        Text(r"([^,\s]+(,[^,\s]+)*)?", "names of claims with commas between"),
        "",
        "claims with the user's name, before sub and client_id",
    )
    oauth2_leeway_ms: int = _setting(
        Number(0, 600_000, "milliseconds"), 10_000, "by how much the provider's clock may differ from this node's"
    )

    load_definitions: Path | None = _setting(
        _FILE, None, "definitions (RabbitMQ's JSON, as from mayfly export) that are imported at every start"
    )

    feature_level_limit: int = _setting(
        Number(0, 1_000_000),
        0,
        "while a member has this setting the cluster's feature level is not raised above it, and an older release that "
        "knows that can be started again; 0: it is raised when all members know a higher one",
    )

    # Leases are charged for what a leader sees of time, at most GroupClock.LONGEST_LED_STEP_MS a look.
    tick_ms: int = _setting(Number(5, 400, "milliseconds"), 50, "how often consensus looks at the time")
    heartbeat_ms: int = _setting(
        Number(5, 10_000, "milliseconds"),
        100,
        "how often a leader without news shows its followers that it lives; half as often at rest, if "
        "this is at most 250 and at most a sixth of election_timeout_ms",
    )
    election_timeout_ms: int = _setting(
        Number(50, 60_000, "milliseconds"),
        700,
        "after 1 to 2 times this without a word of its leader a follower campaigns",
    )
    session_timeout_ms: int = _setting(
        Number(100, 600_000, "milliseconds"),
        5000,
        "unheard of for this long, a node loses the consumers it serves",
    )
    expiry_tick_ms: int = _setting(
        Number(5, 60_000, "milliseconds"), 250, "on a quiet cluster what is due has gone so much later at the most"
    )
    clock_bound_ms: int = _setting(
        Number(10, 3_600_000, "milliseconds"),
        2000,
        "with a clock this far ahead of its peers a node may not lead",
    )

    drain_notice_ms: int = _setting(
        Number(0, 600_000, "milliseconds"),
        0,
        "how long a node that drains, or was told to stop, says that it is not ready before it does anything else",
    )
    drain_acks_ms: int = _setting(
        Number(0, 600_000, "milliseconds"),
        1000,
        "...and waits for the next acknowledgement before it gives back what its clients hold",
    )
    drain_timeout_ms: int = _setting(
        Number(0, 3_600_000, "milliseconds"),
        5000,
        "...and how long, after the notice, before it closes its clients' connections whatever is under way",
    )

    upstreams_file: Path | None = _setting(
        _FILE,
        None,
        "other clusters of whose streams there may be mirrors (x-upstream): addresses, users, passwords' files",
    )

    max_message_bytes: int = _setting(
        Size(1, limits.MESSAGE_BYTES_MOST),
        limits.MESSAGE_BYTES,
        "a channel on which a message with a larger body is published is closed (406)",
    )
    consumer_timeout_ms: int = _setting(
        Number(0, 31_536_000_000, "milliseconds"),
        limits.CONSUMER_TIMEOUT_MS,
        "a consumer with a delivery unacknowledged for this long is cancelled, or its channel closed (406); 0: never",
    )

    replace_after_ms: int = _setting(
        Number(0, 31_536_000_000, "milliseconds"),
        600_000,
        "a member that is silent for this long is replaced where it votes, by others; it stays a member; 0: never. The "
        "catalog's leader goes by its own value",
    )
    balance_by_load: bool = _setting(
        Switch(),
        True,
        "whether votes and leaders of shards are evened out by load; else every shard counts alike. The catalog's "
        "leader goes by its own value",
    )
    move_hot_queues: bool = _setting(
        Switch(),
        False,
        "whether queues are moved out of shards that are too much load for a node (with balance_by_load); the same on "
        "all nodes",
    )
    replica_move_bytes_per_second: int = _setting(
        Size(0, _TEBI),
        32 * _MEBI,
        "how much of shards' snapshots a node sends in a second, to all others together; 0: no limit",
    )

    cache_bytes: int = _setting(Size(_MEBI, _TEBI), 32 * _MEBI, "memory for recent log entries")
    disk_map_bytes: int = _setting(Size(16 * _MEBI, 64 * _TEBI), 64 * _GIBI, "most that the log may take")
    disk_free_limit_bytes: int = _setting(
        Size(0, _TEBI), 128 * _MEBI, "publishers are blocked while less than this is free on the disk"
    )
    memory_limit_bytes: int = _setting(
        Size(0, _TEBI),
        0,
        "publishers are blocked while this process uses more memory [default: memory_limit_percent]",
    )
    memory_limit_percent: int = _setting(
        Number(0, 100, "percent"),
        60,
        "...or more than this share of what its control group or machine has; 0: no limit",
    )

    compact_bytes: int = _setting(
        Size(64 * _KIBI, _TEBI), limits.COMPACT_BYTES, "a shard's log is compacted when it grew by this much"
    )
    compact_entries: int = _setting(
        Number(100, 10_000_000, "log entries"), limits.COMPACT_ENTRIES, "...or by this many entries"
    )

    peer_tls_cert: Path | None = _setting(_FILE, None, "certificate of this node for other nodes (PEM)")
    peer_tls_key: Path | None = _setting(_FILE, None, "its private key (PEM)")
    peer_tls_ca: Path | None = _setting(_FILE, None, "what certificates of other nodes are checked with")
    cluster_secret: str = _setting(
        Text(
            f"({_ONE_SECRET}( +{_ONE_SECRET}){{0,{MAX_SECRETS - 1}}})?",
            f"{MIN_SECRET_LENGTH} to {MAX_SECRET_LENGTH} characters from ! to ~, or up to {MAX_SECRETS} of these with "
            "space in between",
        ),
        "",
        "what nodes prove to each other before anything else, the same on all; while it is changed both, with a space "
        "in between [default: none]",
        secret=True,
    )
    cluster_secret_file: Path | None = _setting(_FILE, None, "a file with the cluster secret, instead of it")
    cluster_secret_demanded: bool = _setting(
        Switch(),
        True,
        "nodes that do not prove a cluster secret are refused; false while there are some that have none yet",
    )
    amqp_tls_cert: Path | None = _setting(_FILE, None, "certificate for clients (PEM): they speak TLS")
    amqp_tls_key: Path | None = _setting(_FILE, None, "its private key (PEM)")
    amqp_tls_ca: Path | None = _setting(
        _FILE, None, "clients must show a certificate signed by this; with SASL EXTERNAL it says which user they are"
    )
    amqp_tls_address: Address | None = _setting(
        OptionalAddress(), None, "where clients speak TLS; amqp_address stays plain then [default: amqp_address]"
    )
    ssl_cert_login_from: str = _setting(
        Choice(*LOGIN_FROM), LOGIN_FROM[0], "what of a client's certificate is the user's name, for SASL EXTERNAL"
    )
    ssl_cert_login_san_type: str = _setting(
        Choice(*SAN_TYPES), "dns", "which kind of alternative name that is, if it is one"
    )

    aiomonitor: bool = _setting(Switch(), False, "open aiomonitor, a console into the process, on loopback")
    aiomonitor_port: int = _setting(Number(1, 65533), 20101, "port of its console; the next two are used as well")
    log_level: str = _setting(
        Choice("debug", "info", "warning", "error"), "info", "least important lines in the log"
    )
    log_format: str = _setting(
        Choice("text", "json"), "text", "log lines for people, or as JSON with the event's name and its values by name"
    )

    def __post_init__(self) -> None:
        """Fill in the name; raises SettingsError where values contradict each other."""
        problems = [
            str(Problem(key, show(key, getattr(self, key)), "with the other settings", expected))
            for key, expected in self._contradictions()
        ]
        if problems:
            raise SettingsError(problems)
        if not self.name and not self.joins:
            object.__setattr__(self, "name", f"node{self.node_id}")

    @property
    def reachable_peer_address(self) -> Address:
        """The address of this node in `seeds`."""
        return self.advertised_peer_address or self.peer_address

    @property
    def joins(self) -> bool:
        """Whether a node that has no data joins a cluster, instead of beginning one alone or with the other seeds."""
        return self.join is not None and self.reachable_peer_address not in self.seeds

    @property
    def frames_listen_address(self) -> Address:
        """Where frames of other nodes are listened for. They learn the port from this node, and take the host of the
        address under which they reach it."""
        return self.frames_address or frames_address_beside(self.peer_address)

    @property
    def node_id(self) -> int:
        """1 for a single node, else the node's place in `seeds`, counted from 1; 0 for one that joins."""
        if self.joins:
            return 0
        return self.seeds.index(self.reachable_peer_address) + 1 if self.seeds else 1

    @property
    def nodes(self) -> dict[int, Address]:
        """Peer address of every node of the cluster, this one too, by node id."""
        return dict(enumerate(self.seeds or (self.reachable_peer_address,), 1))

    @property
    def peer_tls(self) -> TlsFiles | None:
        """Files for mutual TLS between nodes; None: plain connections."""
        return _tls_files(self.peer_tls_cert, self.peer_tls_key, self.peer_tls_ca)

    @property
    def amqp_tls(self) -> TlsFiles | None:
        """Files for TLS towards clients; None: plain connections."""
        return _tls_files(self.amqp_tls_cert, self.amqp_tls_key, self.amqp_tls_ca)

    @property
    def http_tls(self) -> TlsFiles | None:
        """Files for TLS of the HTTP API; None: there is none."""
        if self.http_tls_address is None:
            return None
        if self.http_tls_cert is None:
            return _tls_files(self.amqp_tls_cert, self.amqp_tls_key, None)
        return _tls_files(self.http_tls_cert, self.http_tls_key, None)

    @property
    def has_tls(self) -> bool:
        """Whether there are certificates that could be replaced."""
        return any(files is not None for files in (self.peer_tls, self.amqp_tls, self.http_tls))

    @property
    def takes_tokens(self) -> bool:
        """Whether tokens of an OAuth 2 provider name users."""
        return OAUTH2 in self.auth_backends.split(",")

    @property
    def takes_passwords(self) -> bool:
        """Whether users of the catalog may log in."""
        return INTERNAL in self.auth_backends.split(",")

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        """(key, what would be right) of every setting that others rule out."""
        if self.heartbeat_ms < self.tick_ms:
            yield "heartbeat_ms", f"at least tick_ms ({self.tick_ms})"
        least = HEARTBEATS_IN_ELECTION_TIMEOUT * self.heartbeat_ms
        if self.election_timeout_ms < least:
            yield "election_timeout_ms", f"at least {least}, {HEARTBEATS_IN_ELECTION_TIMEOUT} x heartbeat_ms"
        if self.session_timeout_ms < self.election_timeout_ms:
            yield "session_timeout_ms", f"at least election_timeout_ms ({self.election_timeout_ms})"
        if 0 < self.replica_move_bytes_per_second < _MEBI:
            yield "replica_move_bytes_per_second", "0 or at least 1MiB: slower snapshots are given up"
        if self.seeds and self.reachable_peer_address not in self.seeds and self.join is None:
            own = self.reachable_peer_address
            text = f"this node's own address among them ({own}); else set advertised_peer_address, or join"
            yield "seeds", text
        elif is_any_host(self.reachable_peer_address.host) and (len(self.seeds) > 1 or self.join is not None):
            yield "advertised_peer_address", "an address that other nodes can connect to"
        if self.join is not None and self.join == self.reachable_peer_address:
            yield "join", "the address of another node"
        if self.cluster_secret and self.cluster_secret_file is not None:
            yield "cluster_secret_file", "nothing, because cluster_secret says it"
        yield from self._address_contradictions()
        yield from self._token_contradictions()
        peer = {"peer_tls_cert": self.peer_tls_cert, "peer_tls_key": self.peer_tls_key}
        yield from _incomplete_tls(peer | {"peer_tls_ca": self.peer_tls_ca})
        amqp = {"amqp_tls_cert": self.amqp_tls_cert, "amqp_tls_key": self.amqp_tls_key}
        yield from _incomplete_tls(amqp, wanted=self.amqp_tls_ca is not None or self.amqp_tls_address is not None)
        http = {"http_tls_cert": self.http_tls_cert, "http_tls_key": self.http_tls_key}
        yield from _incomplete_tls(http, wanted=self.http_tls_address is not None and self.amqp_tls is None)

    def _token_contradictions(self) -> Iterator[tuple[str, str]]:
        if not self.takes_tokens:
            return
        if not self.oauth2_resource_server_id:
            yield "oauth2_resource_server_id", f"a name, because auth_backends = {self.auth_backends}"
        if (self.oauth2_key_file is None) == (not self.oauth2_jwks_url):
            yield "oauth2_key_file", "either this or oauth2_jwks_url: what signatures of tokens are checked with"

    def _address_contradictions(self) -> Iterator[tuple[str, str]]:
        addresses = {key: getattr(self, key) for key in ("amqp_address", "peer_address", "http_address")}
        addresses["frames_address"] = self.frames_listen_address
        if self.amqp_tls_address is not None:
            addresses["amqp_tls_address"] = self.amqp_tls_address
        if self.http_tls_address is not None:
            addresses["http_tls_address"] = self.http_tls_address
        for (key, address), (later, other) in itertools.combinations(addresses.items(), 2):
            if not address.port or address.port != other.port or not hosts_meet(address.host, other.host):
                continue
            if address == other:
                yield later, f"an address other than that of {key}"
            else:
                yield later, f"a port other than that of {key} ({address}): one of the two is for all hosts"

    def describe(self) -> dict[str, str]:
        """All settings as text, for the log and for people; secrets are hidden."""
        shown = {key: show(key, getattr(self, key)) for key in setting_keys()}
        return {key: "(hidden)" if text and is_secret(key) else text for key, text in shown.items()}


def frames_address_beside(peer: Address) -> Address:
    """Where frames are listened for beside this peer address, unless a setting says otherwise."""
    if peer.port == 0:
        return peer
    above = peer.port + FRAMES_OFFSET
    return Address(peer.host, above if above <= LARGEST_PORT else peer.port - FRAMES_OFFSET)


def is_any_host(host: str) -> bool:
    """Whether a node that listens at this host can't be connected to by that name."""
    return host in _ANY_HOST


def hosts_meet(host: str, other: str) -> bool:
    """Whether who listens at one of these hosts has ports of the other, as far as their names tell."""
    return host == other or is_any_host(host) or is_any_host(other)


def setting_keys() -> tuple[str, ...]:
    """The names of all settings, as in a TOML file."""
    return tuple(_FIELDS)


def setting_kind(key: str) -> Kind[object]:
    """What values the setting takes."""
    kind: Kind[object] = _FIELDS[key].metadata["kind"]
    return kind


def setting_help(key: str) -> str:
    """What the setting is for, with its default."""
    explanation: str = _FIELDS[key].metadata["explanation"]
    default = _FIELDS[key].default
    if "[default" in explanation or default is None or default == ():
        return explanation
    return f"{explanation} [default: {show(key, default)}]"


def is_secret(key: str) -> bool:
    """Whether the value may not be shown."""
    return key in _FIELDS and bool(_FIELDS[key].metadata["secret"])


def show(key: str, value: object) -> str:
    """A setting's value as a person would write it."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if type(value) is int and value >= _MEBI and isinstance(setting_kind(key), Size):
        return describe_size(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _tls_files(certificate: Path | None, key: Path | None, authority: Path | None) -> TlsFiles | None:
    return TlsFiles(certificate, key, authority) if certificate and key else None


def _incomplete_tls(files: dict[str, Path | None], wanted: bool = False) -> Iterator[tuple[str, str]]:
    """TLS takes all of the files; with none of them, unless it is wanted, connections are plain."""
    if wanted or any(files.values()):
        for key, path in files.items():
            if path is None:
                yield key, "a file, because TLS takes " + ", ".join(files) + " together"


_FIELDS: Final = {item.name: item for item in fields(NodeSettings)}
