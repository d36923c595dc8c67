"""What basic.consume has asked for that deliveries do not depend on: kept for operators."""

from __future__ import annotations

from typing import Final

from mayfly.node.amqp.field_table import EMPTY_TABLE_BYTES

KEPT_BYTES: Final = 4096
"""Longer tables of arguments are not kept: a node may have as many consumers as its clients want."""


class ConsumerTerms:
    """`arguments` is the field table as on the wire; empty where there are none, or too long ones."""

    def __init__(self, exclusive: bool, arguments: bytes) -> None:
        self.exclusive: bool = exclusive
        self.arguments: bytes = arguments if EMPTY_TABLE_BYTES < len(arguments) <= KEPT_BYTES else b""

    @property
    def are_usual(self) -> bool:
        """Whether there is nothing to keep."""
        return not self.exclusive and not self.arguments


USUAL_TERMS: Final = ConsumerTerms(False, b"")
