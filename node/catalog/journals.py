"""Which queues may be journals: streams in which is noted what time removes from other queues (RULES R4).

    x-journal, policy key journal    the name of a stream in the same vhost
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from mayfly.node.catalog import refusals
from mayfly.node.catalog.arguments import queue_type
from mayfly.node.catalog.records import QueueRecord
from mayfly.node.catalog.streams import STREAM

JOURNAL: Final = "journal"
ARGUMENT: Final = f"x-{JOURNAL}"


class _Queues(Protocol):
    def queue(self, vhost: str, name: str) -> QueueRecord | None: ...


def journal_fault(journal: QueueRecord | None) -> str:
    """Why nothing can be noted in the queue that was found under a journal's name, "" if it can."""
    if journal is None:
        return "there is no such queue"
    if queue_type(journal.arguments) != STREAM:
        return "it is no stream (x-queue-type)"
    if journal.settings.mirror is not None:
        return f"it is read-only: it has the messages of stream '{journal.settings.mirror}' alone (x-mirror)"
    return ""


def check_journal(vhost: str, name: str, journal: str | None, found: QueueRecord | None) -> None:
    """What a new queue names as its journal, and is `found` there, can be one. Raises Refusal (406)."""
    if journal is None:
        return
    fault = "a queue is not its own journal" if journal == name else journal_fault(found)
    if fault:
        raise refusals.no_journal(f"queue '{name}' in vhost '{vhost}'", journal, fault)


def check_journal_of_policy(catalog: _Queues, vhost: str, name: str, definition: Mapping[str, Any]) -> None:
    """The same of a policy that somebody sets, as far as is known here: replicas may not judge by a queue that comes or
    goes meanwhile, and in a file of definitions policies come first. Raises Refusal (406)."""
    journal = definition.get(JOURNAL)
    if isinstance(journal, str) and journal:
        fault = journal_fault(catalog.queue(vhost, journal))
        if fault:
            raise refusals.no_journal(f"policy '{name}' in vhost '{vhost}'", journal, fault)
