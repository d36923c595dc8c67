"""How an empty node comes into a cluster: it asks before it founds one.

A node without data asks the founders (`seeds`), and all that the name in `join` stands for, for a place. Either
somebody gives it one, or it finds that the founders are as empty as itself:

    FORMING   the one asked is a founder of the same founders, and has no data of a cluster either
    VACANT    it is a member, and nobody has ever come with data to the asker's place among the founders
    TAKEN     it is a member, and the asker's place was had with other data: the asker was wiped, or has a successor
    UNSURE    it is a member, and without a leader it can't say: what it knows may be older than what the cluster knows
    FOREIGN   it is of another cluster, one that those founders have not begun: a restored one, for example

A founder begins as what it is when a majority of the founders, itself among them, would have it (FORMING or VACANT) and
the others had `PATIENCE_MS` to object, none of those it hears is UNSURE, and no founder's address is FOREIGN. One that
hears TAKEN never founds: it asks until it is let in as a new member. So two clusters take two majorities of founders
without data: what a minority of them loses is never founded anew.

Pure: the shell (`node.shell.arrival`, or the simulator) asks, resolves names and keeps what has to last.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from mayfly.node.catalog.records import MemberRecord

FORMING: Final = "forming"
VACANT: Final = "vacant"
TAKEN: Final = "taken"
UNSURE: Final = "unsure"
FOREIGN: Final = "foreign"

WAIT: Final = "wait"
FOUND: Final = "found"

ASK_AGAIN_FIRST_MS: Final = 100
ASK_AGAIN_MS: Final = 500
"""Between the end of a question and the next to the same address: doubling from the first to the last, since founders
that are started together are there within a moment. Who asks is asked at once."""
LINGER_MS: Final = 300
"""A founder that has heard all others waits so long for them to ask it: once it begins as a node, nobody answers at its
address for a moment, and later it may not know its cluster yet."""
PATIENCE_MS: Final = 2_000
"""How long a majority waits for word of the other founders: one of them may know of a cluster."""
GOOD_FOR_MS: Final = 5_000
"""An answer counts for so long, though the one who gave it can't be reached now: it may be starting as a founder."""


class Forming:
    """What one empty node knows while it asks. Times are of any clock that never goes back."""

    def __init__(self, founders: Sequence[str], own: str, store: str, may_found: bool) -> None:
        """`founders` are their addresses, `own` that of this node, `store` names its data. One that may not found has
        been told so before, or is no founder."""
        self.may_found: bool = may_found and own in founders
        self._founders = tuple(founders)
        self._own = own
        self._store = store
        self._asking: dict[str, bool] = {}
        self._ask_at_ms: dict[str, int] = {}
        self._pause_ms: dict[str, int] = {}
        self._asked_by: set[str] = set()
        """Founders' addresses from which this node was asked."""
        self._unsure_ms: dict[str, int] = {}
        """Founder's address -> when one answered there that has data, and could not say."""
        self._foreign: set[str] = set()
        """Founders' addresses where another cluster is, until something else is heard from there."""
        self._willing: dict[str, tuple[str, int]] = {}
        """Founder's address -> the name of the data that answered there, and when."""
        self._majority_since_ms = -1
        self._all_since_ms = -1

    def whom_to_ask(self, others: Sequence[str], now_ms: int) -> list[str]:
        """Addresses to ask now: of the founders, and of `others` (what a name stands for at present). Each is to be
        followed by `answered` or `unanswered`."""
        due = []
        for address in dict.fromkeys([*self._founders, *others]):
            if address != self._own and not self._asking.get(address) and self._ask_at_ms.get(address, 0) <= now_ms:
                self._asking[address] = True
                due.append(address)
        return due

    def answered(self, address: str, stance: str, store: str, now_ms: int) -> None:
        """Somebody with the data `store` answered there; `stance` is none of the five if it can't say anything."""
        self._done(address, now_ms)
        if stance == TAKEN:
            self.may_found = False
        if store == self._store or address not in self._founders:
            return  # This node itself, by another name; or a node that is not a founder.
        self._unsure_ms.pop(address, None)
        self._foreign.discard(address)
        if stance == FOREIGN:
            self._foreign.add(address)
        if stance == UNSURE:
            self._unsure_ms[address] = now_ms
        if stance in (FORMING, VACANT):
            self._willing[address] = (store, now_ms)
        else:
            self._willing.pop(address, None)

    def unanswered(self, address: str, now_ms: int) -> None:
        """Nobody answered there."""
        self._done(address, now_ms)

    def asked(self, address: str, now_ms: int) -> None:
        """An empty founder that is reached there has asked this node: it is there, so it is asked at once."""
        if address in self._founders and address != self._own:
            self._asked_by.add(address)
            self._ask_at_ms[address] = now_ms

    def _done(self, address: str, now_ms: int) -> None:
        pause_ms = self._pause_ms.get(address, ASK_AGAIN_FIRST_MS)
        self._pause_ms[address] = min(2 * pause_ms, ASK_AGAIN_MS)
        self._asking[address] = False
        self._ask_at_ms[address] = now_ms + pause_ms

    def decide(self, now_ms: int) -> str:
        """FOUND: begin as a founder. WAIT: go on asking."""
        if not self.may_found:
            return WAIT
        others = self.willing(now_ms)
        if 2 * (len(others) + 1) <= len(self._founders) or self._unsure(now_ms) or self._foreign:
            self._majority_since_ms = self._all_since_ms = -1
            return WAIT
        if self._majority_since_ms < 0:
            self._majority_since_ms = now_ms
        if len(others) + 1 < len(self._founders):
            self._all_since_ms = -1
        elif self._all_since_ms < 0:
            self._all_since_ms = now_ms
        if self._all_since_ms >= 0 and (
            self._asked_by.issuperset(others) or now_ms - self._all_since_ms >= LINGER_MS
        ):
            return FOUND
        return FOUND if now_ms - self._majority_since_ms >= PATIENCE_MS else WAIT

    def willing(self, now_ms: int) -> list[str]:
        """Addresses of the other founders that would have this one; one that answers at two of them counts once."""
        stores: dict[str, str] = {}
        for address, (store, at_ms) in self._willing.items():
            if now_ms - at_ms <= GOOD_FOR_MS:
                stores.setdefault(store, address)
        return list(stores.values())

    def _unsure(self, now_ms: int) -> list[str]:
        return [address for address, at_ms in self._unsure_ms.items() if now_ms - at_ms <= GOOD_FOR_MS]

    def describe(self, now_ms: int) -> str:
        """What the node waits for, for people."""
        if not self.may_found:
            return "asking for a place in the cluster"
        if self._foreign:
            return f"another cluster is at {', '.join(sorted(self._foreign))}: start with join and without seeds for it"
        unsure = self._unsure(now_ms)
        if unsure:
            return f"a cluster is there, at {', '.join(unsure)}, which has no leader at present"
        willing = self.willing(now_ms)
        missing = [address for address in self._founders if address != self._own and address not in willing]
        return (
            f"{len(willing) + 1} of {len(self._founders)} founders are there, a majority is needed; "
            f"no word of {', '.join(missing) or 'nobody'}"
        )


def stance_towards(store: str, named: str, started: bool, present: bool, led: bool) -> str:
    """What a member says to an empty founder that comes with data `store`: `named` is what the data at its place was
    called, "" if it never was; `started` says whether a node was ever there, `present` whether the place is still a
    member's, `led` whether a leader has just said that this is all that the cluster knows."""
    if not present or named not in ("", store) or (started and not named):
        return TAKEN
    return VACANT if led else UNSURE


class AbandonedPlaces:
    """What one member knows of places that were given away and that nobody came to: who asks for the same again."""

    def __init__(self) -> None:
        self._asked: dict[int, str] = {}
        """Place -> what the data of the last that asked is called."""

    def claimed(self, members: Iterable[MemberRecord], name: str, address: str, store: str) -> int:
        """A node with data `store` could not be let in, because somebody of its name and address is there: the id of
        the place that is to be removed for it, 0: none.

        That place was given to a node that was emptied before it began, so nobody will ever see it go down. Who asks
        once may be such a node itself, dead since, and its question late; a second one it can't have asked, for it asks
        each member one question at a time, and while it lived the place was not given away."""
        for record in members:
            if name and record.state == "joining" and (record.name, record.address) == (name, address):
                again = self._asked.get(record.id) == store
                self._asked[record.id] = store
                return record.id if again else 0
        return 0
