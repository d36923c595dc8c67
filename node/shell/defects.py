"""What becomes of a defect: the node stops, it does not go on with a state that may be half changed."""

import logging

from mayfly.cluster.log.batch import CorruptEntry
from mayfly.node.broker.cluster_facade import UnreadableMessage

log = logging.getLogger("mayfly.node")


def defect(error: Exception) -> str:
    """Why the node has to stop when this came out of the engine, whose state may be half changed by it. Logged unless
    it is an entry that the disk has damaged: that is not a defect of ours."""
    if isinstance(error, CorruptEntry | UnreadableMessage):
        return str(error)
    log.error("defect in the engine", exc_info=error)
    return f"defect in the engine: {error}"
