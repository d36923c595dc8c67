"""Copies of nodes' data while they run (`mayfly snapshot`): of one node, or of as many as it takes to have all shards.

Each node copies its own to a folder of its machine. For the whole cluster one node asks the others, and asks again
until they are done: a copy may take minutes, an answer has two seconds.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

import msgspec

from mayfly.node.engine.engine import Engine
from mayfly.node.operating.freshness import Freshness
from mayfly.node.operating.groups import Groups
from mayfly.node.operating.node_questions import NodeQuestions

LOOK_S: Final = 0.5
SILENT_LOOKS: Final = 60
"""A node that has not answered so often, one time after the other, is given up."""
_KEY_OCTETS: Final = 8


class Copied(msgspec.Struct):
    """What became of one node's copy: `error`, or what is in the folder, with the groups of which it has replicas.
    While it is under way there is neither."""

    node: int
    folder: str
    bytes: int = 0
    groups: list[int] = []
    current: bool = True
    """Whether all that was confirmed when it began is in it, of these groups."""
    reason: str = ""
    error: str = ""
    done: bool = False


class _Copy(msgspec.Struct, tag="CopyData"):
    """Begin it, or say how it is; `key` tells one copy from another."""

    folder: str
    key: str


class DataCopies:
    """For one node."""

    def __init__(
        self,
        engine: Engine,
        freshness: Freshness,
        groups: Groups,
        questions: NodeQuestions,
        copy_data: Callable[[Path], Awaitable[int]],
    ) -> None:
        """`copy_data` copies the node's data to a folder that is not there yet, gives its bytes, raises OSError."""
        self._engine = engine
        self._freshness = freshness
        self._groups = groups
        self._questions = questions
        self._copy_data = copy_data
        self._under_way: dict[str, asyncio.Task[Copied]] = {}
        """By key; one that is done is kept until the next one begins, for who asks."""
        questions.add(_Copy, Copied, self._tell)

    async def here(self, folder: str) -> dict[str, Any]:
        """Copy this node's data. Raises OSError."""
        made = await self._copy(folder)
        if made.error:
            raise OSError(made.error)
        current = {"current": True} if made.current else {"current": False, "reason": made.reason}
        lacks = self._without(made.groups)
        return {"folder": folder, "bytes": made.bytes, "groups": made.groups, "lacks": lacks} | current

    async def whole(self, folder: str) -> dict[str, Any]:
        """Copy this node's data and that of as many others as it takes to have all groups that can be had, each to the
        folder of its id in `folder` on its own machine. Where one fails others are tried that vote in the same groups;
        `lacks` are the groups of which there is no copy."""
        replicas = await self._groups.replicas()
        copies: list[Copied] = []
        nodes = [self._engine.node_id]
        lacks = self._groups.all()
        while nodes:
            copies += await asyncio.gather(*(self._copy_at(node, f"{folder}/node{node}") for node in nodes))
            lacks = self._without({group for each in copies if not each.error for group in each.groups})
            tried = {each.node for each in copies}
            nodes = cover({
                group: {node for node in replicas[group].voters if self._questions.may_answer(node)} - tried
                for group in lacks
                if group in replicas
            })
        names = {record.id: record.name for record in self._engine.catalog.nodes()}
        rows = [
            {"name": names.get(each.node, f"node{each.node}"), **msgspec.structs.asdict(each)} for each in copies
        ]
        return {"copies": rows, "lacks": lacks}

    async def _copy_at(self, node: int, folder: str) -> Copied:
        silent = 0
        asked = _Copy(folder, token_hex(_KEY_OCTETS))
        while silent < SILENT_LOOKS:
            told: Copied | None = await self._questions.ask(node, asked)
            silent = 0 if told is not None else silent + 1
            if told is not None and told.done:
                return told
            await asyncio.sleep(LOOK_S)
        return Copied(node, folder, error="the node does not answer, or its version can't be asked for a copy")

    async def _tell(self, asked: _Copy) -> Copied:
        task = self._under_way.get(asked.key)
        if task is None:
            self._under_way = {key: each for key, each in self._under_way.items() if not each.done()}
            task = self._under_way[asked.key] = asyncio.ensure_future(self._copy(asked.folder))
        return task.result() if task.done() else Copied(self._engine.node_id, asked.folder)

    async def _copy(self, folder: str) -> Copied:
        own = self._engine.node_id
        if not Path(folder).is_absolute() or "\0" in folder:
            return Copied(own, folder, error="an absolute path on the node's machine is expected", done=True)
        # All that was confirmed by now is to be in it, though others may have confirmed it.
        known = await self._freshness.of_replicas_here()
        groups = sorted(self._engine.host.groups)
        try:
            size_bytes = await self._copy_data(Path(folder))
        except OSError as error:
            return Copied(own, folder, error=str(error), done=True)
        # A replica that came or went meanwhile is in it or not.
        groups = [group for group in groups if group in self._engine.host.groups]
        return Copied(own, folder, size_bytes, groups, known["current"], known.get("reason", ""), "", True)

    def _without(self, groups: Iterable[int]) -> list[int]:
        return sorted(set(self._groups.all()) - set(groups))


def cover(wanted: Mapping[int, Set[int]]) -> list[int]:
    """Few of the nodes that have what is wanted, by group: one that has the most of what is still missing after the
    other. What nobody has is left out."""
    missing = {group: nodes for group, nodes in wanted.items() if nodes}
    chosen: list[int] = []
    while missing:
        counts = Counter(node for nodes in missing.values() for node in nodes)
        best = max(counts, key=lambda node: (counts[node], -node))
        chosen.append(best)
        missing = {group: nodes for group, nodes in missing.items() if best not in nodes}
    return chosen
