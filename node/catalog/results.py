"""What applying a catalog command answers. Every replica comes to the same result."""
from __future__ import annotations

import msgspec

from mayfly.node.catalog.records import ExchangeRecord, MemberRecord, QueueRecord


class Refusal(Exception):
    """The command changed nothing.

    `code` is the AMQP reply code, `text` what follows the code's name and " - ". `hard` means that the
    connection is to be closed, otherwise the channel. `Catalog.apply` returns it as a result; the helpers
    that check single things raise it.
    """

    def __init__(self, code: int, text: str, hard: bool = False) -> None:
        super().__init__(code, text, hard)
        self.code = code
        self.text = text
        self.hard = hard

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refusal) and self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args)

    def __repr__(self) -> str:
        return f"Refusal({self.code}, {self.text!r}, hard={self.hard})"


class NeedsLevel(Refusal):
    """The same command is good once the cluster's feature level is raised."""


class OtherRights(Refusal):
    """The user's permissions are others than those that the command was checked with (`commands.Rights`)."""


class Done(msgspec.Struct, frozen=True):
    """Applied. `changed` is False when things were that way already."""

    changed: bool = True


class QueueDeclared(msgspec.Struct, frozen=True):
    """The queue is there: `created` now, or before with equivalent properties."""

    queue: QueueRecord
    created: bool


class QueuesRemoved(msgspec.Struct, frozen=True):
    """The queues that went with this command, with their bindings."""

    queues: tuple[QueueRecord, ...] = ()


class ExchangeDeclared(msgspec.Struct, frozen=True):
    """The exchange is there: `created` now, or before with equivalent properties."""

    exchange: ExchangeRecord
    created: bool


class PolicySet(msgspec.Struct, frozen=True):
    """The policy is in force in the catalog: `created` now, or put in the place of one of that name."""

    created: bool


class MemberAdded(msgspec.Struct, frozen=True):
    """The node has its place in the cluster: this is it."""

    member: MemberRecord


CatalogResult = MemberAdded | PolicySet | Done | QueueDeclared | QueuesRemoved | ExchangeDeclared | Refusal
