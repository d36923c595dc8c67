"""The specifications that TLC tries all states of, and the mutants: designs that are wrong in one place."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.specifications import tlc
from tests.specifications.raft_runs import SPECIFICATIONS

LONGEST_S = 900


@dataclass(frozen=True, slots=True)
class Model:
    """A specification with the sizes of one configuration."""

    folder: str
    module: str
    config: str
    states: int
    """Distinct states: another number is another specification."""

    def __str__(self) -> str:
        return f"{self.folder}/{self.config}"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A text in a specification that is replaced by another, and the property that does not hold then."""

    model: Model
    name: str
    before: str
    after: str
    violates: str

    def __str__(self) -> str:
        return f"{self.model.folder}: {self.name}"


LEASE = Model("lease", "Lease", "Lease.cfg", 8_457)
LEASE_TWO = Model("lease", "LeaseModel", "LeaseTwo.cfg", 120_152)
LEASE_ENDS = Model("lease", "Lease", "LeaseEnds.cfg", 1_951)
CLOCK = Model("clock", "Clock", "Clock.cfg", 244_900)
CLOCK_AHEAD = Model("clock", "Clock", "ClockAhead.cfg", 300_670)
OUTBOX = Model("outbox", "OutboxModel", "Outbox.cfg", 5_458)
OUTBOX_PROGRESS = Model("outbox", "OutboxModel", "OutboxProgress.cfg", 166)
FEED = Model("session", "Session", "SessionFeed.cfg", 177_328)
LIVES = Model("session", "Session", "SessionLives.cfg", 43_587)
BOTH = Model("session", "Session", "SessionBoth.cfg", 20_978)
MOVE = Model("move", "Move", "Move.cfg", 15_600)
MOVE_AGAIN = Model("move", "Move", "MoveAgain.cfg", 7_008)
MOVE_AWAY = Model("move", "Move", "MoveAway.cfg", 1_577_802)

MODELS = [
    LEASE, LEASE_TWO, LEASE_ENDS, CLOCK, CLOCK_AHEAD, OUTBOX, OUTBOX_PROGRESS, FEED, LIVES, BOTH, MOVE, MOVE_AGAIN,
    MOVE_AWAY,
]  # fmt: skip

MUTANTS = [
    Mutant(
        LEASE, "deletes by a decision of an earlier epoch",
        "    /\\ queue[q].epoch = epoch\n", "",
        "OldDecisionsDoNothing",
    ),
    Mutant(
        LEASE, "deletes while a consumer is there",
        "IsUnused(lease) == lease.holders = {}", "IsUnused(lease) == TRUE",
        "HeldIsThere",
    ),
    Mutant(
        LEASE, "a use does not begin the lease anew",
        "!.epoch = @ + 1, !.began = Stamp]", "!.epoch = @ + 1]",
        "NeverEarly",
    ),
    Mutant(
        LEASE, "a new leader catches up with led time that was lost",
        "LeadAnew == lag < MaxLag /\\ lag < now /\\ lag' = lag + 1",
        "LeadAnew == lag' \\in {0, 1} /\\ lag' <= now",
        "NeverEarly",
    ),
    Mutant(
        LEASE_TWO, "a decision about one queue deletes another",
        "/\\ <<q, epoch>> \\in proposals\n    /\\ queue' =",
        "/\\ \\E k \\in Queue : <<k, epoch>> \\in proposals\n    /\\ queue' =",
        "OldDecisionsDoNothing",
    ),
    Mutant(
        LEASE_ENDS, "looks at a lease only in the moment when it runs out",
        "Stamp >= k.began + Period", "Stamp = k.began + Period",
        "Temporal properties",
    ),
    Mutant(
        CLOCK, "goes on from any led time that was shown",
        "IF shown[n][1] >= LastTerm(log[n]) THEN", "IF TRUE THEN",
        "LedNeverHurries",
    ),
    Mutant(
        CLOCK, "takes the later of two shown times, whatever their terms",
        "IF one[1] > other[1] \\/ (one[1] = other[1] /\\ one[2] > other[2]) THEN one ELSE other",
        "<<Max(one[1], other[1]), Max(one[2], other[2])>>",
        "LedNeverHurries",
    ),
    Mutant(
        CLOCK_AHEAD, "a new leader uses its own clock",
        "Max(IF ahead[n] = Unknown THEN Skew[n] ELSE ahead[n], AppliedTime(n) - now)",
        "Max(Skew[n], AppliedTime(n) - now)",
        "NoJump",
    ),
    Mutant(
        CLOCK_AHEAD, "a clock that is ahead is not held back",
        "Max(IF ahead[n] = Unknown THEN Skew[n] ELSE ahead[n], AppliedTime(n) - now)",
        "Max(2 * Skew[n], AppliedTime(n) - now)",
        "NeverAhead",
    ),
    Mutant(
        OUTBOX, "takes what comes, without looking at its number",
        "isNext == transfer[2] = received[t] + 1", "isNext == TRUE",
        "AtMostOnce",
    ),
    Mutant(
        OUTBOX, "takes an item after a gap",
        "isNext == transfer[2] = received[t] + 1", "isNext == transfer[2] > received[t]",
        "NumbersFit",
    ),
    Mutant(
        OUTBOX, "forgets an item when it was sent",
        "/\\ answers' = answers \\cup {<<t, received'[t]>>}", "/\\ answers' = answers \\cup {<<t, transfer[2]>>}",
        "NeverLost",
    ),
    Mutant(
        OUTBOX, "a lane begins anew when it is empty",
        "[first |-> settled + 1, items |-> SubSeq(@.items, count + 1, Len(@.items))]",
        "[first |-> IF count = Len(@.items) THEN 1 ELSE settled + 1,"
        " items |-> SubSeq(@.items, count + 1, Len(@.items))]",
        "NumbersFit",
    ),
    Mutant(
        OUTBOX, "what died last goes before what waits",
        "unrouted' = Append(unrouted, died + 1)", "unrouted' = <<died + 1>> \\o unrouted",
        "InOrder",
    ),
    Mutant(
        OUTBOX, "puts what arrives before what it had",
        "taken' = [taken EXCEPT ![t] = Append(@, transfer[3])]", "taken' = [taken EXCEPT ![t] = <<transfer[3]>> \\o @]",
        "InOrder",
    ),
    Mutant(
        OUTBOX_PROGRESS, "one lane for all queues",
        "    /\\ i \\in DOMAIN lane[t].items\n",
        "    /\\ i \\in DOMAIN lane[t].items\n"
        "    /\\ \\A k \\in Target : \\A j \\in DOMAIN lane[k].items : lane[k].items[j] >= lane[t].items[1]\n",
        "Temporal properties",
    ),
    Mutant(
        FEED, "admits a batch after a gap",
        "entry[2] > table.life /\\ entry[3] = 1", "entry[2] > table.life",
        "ExactlyOnce",
    ),
    Mutant(
        LIVES, "admits a repeat",
        "entry[3] = table.number + 1", "entry[3] <= table.number + 1",
        "ExactlyOnce",
    ),
    Mutant(
        LIVES, "goes on in a session that was closed",
        "entry[2] = table.life /\\ table.open /\\ entry[3]", "entry[2] = table.life /\\ entry[3]",
        "NothingAfterTheEnd",
    ),
    Mutant(
        LIVES, "answers a batch that did nothing",
        "answers \\o Told(life, Max(cursor, notice[2]), notice[3])",
        "answers \\o [i \\in 1..Cardinality({k \\in (cursor + 1)..notice[3] :"
        ' log[k][1] = "batch" /\\ log[k][2] = life}) |-> Len(answers) + i]',
        "NoFalseAnswer",
    ),
    Mutant(
        FEED, "takes a notice that begins behind the cursor",
        "    /\\ notice[2] <= cursor\n", "",
        "AnswersFit",
    ),
    Mutant(
        FEED, "takes all of a notice, also what it was told before",
        "answers \\o Told(life, Max(cursor, notice[2]), notice[3])", "answers \\o Told(life, notice[2], notice[3])",
        "NoFalseAnswer",
    ),
    Mutant(
        MOVE, "gives up at any word that it is gone",
        "    /\\ index > heard[n]\n", "",
        "CommittedStays",
    ),
    Mutant(
        MOVE_AGAIN, "forgets its vote when it gives up",
        "/\\ vote' = vote\n", "/\\ vote' = [vote EXCEPT ![n] = Nobody]\n",
        "OneVote",
    ),
    Mutant(
        MOVE_AWAY, "forgets what it had when it gives up",
        "left' = [left EXCEPT ![n] = has[n]]", "left' = left",
        "ElectedHasIt",
    ),
]  # fmt: skip


def prepare(folder: Path, model: Model) -> None:
    """Put a specification into an empty folder."""
    for file in (SPECIFICATIONS / model.folder).iterdir():
        shutil.copy(file, folder)


def check(folder: Path, model: Model) -> tlc.Answer:
    """All states of a model. (An end without a next step is no fault: sizes are bounded.)"""
    prepare(folder, model)
    return tlc.check(folder, model.module, model.config, LONGEST_S, ("-deadlock",))


def check_mutant(folder: Path, mutant: Mutant) -> tlc.Answer:
    """The states of a mutant, up to the first that is wrong. Raises LookupError when its place has gone."""
    prepare(folder, mutant.model)
    changed = 0
    for file in sorted(folder.glob("*.tla")):
        text = file.read_text(encoding="utf-8")
        if mutant.before in text:
            changed += text.count(mutant.before)
            file.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    if changed != 1:
        raise LookupError(f"{mutant} replaces a text that is there {changed} times, once is right:\n{mutant.before}")
    return tlc.check(folder, mutant.model.module, mutant.model.config, LONGEST_S, ("-deadlock",))
