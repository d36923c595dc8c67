from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProofStep(_message.Message):
    __slots__ = ("nonce", "node_id", "store", "target", "address", "without_secret", "proofs")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_SECRET_FIELD_NUMBER: _ClassVar[int]
    PROOFS_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    node_id: int
    store: str
    target: int
    address: str
    without_secret: bool
    proofs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, nonce: _Optional[bytes] = ..., node_id: _Optional[int] = ..., store: _Optional[str] = ..., target: _Optional[int] = ..., address: _Optional[str] = ..., without_secret: _Optional[bool] = ..., proofs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("protocol_version", "highest_protocol_version", "lowest_level", "highest_level", "name", "address", "store", "cluster", "founder")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOWEST_LEVEL_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_LEVEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    FOUNDER_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    highest_protocol_version: int
    lowest_level: int
    highest_level: int
    name: str
    address: str
    store: str
    cluster: str
    founder: int
    def __init__(self, protocol_version: _Optional[int] = ..., highest_protocol_version: _Optional[int] = ..., lowest_level: _Optional[int] = ..., highest_level: _Optional[int] = ..., name: _Optional[str] = ..., address: _Optional[str] = ..., store: _Optional[str] = ..., cluster: _Optional[str] = ..., founder: _Optional[int] = ...) -> None: ...

class JoinAnswer(_message.Message):
    __slots__ = ("refusal", "again", "node_id", "node_name", "cluster_id", "shards", "replication_factor", "members_version", "members", "stance", "store")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_VERSION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    STANCE_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    refusal: str
    again: bool
    node_id: int
    node_name: str
    cluster_id: str
    shards: int
    replication_factor: int
    members_version: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    stance: str
    store: str
    def __init__(self, refusal: _Optional[str] = ..., again: _Optional[bool] = ..., node_id: _Optional[int] = ..., node_name: _Optional[str] = ..., cluster_id: _Optional[str] = ..., shards: _Optional[int] = ..., replication_factor: _Optional[int] = ..., members_version: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., stance: _Optional[str] = ..., store: _Optional[str] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("node_id", "name", "address")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    node_id: int
    name: str
    address: str
    def __init__(self, node_id: _Optional[int] = ..., name: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_version", "highest_protocol_version", "lowest_level", "highest_level", "node_id", "node_name", "cluster_id", "store", "starts", "previous", "earlier_starts", "address", "target")
    PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_PROTOCOL_VERSION_FIELD_NUMBER: _ClassVar[int]
    LOWEST_LEVEL_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_LEVEL_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_NAME_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    EARLIER_STARTS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    protocol_version: int
    highest_protocol_version: int
    lowest_level: int
    highest_level: int
    node_id: int
    node_name: str
    cluster_id: str
    store: str
    starts: int
    previous: int
    earlier_starts: _containers.RepeatedScalarFieldContainer[int]
    address: str
    target: int
    def __init__(self, protocol_version: _Optional[int] = ..., highest_protocol_version: _Optional[int] = ..., lowest_level: _Optional[int] = ..., highest_level: _Optional[int] = ..., node_id: _Optional[int] = ..., node_name: _Optional[str] = ..., cluster_id: _Optional[str] = ..., store: _Optional[str] = ..., starts: _Optional[int] = ..., previous: _Optional[int] = ..., earlier_starts: _Optional[_Iterable[int]] = ..., address: _Optional[str] = ..., target: _Optional[int] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("clock_ms", "raft", "group_clocks", "proposals", "notices", "hello")
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    RAFT_FIELD_NUMBER: _ClassVar[int]
    GROUP_CLOCKS_FIELD_NUMBER: _ClassVar[int]
    PROPOSALS_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    clock_ms: int
    raft: _containers.RepeatedCompositeFieldContainer[GroupMessage]
    group_clocks: _containers.RepeatedCompositeFieldContainer[GroupClock]
    proposals: _containers.RepeatedCompositeFieldContainer[Proposal]
    notices: _containers.RepeatedCompositeFieldContainer[Notice]
    hello: Hello
    def __init__(self, clock_ms: _Optional[int] = ..., raft: _Optional[_Iterable[_Union[GroupMessage, _Mapping]]] = ..., group_clocks: _Optional[_Iterable[_Union[GroupClock, _Mapping]]] = ..., proposals: _Optional[_Iterable[_Union[Proposal, _Mapping]]] = ..., notices: _Optional[_Iterable[_Union[Notice, _Mapping]]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ...) -> None: ...

class GroupMessage(_message.Message):
    __slots__ = ("group", "type", "term", "log_term", "index", "commit", "vote", "reject", "reject_hint", "context", "entries")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    LOG_TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    VOTE_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    REJECT_HINT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    group: int
    type: int
    term: int
    log_term: int
    index: int
    commit: int
    vote: int
    reject: bool
    reject_hint: int
    context: bytes
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    def __init__(self, group: _Optional[int] = ..., type: _Optional[int] = ..., term: _Optional[int] = ..., log_term: _Optional[int] = ..., index: _Optional[int] = ..., commit: _Optional[int] = ..., vote: _Optional[int] = ..., reject: _Optional[bool] = ..., reject_hint: _Optional[int] = ..., context: _Optional[bytes] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("term", "index", "type", "data")
    TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    term: int
    index: int
    type: int
    data: bytes
    def __init__(self, term: _Optional[int] = ..., index: _Optional[int] = ..., type: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class GroupClock(_message.Message):
    __slots__ = ("group", "time_ms", "led_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LED_MS_FIELD_NUMBER: _ClassVar[int]
    group: int
    time_ms: int
    led_ms: int
    def __init__(self, group: _Optional[int] = ..., time_ms: _Optional[int] = ..., led_ms: _Optional[int] = ...) -> None: ...

class Proposal(_message.Message):
    __slots__ = ("group", "envelope")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    group: int
    envelope: bytes
    def __init__(self, group: _Optional[int] = ..., envelope: _Optional[bytes] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("kind", "data")
    KIND_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    kind: int
    data: bytes
    def __init__(self, kind: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ConfState(_message.Message):
    __slots__ = ("voters", "learners", "voters_outgoing", "learners_next", "auto_leave")
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    VOTERS_OUTGOING_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_NEXT_FIELD_NUMBER: _ClassVar[int]
    AUTO_LEAVE_FIELD_NUMBER: _ClassVar[int]
    voters: _containers.RepeatedScalarFieldContainer[int]
    learners: _containers.RepeatedScalarFieldContainer[int]
    voters_outgoing: _containers.RepeatedScalarFieldContainer[int]
    learners_next: _containers.RepeatedScalarFieldContainer[int]
    auto_leave: bool
    def __init__(self, voters: _Optional[_Iterable[int]] = ..., learners: _Optional[_Iterable[int]] = ..., voters_outgoing: _Optional[_Iterable[int]] = ..., learners_next: _Optional[_Iterable[int]] = ..., auto_leave: _Optional[bool] = ...) -> None: ...

class SnapshotMetadata(_message.Message):
    __slots__ = ("index", "term", "conf_state")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CONF_STATE_FIELD_NUMBER: _ClassVar[int]
    index: int
    term: int
    conf_state: ConfState
    def __init__(self, index: _Optional[int] = ..., term: _Optional[int] = ..., conf_state: _Optional[_Union[ConfState, _Mapping]] = ...) -> None: ...

class SnapshotHeader(_message.Message):
    __slots__ = ("hello", "message", "metadata", "total_bytes", "digest")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    message: GroupMessage
    metadata: SnapshotMetadata
    total_bytes: int
    digest: bytes
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., message: _Optional[_Union[GroupMessage, _Mapping]] = ..., metadata: _Optional[_Union[SnapshotMetadata, _Mapping]] = ..., total_bytes: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class SnapshotChunk(_message.Message):
    __slots__ = ("header", "data", "offset", "checksum")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    header: SnapshotHeader
    data: bytes
    offset: int
    checksum: int
    def __init__(self, header: _Optional[_Union[SnapshotHeader, _Mapping]] = ..., data: _Optional[bytes] = ..., offset: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...

class SnapshotReceipt(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExchangeEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
