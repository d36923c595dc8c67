"""What a node knows of its own membership when it starts."""

from collections.abc import Sequence

from mayfly.cluster.versions import LEVELS, VersionRange
from mayfly.node.membership.plan_duty import PlanSettings

Founder = tuple[int, str, str]
"""Its id, its name, and where peers reach it."""


class MembershipSettings:
    """For `MembershipDuties`."""

    def __init__(
        self,
        store: str = "",
        founders: Sequence[Founder] = (),
        members_version: int = 0,
        failure_domain: str = "",
        levels: VersionRange = LEVELS,
        plan: PlanSettings | None = None,
    ) -> None:
        """`store` names this node's data. `founders` are the first members, nobody on a node that joined;
        `members_version` is that of the members it knows. `failure_domain` names what this node may be lost together
        with. `levels` are those that the cluster may have as far as it depends on this node: all that it knows, or
        fewer (`feature_level_limit`)."""
        self.store: str = store
        self.founders: tuple[Founder, ...] = tuple(founders)
        self.members_version: int = members_version
        self.failure_domain: str = failure_domain
        self.levels: VersionRange = levels
        self.plan: PlanSettings = plan or PlanSettings()
