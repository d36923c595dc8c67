"""Which stage of a message's way a sampled stack belongs to: pure.

A stack is a line of py-spy's raw format: frames from the outermost to the innermost with ";" between, and a count. The
innermost frame that a rule knows decides, so what a stage calls (a compiled module, the C library, a system call)
counts with it.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

READ, PARSE, ROUTE, REPLICATE, LOG, APPLY, DELIVER, CONFIRM, WRITE, DRIVE, OTHER = (
    "event loop and read", "parse", "route", "replicate", "log", "apply", "deliver and acknowledge", "confirm",
    "write to clients", "drive", "other",
)
STAGES: Final = (READ, PARSE, ROUTE, REPLICATE, LOG, APPLY, DELIVER, CONFIRM, WRITE, DRIVE, OTHER)
"""In the order of a message's way."""

# The first rule that fits a frame counts. Frames read "function (file:line)"; those of compiled modules, which only a
# profile with native frames has, name the module in the function: CPyDef_shard___publish___apply_publishes.
_RULES: Final = tuple(
    (stage, re.compile(pattern))
    for stage, pattern in (
        (WRITE, r"ClientProtocol\.flush|AmqpListener\.flush|uv__write|uv__try_write"),
        (READ, r"\(node/listener\.py|\(uvloop/|\(node/command_line/"),
        (CONFIRM, r"\(node/broker/confirms\.py"),
        (DELIVER, r"\(node/amqp/frame_writer\.py|CPyDef_frame_writer|content_frames|deliver_frames"),
        (DELIVER, r"\(node/broker/(consumers|unacknowledged)\.py|[Dd]eliver|[Ss]ettle.*\(node/broker"),
        (PARSE, r"\(node/amqp/|\(pamqp/|CPyDef_(amqp___)?(frames|content|connection|channels?|output|handshake)___"),
        (ROUTE, r"\(node/(broker|catalog)/|CPyDef_(broker|catalog)___"),
        (LOG, r"\(node/log_writer\.py|\(cluster/log/|CPyDef_(log___)?group_log"),
        (APPLY, r"\(cluster/applying\.py|\(node/(shard|catalog_machine)|CPyDef_shard___|_apply_all"),
        (REPLICATE, r"\(cluster/|\(grpc/|cygrpc|_poll_wrapper|CPyDef_raft___"),
        (DRIVE, r"\(node/(drive|engine|process|duties)"),
    )
)


def stage_of(stack: str) -> str:
    """The stage of one stack, its count left out."""
    for frame in reversed(stack.split(";")):
        for stage, pattern in _RULES:
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
        own = [frame for frame in frames if re.search(r"\((node|cluster)/|CPyDef_", frame)]
        counts[stage_of(stack), (own or frames)[-1]] += count
    return [(stage, frame, count) for (stage, frame), count in counts.most_common(most)]


def _parted(line: str) -> tuple[str, int]:
    stack, _, count = line.rstrip().rpartition(" ")
    return stack, int(count)
