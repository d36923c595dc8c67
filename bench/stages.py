"""Which stage of a message's way a sampled stack belongs to: pure.

A stack is a line of py-spy's raw format: frames from the outermost to the innermost with ";" between, and a count. The
innermost frame that a rule knows decides, so what a stage calls (the C library, a system call) counts with it. Where no
frame is known, as in a stack of C that only interpreted code has called, the rules for the event loop decide.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

READ, PARSE, ROUTE, REPLICATE, LOG, APPLY, CONFIRM, DELIVER, ACKNOWLEDGE, WRITE, DRIVE, OTHER = (
    "event loop and read", "parse", "route", "replicate", "log", "apply", "confirm", "deliver", "acknowledge",
    "write to clients", "drive", "other",
)
STAGES: Final = (READ, PARSE, ROUTE, REPLICATE, LOG, APPLY, CONFIRM, DELIVER, ACKNOWLEDGE, WRITE, DRIVE, OTHER)
"""In the order of a message's way."""

def _rules(*rules: tuple[str, str]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((stage, re.compile(pattern)) for stage, pattern in rules)


# The first rule that fits a frame counts. Frames read "function (file:line)", compiled ones have no line.
_RULES: Final = _rules(
    (WRITE, r"ClientProtocol\.flush|AmqpListener\.flush"),
    (READ, r"\bnode/shell/listener\.py|\bnode/command_line/"),
    (CONFIRM, r"\bnode/broker/confirms\.py"),
    (DELIVER, r"\bnode/amqp/frame_writer\.py|\bnode/broker/consumers\.py|\bnode/shard/delivery\.py"),
    (ACKNOWLEDGE, r"\bnode/broker/unacknowledged\.py|\bnode/shard/settle\.py|settle\w* \(\S*\bnode/"),
    (PARSE, r"\bnode/amqp/"),
    (ROUTE, r"\bnode/(broker|catalog)/|encode_\w+ \(\S*\bnode/shard/commands"),
    (LOG, r"\bnode/shell/log_writer\.py|\bcluster/(log|store)/"),
    (APPLY, r"\bcluster/group/applying\.py|\bnode/(shard|catalog/machine)"),
    (REPLICATE, r"\bcluster/|\(grpc/|cygrpc|_poll_wrapper"),
    (DRIVE, r"\bnode/(shell|engine|duties)"),
)
_RULES_OF_THE_LOOP: Final = _rules(
    (WRITE, r"UVStream_.*write|_exec_queued_writes"),
    (LOG, r"\bmdb_|fdatasync|io_submit"),
    (READ, r"\buv_|uvloop"),
)


def stage_of(stack: str) -> str:
    """The stage of one stack, its count left out."""
    frames = stack.split(";")
    for rules in (_RULES, _RULES_OF_THE_LOOP):
        for frame in reversed(frames):
            for stage, pattern in rules:
                if pattern.search(frame):
                    return stage
    return OTHER


def count_stages(lines: Iterable[str]) -> Counter[str]:
    """Samples by stage."""
    counts: Counter[str] = Counter()
    for stack, count in map(_parted, lines):
        counts[stage_of(stack)] += count
    return counts


def hottest(lines: Iterable[str], most: int) -> list[tuple[str, str, int]]:
    """Stage, innermost frame of the project or the innermost at all, and samples, of what was seen most often."""
    counts: Counter[tuple[str, str]] = Counter()
    for stack, count in map(_parted, lines):
        frames = [re.sub(r":\d+\)", ")", frame) for frame in stack.split(";")]
        own = [frame for frame in frames if re.search(r"\((node|cluster)/", frame)]
        counts[stage_of(stack), (own or frames)[-1]] += count
    return [(stage, frame, count) for (stage, frame), count in counts.most_common(most)]


def _parted(line: str) -> tuple[str, int]:
    stack, _, count = line.rstrip().rpartition(" ")
    return stack, int(count)
