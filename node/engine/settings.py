"""What an engine needs to know."""

from collections.abc import Callable

from mayfly.node.catalog import Catalog
from mayfly.node.limits import LARGE_BODY_BYTES
from mayfly.node.membership.settings import MembershipSettings


class EngineSettings:
    """What an engine needs besides the host's settings."""

    def __init__(
        self,
        name: str,
        shards: int,
        expiry_tick_ms: int,
        addresses: dict[str, str],
        catalog: Callable[[], Catalog],
        membership: MembershipSettings,
        large_body_bytes: int = LARGE_BODY_BYTES,
    ) -> None:
        """`shards` is how many the cluster was founded with. Dead letters with bodies larger than `large_body_bytes` go
        in pieces."""
        self.name: str = name
        self.shards: int = shards
        self.expiry_tick_ms: int = expiry_tick_ms
        self.addresses: dict[str, str] = addresses
        self.catalog: Callable[[], Catalog] = catalog
        self.membership: MembershipSettings = membership
        self.large_body_bytes: int = large_body_bytes
