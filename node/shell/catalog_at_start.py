"""What has to be in the catalog before a node serves: all that was given before, the first user, definitions."""

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from mayfly.node.catalog import Catalog, DeleteUser, PutUser, SetPermissions
from mayfly.node.catalog.passwords import make_password_hash
from mayfly.node.catalog.state import DEFAULT_PASSWORD
from mayfly.node.engine.engine import Engine
from mayfly.node.operating.definitions.reading import BadDefinitions, EarlyDefinitions
from mayfly.node.operating.import_and_export import Definitions, NotAnswered
from mayfly.node.settings import NodeSettings
from mayfly.node.shell.arrival import NodeRefused
from mayfly.node.shell.ending import Ending

log = logging.getLogger("mayfly.node")

CURRENT_AGAIN_S: Final = 0.05
FOUNDED_LOOK_S: Final = 0.05
LEVEL_LOOK_S: Final = 1.0


class CatalogAtStart:
    """Waits for it, and puts in what is missing."""

    def __init__(
        self,
        engine: Engine,
        settings: NodeSettings,
        definitions: Definitions,
        pump: Callable[[], None],
        ending: Ending,
    ) -> None:
        """`pump` has the engine pumped soon."""
        self._engine = engine
        self._settings = settings
        self._definitions = definitions
        self._pump = pump
        self._ending = ending
        self._definitions_wait = False
        self._tried_level = 0
        """The cluster's feature level when the file was last looked at; 0: once more at any."""

    async def wait(self) -> None:
        """Return when the catalog here is up to date and has what it begins with, so that the first client finds what
        there is. Raises NodeRefused, OSError."""
        await self._catalog_is_current()
        await self._cluster_is_founded()
        await self._ensure_default_user()
        try:
            await self._load_definitions()
        except EarlyDefinitions as error:
            # The level waits for members that are older. Whoever upgrades them one by one waits for this node to serve.
            log.warning("load_definitions = %s: %s; loaded then", self._settings.load_definitions, error)
            self._definitions_wait = True
        except BadDefinitions as error:
            raise NodeRefused(f"load_definitions = {self._settings.load_definitions}: {error}") from None

    async def load_when_raised(self) -> None:
        """Load the file as soon as the feature level is high enough. The node serves meanwhile: faults are logged."""
        while self._definitions_wait:
            await asyncio.sleep(LEVEL_LOOK_S)
            if self._engine.catalog.level == self._tried_level:
                continue
            try:
                await self._load_definitions()
            except EarlyDefinitions:
                continue
            except OSError as error:
                log.warning("%s; tried again", error)
                self._tried_level = 0
                continue
            except BadDefinitions as error:
                log.error("load_definitions = %s: %s", self._settings.load_definitions, error)
            self._definitions_wait = False

    async def _load_definitions(self) -> None:
        """A file that was not loaded last. Raises BadDefinitions, OSError."""
        path = self._settings.load_definitions
        if path is None:
            return
        self._tried_level = self._engine.catalog.level
        loop = asyncio.get_running_loop()
        try:
            plan = await self._definitions.load_once(await loop.run_in_executor(None, path.read_bytes))
        except NotAnswered as error:
            raise OSError(f"load_definitions = {path}: {error}") from None
        if plan is None:
            log.info("%s: unchanged since it was loaded", path)
            return
        for note in plan.notes:
            log.info("%s: %s", path, note)
        log.info("%s: %d definitions imported", path, len(plan.commands))

    async def _catalog_is_current(self) -> None:
        """Wait until the catalog here has everything given before; NodeRefused if the node fails meanwhile.

        A question that is given up (by this replica's state the node is no member) says nothing: it is asked again."""
        current = asyncio.Event()

        def answered(result: object) -> None:
            if result is None:
                current.set()
            else:
                asyncio.get_running_loop().call_later(CURRENT_AGAIN_S, ask)

        def ask() -> None:
            if not self._ending.stopped.is_set():
                self._engine.catalog_barrier(answered)
                self._pump()

        ask()
        waiting = [asyncio.ensure_future(event.wait()) for event in (current, self._ending.stopped)]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        if self._ending.failure is not None:
            raise NodeRefused(self._ending.failure)

    async def _cluster_is_founded(self) -> None:
        """Wait for the members and the feature level that a new cluster begins with; NodeRefused if the node fails."""
        while not self._engine.catalog.members.founded:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.stopped.wait(), FOUNDED_LOOK_S)
            if self._ending.failure is not None:
                raise NodeRefused(self._ending.failure)

    async def _ensure_default_user(self) -> None:
        """Put the configured first user in the place of the built-in one, as long as that is untouched."""
        name, password = self._settings.default_user, self._settings.default_pass
        built_in = next(iter(Catalog(1).users()))
        if self._engine.catalog.user(built_in.name) != built_in:
            return
        # Compared by itself: its hash would hold the loop for some 50 ms, at the start of every node.
        if name == built_in.name and password == DEFAULT_PASSWORD:
            return
        salt = random.SystemRandom().randbytes(16)
        hashed = await asyncio.get_running_loop().run_in_executor(None, make_password_hash, password, salt)
        self._engine.submit_catalog(PutUser(name, hashed, ("administrator",)), lambda _: None)
        self._engine.submit_catalog(SetPermissions(name, "/", ".*", ".*", ".*"), lambda _: None)
        if name != built_in.name:
            self._engine.submit_catalog(DeleteUser(built_in.name), lambda _: None)
        await self._catalog_is_current()
