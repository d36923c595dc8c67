"""What an empty node asks the others for, and what they answer, on a network that is cut now and then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mayfly.cluster.host.frame import Frame
from mayfly.cluster.log.batch import WriteBatch
from mayfly.cluster.versions import LEVELS
from mayfly.node.catalog import AddMember, MemberAdded, Refusal, RemoveMember
from mayfly.node.catalog.members import STILL_THERE
from mayfly.node.membership.forming import FORMING, TAKEN, UNSURE, stance_towards
from mayfly.node.numbers import CATALOG_GROUP
from simulation.cluster.events import MILLISECOND_US, SECOND_US
from simulation.cluster.machine import Machine
from simulation.node.forming.ground import Ground
from simulation.node.forming.place import StartPlace
from simulation.node.nodes import SimulatedNode

ASK_TIMEOUT_US = 15 * SECOND_US
NOBODY = "nobody"
"""An address at which there is none."""
FOREIGN = "somebody else"
"""An address at which another cluster is."""

Answer = Callable[[str, str, "int | None"], None]
"""(stance, name of the data that answered, id of the member that the asker becomes)"""


class Asking:
    """The questions of one run, and their answers."""

    def __init__(self, run: Ground) -> None:
        self._run = run
        self.delays_us: Sequence[int] = (500, 2_000, 20_000, 300_000)
        """How long a question or an answer may be on its way."""

    def ask(self, place: StartPlace, address: str) -> None:
        """What the loop of `node.shell.arrival` asks; the answer comes late, or not at all."""
        forming, life = place.forming, place.life
        assert forming is not None
        store = place.store
        founder = place.number if forming.may_found else 0
        over = [False]

        def answered(stance: str, by: str, node: int | None) -> None:
            if over[0] or place.life != life or place.forming is None:
                return
            over[0] = True
            now_ms = self._run.queue.now_us // MILLISECOND_US
            if node is not None:
                self._run.joined(place, node)
            elif by:
                forming.answered(address, stance, by, now_ms)
            else:
                forming.unanswered(address, now_ms)
            place.joins_again = place.joins_again or (place.is_founder and not forming.may_found)
            self._run.look_once(place, life)

        target = next((each for each in self._run.places if each.address == address), None)
        self._run.queue.after(ASK_TIMEOUT_US, partial(answered, "", "", None))
        if address == FOREIGN:
            self._run.queue.after(self._delay_us(), partial(answered, "", "of another cluster", None))
        elif target is None or not target.up:
            self._run.queue.after(self._delay_us(), partial(answered, "", "", None))
        elif not self._run.cuts.is_cut(place, target):
            back = partial(self._back, target, place, answered)
            self._run.queue.after(self._delay_us(), partial(self._asked_at, target, place, store, founder, back))

    def _delay_us(self) -> int:
        return self._run.random.choice(self.delays_us)

    def _back(
        self, target: StartPlace, place: StartPlace, answered: Answer, stance: str, by: str, node: int | None
    ) -> None:
        if not self._run.cuts.is_cut(place, target):
            self._run.queue.after(self._delay_us(), partial(answered, stance, by, node))

    def _asked_at(self, target: StartPlace, asker: StartPlace, store: str, founder: int, back: Answer) -> None:
        """What `node.shell.arrival` and `node.shell.membership` answer."""
        now_us = self._run.queue.now_us
        if not target.up or (target.node and now_us < target.listens_at_us):
            back("", "", None)
        elif target.forming is not None:
            if founder:
                target.forming.asked(asker.address, now_us // MILLISECOND_US)
                self._run.queue.after(0, partial(self._run.look_once, target, target.life))
            back(FORMING if founder and target.forming.may_found else "", target.store, None)
        else:
            machine = self._run.cluster.machines[target.node]
            machine.call(partial(self._asked_node, target, machine, asker, store, founder, back))

    def _asked_node(
        self, target: StartPlace, machine: Machine[Frame, WriteBatch], asker: StartPlace, store: str, founder: int,
        back: Answer,
    ) -> None:  # fmt: skip
        program, by = machine.program, target.store
        if not isinstance(program, SimulatedNode):
            return
        members = program.engine.catalog.members
        group = program.engine.host.groups[CATALOG_GROUP]

        def current(result: object = None) -> None:
            if result is not None or not members.founded:
                back(UNSURE if founder else "", by, None)
                return
            record = members.get(founder)
            named, present = ("", False) if record is None else (record.store, record.state != "removed")
            started = program.engine.catalog.node(founder) is not None
            stance = stance_towards(store, named, started, present, led) if founder else ""
            if stance not in ("", TAKEN):
                back(stance, by, None)
                return
            if group.leader == 0:
                back(stance, by, None)
            else:
                command = AddMember(asker.name, asker.address, store, (LEVELS.lowest, LEVELS.highest))
                program.engine.submit_catalog(command, partial(added, stance))

        def added(stance: str, result: object) -> None:
            if isinstance(result, MemberAdded):
                back("", by, result.member.id)
            else:
                if isinstance(result, Refusal) and STILL_THERE in result.text:
                    given = members.with_replicas()
                    place = target.abandoned.claimed(given, asker.name, asker.address, store)
                    if place:
                        self._run.count("abandoned places")
                        program.engine.submit_catalog(RemoveMember(str(place)), lambda _: None)
                back(stance, by, None)

        led = group.leader != 0
        if founder and not members.founded and target.unproven and program.engine.untouched:
            back(FORMING, by, None)
        elif founder and led:
            program.engine.catalog_barrier(current)
        else:
            current()
