"""The main job, shown to a reader and checked: three nodes, an ordinary client (pika), real kills."""

from mayfly.node.demonstration.stage import demonstrate

__all__ = ["demonstrate"]
