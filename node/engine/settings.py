"""What an engine needs to know."""

from collections.abc import Callable, Sequence

from mayfly.cluster.versions import LEVELS, VersionRange
from mayfly.node.catalog import Catalog
from mayfly.node.membership.duties import Founder
from mayfly.node.membership.plan_duty import PlanSettings


class EngineSettings:
    """What an engine needs besides the host's settings."""

    def __init__(
        self,
        name: str,
        shards: int,
        expiry_tick_ms: int,
        addresses: dict[str, str],
        catalog: Callable[[], Catalog],
        store: str = "",
        founders: Sequence[Founder] = (),
        members_version: int = 0,
        failure_domain: str = "",
        levels: VersionRange = LEVELS,
        plan: PlanSettings | None = None,
    ) -> None:
        """`store` names this node's data; `founders` and `members_version` are for `MembershipDuties`;
        `failure_domain` names what this node may be lost together with. `levels` are those
        that the cluster may have as far as it depends on this node: all that it knows, or fewer
        (`feature_level_limit`). `shards` is how many the cluster was founded with, `plan` what it follows."""
        self.plan: PlanSettings = plan or PlanSettings()
        self.failure_domain: str = failure_domain
        self.levels: VersionRange = levels
        self.store: str = store
        self.founders: Sequence[Founder] = founders
        self.members_version: int = members_version
        self.name: str = name
        self.shards: int = shards
        self.expiry_tick_ms: int = expiry_tick_ms
        self.addresses: dict[str, str] = addresses
        self.catalog: Callable[[], Catalog] = catalog
