"""`make chaos`: kills, freezes and partitions real nodes under load for minutes, judges, and prints figures.

    python -P tests/reliability/run_chaos.py [--minutes 5] [--faults kill,freeze,partition] [--seed N] [--write FILE]
                                             [--nodes 5] [--moves]
    python -P tests/reliability/run_chaos.py --dead-letters 200000 [...]     # `make chaos-deadletters`
    python -P tests/reliability/run_chaos.py --schedules 200000 [...]        # `make chaos-schedules`
    python -P tests/reliability/run_chaos.py --redrives 1000000 --kills 20 [...]     # `make chaos-redrive`
    python -P tests/reliability/run_chaos.py --streams 200000 [...]          # `make chaos-streams`

    python -P tests/reliability/run_chaos.py --cuts 100 [...]                # `make power-cuts`
    python -P tests/reliability/run_chaos.py --damages 100 [...]             # `make damage`

With --dead-letters messages expire into queues of other nodes instead, until so many are confirmed; with --schedules
they wait for their time and for retries, and some are cancelled; with --redrives so many dead ones are redriven while
nodes are killed, at a rate (--per-second) by which it lasts as long as that takes; with --streams they are published to
streams that have mirrors, and read. With --cuts it is the load of dead letters, and nodes lose their power so many
times; with --damages what one of them has on disk is damaged.
Runs the MayflyMQ that this Python has installed, or with PYTHONPATH=. the source tree. Exit code 0: every promise kept.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
# Behind whatever MayflyMQ is installed: this brings in nothing but the tests' own modules then.
sys.path.append(str(ROOT))

if TYPE_CHECKING:
    from tests.reliability.chaos import Run
    from tests.reliability.dead_letters import DeadLetterRun
    from tests.reliability.redrives import RedriveRun
    from tests.reliability.schedules import ScheduleRun
    from tests.reliability.streams import StreamRun

MARKS: Final = "<!-- written by `make {target}`: begin -->", "<!-- written by `make {target}`: end -->"
MOST_SHOWN: Final = 20


def main() -> None:
    """Run, print, write; ends the process."""
    from simulation.totals import write_tables
    from tests.reliability import network
    from tests.reliability.chaos import Run, carry_out_run
    from tests.reliability.dead_letters import DeadLetterRun, carry_out_dead_letters
    from tests.reliability.faults import (
        DAMAGE,
        JEPSEN,
        KINDS,
        PARTITION,
        POWER,
        USUAL,
        kinds_of,
        why_not,
        words_for_faults,
    )
    from tests.reliability.redrives import RedriveRun, carry_out_redrive
    from tests.reliability.schedules import ScheduleRun, carry_out_schedules
    from tests.reliability.streams import StreamRun, carry_out_streams

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--faults", default="", help=f"comma-separated: {', '.join(words_for_faults())}")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--rate", type=float, default=600.0, help="messages per second")
    parser.add_argument("--dead-letters", type=int, default=0, metavar="MESSAGES")
    parser.add_argument("--schedules", type=int, default=0, metavar="MESSAGES")
    parser.add_argument("--redrives", type=int, default=0, metavar="MESSAGES")
    parser.add_argument("--kills", type=int, default=20, help="of a run of redrives: so many faults at least")
    parser.add_argument("--per-second", type=int, default=0, help="of a run of redrives: its rate")
    parser.add_argument("--streams", type=int, default=0, metavar="MESSAGES")
    parser.add_argument("--hits", type=int, default=0, help="faults at least, for --schedules")
    parser.add_argument("--cuts", type=int, default=0, help="losses of power, while messages expire")
    parser.add_argument("--damages", type=int, default=0, help="damages of a node's data, while messages expire")
    parser.add_argument("--between", default="0.5,5", help="seconds of calm between faults, least and most")
    parser.add_argument("--nodes", type=int, default=3, help="with three replicas of each shard")
    parser.add_argument("--moves", action="store_true", help="queues and replicas move all the while")
    parser.add_argument("--write", type=Path, help="Markdown file whose figures are replaced")
    parser.add_argument("--totals", type=Path, help="file of totals to which this run is added")
    arguments = parser.parse_args()
    try:
        usual = kinds_of([POWER]) if arguments.cuts else kinds_of([DAMAGE]) if arguments.damages else USUAL
        if arguments.redrives:
            usual = ["kill"]
        kinds = kinds_of([word.strip() for word in arguments.faults.split(",") if word.strip()]) or usual
    except ValueError as error:
        parser.error(str(error))
    reason = why_not(kinds)
    if reason:
        sys.exit(reason)
    reason = network.why_impossible() if any(KINDS[kind][0] in (PARTITION, JEPSEN) for kind in kinds) else ""
    if reason:
        if arguments.faults:
            sys.exit(f"no partitions on this machine: {reason}")
        print(f"Without partitions: {reason}", flush=True)
        kinds = [kind for kind in kinds if KINDS[kind][0] not in (PARTITION, JEPSEN)]
    least_s, most_s = (float(each) for each in arguments.between.split(","))
    folder = Path(tempfile.mkdtemp(prefix="mayfly-chaos-"))
    run: Run
    hits = arguments.cuts or arguments.damages
    if arguments.schedules:
        run = waiting = ScheduleRun(
            arguments.seed, 0, kinds, arguments.rate, least_faults=arguments.hits, nodes=arguments.nodes,
            moves=arguments.moves, messages=arguments.schedules, between_s=(least_s, most_s),
        )
        begin(f"{waiting.messages} messages that wait and as many retries", run, folder)
        carry_out_schedules(waiting, folder)
        text, target = report_schedules(waiting), "chaos-schedules"
    elif arguments.redrives:
        run = redrive = RedriveRun(
            arguments.seed, 0, kinds, least_faults=arguments.kills, nodes=arguments.nodes, moves=arguments.moves,
            messages=arguments.redrives, per_second=arguments.per_second,
        )
        begin(f"{redrive.messages} messages redriven over {redrive.least_faults} faults", run, folder)
        carry_out_redrive(redrive, folder)
        text, target = report_redrive(redrive), "chaos-redrive"
        print("\n" + verdict(redrive), flush=True)
    elif arguments.streams:
        run = read = StreamRun(
            arguments.seed, 0, kinds, arguments.rate, nodes=arguments.nodes, messages=arguments.streams
        )
        begin(f"{read.messages} messages in streams", run, folder)
        carry_out_streams(read, folder)
        text, target = report_streams(read), "chaos-streams"
    elif arguments.dead_letters or hits:
        run = dead = DeadLetterRun(
            arguments.seed, 0, kinds, arguments.rate, least_faults=hits, nodes=arguments.nodes,
            moves=arguments.moves, messages=arguments.dead_letters, between_s=(least_s, most_s),
        )
        begin(f"{dead.messages} dead letters, {hits} faults at least", run, folder)
        carry_out_dead_letters(dead, folder)
        text = report_dead_letters(dead)
        target = "power-cuts" if arguments.cuts else "damage" if arguments.damages else "chaos-deadletters"
    else:
        run = Run(
            arguments.seed, 60 * arguments.minutes, kinds, arguments.rate, nodes=arguments.nodes,
            moves=arguments.moves, between_s=(least_s, most_s),
        )
        begin(f"{arguments.minutes:g} minutes", run, folder)
        carry_out_run(run, folder)
        text, target = report(run), "chaos"
    print("\n" + text, flush=True)
    if arguments.write is not None:
        replace_figures(arguments.write, target, text)
    if arguments.totals is not None:
        add_to_totals(arguments.totals, target, [run])
        if arguments.write is not None:
            write_tables(arguments.totals, arguments.write)
    if run.violations:
        sys.exit(f"{len(run.violations)} promises were broken; data, logs and history.txt in {save(run, folder)}")
    shutil.rmtree(folder)


def begin(what: str, run: Run, folder: Path) -> None:
    """Say what is going to happen."""
    print(f"{what}, seed {run.seed}, faults: {', '.join(run.kinds)}; data in {folder}", flush=True)


def circumstances(run: Run, what: str, with_rate: bool = True) -> str:
    """What was run, on what, and when."""
    rate = f", {run.rate:g} messages/s" if with_rate else ""
    return (
        f"{time.strftime('%Y-%m-%d')}, {what}, {run.nodes} nodes, {len(run.faults)} faults, "
        f"{run.moves_asked} moves of queues and {run.places_asked} of replicas, seed {run.seed}{rate}; "
        f"mayfly {run.build}, Python {platform.python_version()}, "
        f"{os.cpu_count()} CPUs, load average {os.getloadavg()[1]:.1f}."
    )


def report(run: Run) -> str:
    """The figures of a run, in Markdown."""
    from tests.reliability.figures import counts, nodes_killed, notes_of, served_from_afar, table, waits_by_kind

    clients = run.clients
    assert clients is not None
    history = clients.history
    notes = notes_of(clients.homes, clients.confirms, clients.moves)
    waits = waits_by_kind(run.faults, notes, history.calm_us or clients.now_us())
    confirms, deliveries = served_from_afar(run.replicas_of, notes, history, clients.places)
    lines = [
        circumstances(run, f"{run.seconds / 60:g} minutes"),
        "",
        *table(waits),
        "",
        ", ".join(f"{name}: {number}" for name, number in counts(history).items()) + ".",
        "",
        f"Nodes killed: {nodes_killed(run.faults)}. From nodes without a replica of the queue's shard when the faults "
        f"began: {confirms} confirms, {deliveries} deliveries.",
        "",
        f"Acknowledgements known to have been applied: {len(clients.proven)}. "
        f"Connections and channels closed by a node: {len(clients.refusals)}. "
        f"Consumers cancelled by a node: {len(clients.cancelled)}. "
        f"Promises broken: {len(run.violations)}.",
    ]
    lines += [f"- {violation}" for violation in run.violations[:MOST_SHOWN]]
    return "\n".join(lines)


def report_dead_letters(run: DeadLetterRun) -> str:
    """The figures of a run of dead letters, in Markdown."""
    from tests.reliability.damage import damage_table
    from tests.reliability.dead_letter_judging import dead_letter_table

    clients = run.clients
    assert clients is not None
    since_deadline_s = (run.last_arrival_us - run.last_deadline_us) / 1e6
    lines = [
        circumstances(run, f"{clients.confirmed()} messages confirmed"),
        "",
        *dead_letter_table(clients.history, run.sources, run.faults, run.violations),
        "",
        f"From the last deadline until sources and outboxes were empty on every node: {since_deadline_s:.1f} s. "
        f"Transfers that came again and were dropped: {run.repeats_dropped} messages. "
        f"Promises broken: {len(run.violations)}.",
    ]
    if run.damages is not None:
        lines += ["", *damage_table(run.damages)]
        print("\n".join(["", *run.damages.told]), flush=True)
    lines += [f"- {violation}" for violation in run.violations[:MOST_SHOWN]]
    return "\n".join(lines)


def report_schedules(run: ScheduleRun) -> str:
    """The figures of a run of schedules, in Markdown."""
    from tests.reliability.schedule_judging import schedule_table

    clients = run.clients
    assert clients is not None
    since_due_s = (run.last_arrival_us - run.last_due_us) / 1e6
    lines = [
        circumstances(
            run, f"{run.scheduled} scheduled messages confirmed, {run.retried} retries, {run.took_s:.0f} s until then"
        ),
        "",
        *schedule_table(clients.history, run.places, run.faults, run.violations),
        "",
        f"From the last due time until nothing waited or was left, on every node: {since_due_s:.1f} s. "
        f"Promises broken: {len(run.violations)}.",
    ]
    if run.leases is not None:
        ended = sum(bool(lease.gone_s) for lease in run.leases.leases)
        lines[-1] = f"Leases that ran out: {ended} of {len(run.leases.leases)}. {lines[-1]}"
    lines += [f"- {violation}" for violation in run.violations[:MOST_SHOWN]]
    return "\n".join(lines)


def report_redrive(run: RedriveRun) -> str:
    """The figures of a run of a redrive, in Markdown."""
    from tests.reliability.redrive_judging import redrive_table

    lines = [
        circumstances(run, f"{run.messages} messages redriven", with_rate=False),
        "",
        *redrive_table(run.redriven, run.source, run.faults, run.measured, run.violations),
        "",
        f"The preview took {run.previewed_s:.1f} s. Promises broken: {len(run.violations)}.",
    ]
    lines += [f"- {violation}" for violation in run.violations[:MOST_SHOWN]]
    return "\n".join(lines)


def report_streams(run: StreamRun) -> str:
    """The figures of a run of streams, in Markdown."""
    from tests.reliability.stream_judging import stream_table

    clients = run.clients
    assert clients is not None
    lines = [
        circumstances(run, f"{clients.confirmed()} messages confirmed"),
        "",
        *stream_table(clients.history, run.pairs, run.faults, run.violations, run.gathered),
        "",
        f"Promises broken: {len(run.violations)}.",
    ]
    lines += [f"- {violation}" for violation in run.violations[:MOST_SHOWN]]
    return "\n".join(lines)


def verdict(run: RedriveRun) -> str:
    """What came of a redrive, in a line."""
    if run.violations:
        return f"BROKEN: {len(run.violations)} promises; the first: {run.violations[0]}"
    moved, calm = sum(map(len, run.redriven.came.values())), run.measured.calm_per_second
    return (
        f"KEPT: {moved} redriven over {len(run.faults)} faults, 0 lost, 0 twice, in order, as many as previewed; "
        f"{calm:.0f} a second of {run.per_second} ({(calm / run.per_second - 1) * 100:+.1f} %)"
    )


def replace_figures(file: Path, target: str, text: str) -> None:
    """Put the text between the two marks of the Makefile's target."""
    begin_mark, end_mark = (mark.format(target=target) for mark in MARKS)
    before, _, rest = file.read_text(encoding="utf-8").partition(begin_mark)
    _, found, after = rest.partition(end_mark)
    if not found:
        sys.exit(f"{file} has no lines {begin_mark!r} and {end_mark!r}")
    file.write_text(f"{before}{begin_mark}\n{text}\n{end_mark}{after}", encoding="utf-8")


def add_to_totals(file: Path, target: str, runs: Sequence[Run]) -> None:
    """Add runs of a Makefile's target to a file of totals."""
    from simulation.node.history import CONFIRMED
    from simulation.totals import add_real
    from tests.reliability.figures import nodes_killed

    for run in runs:
        assert run.clients is not None
        kinds = Counter(fault.kind for fault in run.faults)
        damages = run.damages.outcomes if run.damages is not None else None
        confirmed = sum(each.outcome == CONFIRMED for each in run.clients.history.publishes.values())
        add_real(file, target, kinds, nodes_killed(run.faults), confirmed, len(run.violations), damages)


def save(run: Run, folder: Path) -> Path:
    """Write down what happened, for whoever looks for the cause."""
    clients = run.clients
    assert clients is not None
    if run.damages is not None:
        (folder / "damages.txt").write_text("\n".join([*run.damages.told, *run.damages.refusals]), encoding="utf-8")
    with (folder / "history.txt").open("w", encoding="utf-8") as file:
        print(f"seed {run.seed}, mayfly {run.build}", file=file)
        for part in (
            *(run.violations, run.faults, clients.refusals, clients.history.attachments),
            *(clients.history.publishes.values(), clients.history.cancels, clients.history.deliveries),
            clients.history.reads,
        ):
            for line in part:
                print(line, file=file)
    return folder


if __name__ == "__main__":
    main()
