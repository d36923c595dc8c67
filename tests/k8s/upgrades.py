"""Another release in the place of the one that runs, and back."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.k8s.release import Release

if TYPE_CHECKING:
    from tests.failover.releases import Upgrade

REFUSED: Final = 78
"""What a node ends with that does not take its data (`node.local_nodes.exit_codes`)."""

Scene = Callable[[Release], str]


class Earlier(NamedTuple):
    """A release that is installed first."""

    chart: Path
    way: Upgrade
    """From its image to the one under test."""

    def install(self, release: Release) -> str:
        """Three nodes that begin together."""
        return release.install(self.chart, self.way.old.image)

    def scenes(self) -> tuple[tuple[str, str, Scene], ...]:
        """Step, title and work of the way from it to the release under test, back, and forth again."""
        back, again = "rollback to the earlier release", "upgrade to this release again"
        found: tuple[tuple[str, str, Scene], ...] = ()
        if self.way.can_be_held:
            held = "upgrade to this release, the feature level held"
            found = ("held", held, self.rollout_held), ("held", back, self.back)
        found += (("rollout", "upgrade to this release", self.rollout),)
        if self.way.can_go_back:
            return *found, ("back", back, self.back), ("back", again, self.rollout)
        return *found, ("back", f"{back}, which refuses the data", self.back_refused), ("back", again, forward)

    def rollout(self, release: Release) -> str:
        """Chart and image of the earlier release are replaced; the feature level follows."""
        seen = release.roll(lambda: release.upgrade({}))
        highest = self.way.new.levels.highest
        release.until(lambda: release.cluster.level() == highest, f"feature level {highest}")
        return f"{seen}; feature level {highest}"

    def rollout_held(self, release: Release) -> str:
        """The same, with a setting by which the old release can come back."""
        there, held = release.values, self.way.old.levels.highest
        seen = release.roll(lambda: release.upgrade({"settings": {"feature_level_limit": held}}))
        release.values = there
        level = release.cluster.level()
        assert level == held, f"the feature level is {level}, held at {held}"
        return f"{seen}; feature level {level}"

    def back(self, release: Release) -> str:
        """The earlier chart and image again."""
        return release.roll(release.roll_back, self.way.old.image)

    def back_refused(self, release: Release) -> str:
        """The earlier chart and image, which do not know the feature level: nothing comes of it but a broken pod."""
        before = release.cluster.ids()
        release.roll_back()
        release.until(lambda: any(map(_is_refused, release.cluster.pods())), "a node that refuses its data, twice")
        time.sleep(10)  # to see that nothing follows
        assert release.kept(before) == 2, f"{release.kept(before)} pods were left alone"
        assert release.cluster.level() == self.way.new.levels.highest
        return f"the node of one pod ends with {REFUSED} again and again, two go on serving"


def forward(release: Release) -> str:
    """This release again, after a rollback that was refused."""
    before = release.cluster.ids()
    release.upgrade({})
    release.until_ready(3)
    assert release.kept(before) == 2, f"{release.kept(before)} pods were left alone"
    return "the broken pod was replaced by itself, the others were left alone"


def without_image(release: Release) -> str:
    """An image that is not there stops at the first pod; back to the release before."""
    before = release.cluster.ids()
    there = release.values
    release.upgrade({"image": {**there["image"], "tag": "not-there"}})
    release.until(lambda: any(map(_waits_for_image, release.cluster.pods())), "a pod without an image")
    time.sleep(10)  # to see that nothing follows
    assert release.kept(before) == 2, f"{release.kept(before)} pods were left alone"
    release.roll_back()
    release.values = there
    # The set's pods are managed in parallel: its controller replaces the broken one itself.
    release.until_ready(3)
    assert release.kept(before) == 2, f"{release.kept(before)} pods were left alone by the rollback"
    return "one pod was tried, two went on serving; the rollback replaced that one by itself"


def of_an_annotation(release: Release) -> str:
    """A new template: every pod goes and comes."""
    before = release.cluster.ids()
    release.upgrade({"podAnnotations": {"upgraded": "yes"}})
    release.until_replaced(before)
    return "three pods restarted"


def _waits_for_image(pod: Any) -> bool:
    states = [status.state.waiting for status in pod.status.container_statuses or []]
    return any(state is not None and state.reason in ("ErrImageNeverPull", "ImagePullBackOff") for state in states)


def _is_refused(pod: Any) -> bool:
    """Whether the pod's node was started twice at least, and did not take its data."""
    ends = [status.last_state.terminated for status in pod.status.container_statuses or [] if status.restart_count]
    return any(end is not None and end.exit_code == REFUSED for end in ends)
