"""Where a node of a cluster that forms is started."""

from __future__ import annotations

from mayfly.node.membership.forming import AbandonedPlaces, Forming
from simulation.node.nodes import Acquaintance


class FormingError(AssertionError):
    """A promise about clusters that form was broken."""


class StartPlace:
    """Where a node is started: its address, and what it has on its disk."""

    def __init__(self, number: int, is_founder: bool) -> None:
        self.number = number
        self.is_founder = is_founder
        self.address = f"machine {number}"
        self.name = f"node-{number}"
        self.store = ""
        self.joins_again = False
        self.node = 0
        """The id that it has, 0 while it is nobody."""
        self.known: Acquaintance | None = None
        self.unproven = False
        self.forming: Forming | None = None
        self.listens_at_us = 0
        """Since when, or from when on, its node listens."""
        self.up = False
        self.life = 0
        self.abandoned = AbandonedPlaces()
