"""What the transport tells the layer above."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from mayfly.cluster.host.frame import Frame

log = logging.getLogger(__name__)


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class PeerEvents:
    """Callbacks, all in the loop of the transport; what is not given is not told."""

    on_frame: Callable[[int, Frame], None] = _ignore
    """A peer, and what it has sent."""
    on_up: Callable[[int], None] = _ignore
    """Frames can be sent to a peer from now on."""
    on_down: Callable[[int], None] = _ignore
    """They can not any more."""
    on_gone: Callable[[int], None] = _ignore
    """After `on_down`, once the peer's host has refused connections for `limits.GONE_AFTER_MS` and no frame of it came
    meanwhile: nobody listens any more."""
    on_snapshot_sent: Callable[[int, int, bool], None] = _ignore
    """Peer, group, and whether it has come whole: once for every SNAP message that was to be sent, unless a newer one
    of the same group took its place."""


def tell(callback: Callable[..., None], *arguments: object) -> None:
    """Call back; a mistake in the layer above is logged, and the stream goes on."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("a callback of the transport failed")
