"""Import and export of definitions through a running node: the `DefinitionsPort`."""

import asyncio
import hashlib
from http import HTTPStatus
from typing import Any, Final

import msgspec

from mayfly.node.catalog import DefinitionsLoaded, ExchangeDeclared, QueueDeclared, QueueRecord, Refusal
from mayfly.node.catalog.shard_settings import shard_settings
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.cluster_control import ClusterControl
from mayfly.node.operating.definitions.exporting import definitions_of, in_vhost, into_vhost
from mayfly.node.operating.definitions.reading import BadDefinitions, Plan, check_on, for_level, read_definitions
from mayfly.node.operating.ports.answers import Answer, bad_request, in_doubt
from mayfly.node.shard.commands import encode_create_queue
from mayfly.node.version import RABBITMQ_VERSION

_AT_ONCE: Final = 200


class LeavesOut(BadDefinitions):
    """Something in a file is not here, and all of it was wanted."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__(f"{len(notes)} would be left out, and strict is asked for; nothing is done: {notes[0]}")
        self.notes = notes


class NotAnswered(Exception):
    """The catalog did not answer in time: some of it is done. To import once more does no harm."""


class Definitions:
    """For one node."""

    def __init__(
        self, engine: Engine, cluster: ClusterControl, rabbitmq_version: str = RABBITMQ_VERSION
    ) -> None:
        """`rabbitmq_version` is what exported files say of themselves."""
        self._rabbitmq_version = rabbitmq_version
        self._engine = engine
        self._cluster = cluster

    async def export(self, vhost: str | None = None) -> dict[str, Any]:
        """See `DefinitionsPort.export`."""
        await self._cluster.catch_up()
        definitions = definitions_of(self._engine.catalog, self._rabbitmq_version)
        return definitions if vhost is None else in_vhost(definitions, vhost)

    async def import_(self, data: bytes, strict: bool = False, vhost: str | None = None) -> Answer:
        """See `DefinitionsPort.import_`."""
        try:
            if vhost is not None:
                data = await asyncio.get_running_loop().run_in_executor(None, _for_vhost, data, vhost)
            plan = await self.load(data, strict)
        except LeavesOut as error:
            status, content = bad_request(str(error))
            return status, {**content, "notes": error.notes}
        except BadDefinitions as error:
            return bad_request(str(error))
        except NotAnswered as error:
            return in_doubt(str(error))
        return HTTPStatus.OK, {"imported": len(plan.commands), "notes": plan.notes}

    async def load_once(self, data: bytes) -> Plan | None:
        """As `load`, unless it is the file that was loaded last in this way, on any node: None then. What operators
        have changed since stays, also on a node that starts with no data of its own."""
        digest = (await asyncio.get_running_loop().run_in_executor(None, hashlib.sha256, data)).hexdigest()
        await self._cluster.catch_up()
        if digest == self._engine.catalog.definitions_digest:
            return None
        plan = await self.load(data)
        if await self._cluster.command(DefinitionsLoaded(digest)) is None:
            raise NotAnswered("the catalog did not answer in time; import the file again")
        return plan

    async def load(self, data: bytes, strict: bool = False) -> Plan:
        """Check a whole file, then do what it says. Raises BadDefinitions (nothing was done), NotAnswered; LeavesOut if
        that is not all and it is `strict`."""
        loop = asyncio.get_running_loop()
        # Large files take seconds: beside the loop.
        plan = await loop.run_in_executor(None, read_definitions, data)
        await self._cluster.catch_up()
        catalog = self._engine.catalog
        plan = for_level(plan, catalog.level)
        if strict and plan.notes:
            raise LeavesOut(plan.notes)
        await loop.run_in_executor(None, check_on, catalog.founding_shards, catalog.snapshot(), plan)
        for first in range(0, len(plan.commands), _AT_ONCE):
            wishes = plan.commands[first : first + _AT_ONCE]
            answers = await asyncio.gather(*(self._cluster.command(wish.command) for wish in wishes))
            for wish, answer in zip(wishes, answers, strict=True):
                if answer is None:
                    raise NotAnswered(f"{wish.place}: the catalog did not answer in time; import the file again")
                if isinstance(answer, Refusal):
                    # Somebody else has changed the catalog since it was checked.
                    raise BadDefinitions(f"{wish.place}: {answer.text}; what stands before it is done")
                if isinstance(answer, QueueDeclared) and answer.created:
                    self._create(answer.queue)
                if isinstance(answer, ExchangeDeclared) and answer.created:
                    delaying = catalog.delay_queue(answer.exchange.vhost, answer.exchange.name)
                    if delaying is not None:
                        self._create(delaying)
        return plan

    def _create(self, queue: QueueRecord) -> None:
        """Tell the shard as well, which its leader would do by itself some seconds later."""
        command = encode_create_queue(queue.id, shard_settings(self._engine.catalog, queue))
        self._engine.shard(queue.shard).submit(command, None)


def _for_vhost(data: bytes, vhost: str) -> bytes:
    try:
        return msgspec.json.encode(into_vhost(msgspec.json.decode(data), vhost))
    except (ValueError, RecursionError):
        return data  # Whoever reads it says what is wrong with it.
