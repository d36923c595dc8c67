"""How log lines look: for people, or as JSON with the event's name and fields."""

import json
import logging
import sys
import time
from typing import Any, Final

from mayfly.node.shell.log_events import event_of

log = logging.getLogger("mayfly.node")

TEXT, JSON = "text", "json"
PARTS: Final = ("mayfly", "asyncio", "aiohttp", "grpc")
"""Loggers whose level, and that of those below them, may be set."""
LEVELS: Final = ("debug", "info", "warning", "error")


def configure_logging(level: str, log_as: str = "", shape: str = TEXT) -> None:
    """Log lines to stderr, with UTC time in milliseconds; `log_as` tells processes apart that write to one place."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(log_as) if shape == JSON else _text_lines(log_as))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _text_lines(log_as: str) -> logging.Formatter:
    who = f"[{log_as}] " if log_as else ""
    formatter = logging.Formatter(
        f"%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: {who}%(message)s", datefmt="%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    return formatter


class JsonLines(logging.Formatter):
    """A JSON object a line: `time`, `level`, `part`, `event`, `text`, and `fields` of the event by their names;
    `process` where several write to one place, `trace` behind a defect."""

    def __init__(self, log_as: str = "") -> None:
        super().__init__()
        self._log_as = log_as

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        seconds, milliseconds = divmod(int(record.created * 1000), 1000)
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z",
            "level": record.levelname.lower(),
            "part": record.name,
            **self._event(record),
        }
        if self._log_as:
            line["process"] = self._log_as
        if record.exc_info and record.exc_info[0] is not None:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)

    def _event(self, record: logging.LogRecord) -> dict[str, Any]:
        text = record.getMessage()
        named = getattr(record, "event", None)
        event = event_of(record.name, str(record.msg))
        values = record.args if isinstance(record.args, tuple) else ()
        if event is None or len(values) != len(event.fields):
            return {"event": named or "other", "text": text}
        fields = {name: _plain(value) for name, value in zip(event.fields, values, strict=True)}
        return {"event": event.name, "text": text} | ({"fields": fields} if fields else {})


def _plain(value: object) -> Any:
    return value if isinstance(value, (bool, int, float)) or value is None else str(value)


def set_level(part: str, level: str) -> None:
    """Have a part of the process log so much from now on; `level` "": as what it is a part of. Raises ValueError."""
    if not any(part == known or part.startswith(f"{known}.") for known in PARTS):
        raise ValueError(f"part = '{part}': one of {', '.join(PARTS)}, or below, such as mayfly.cluster.transport")
    if level and level not in LEVELS:
        raise ValueError(f"level = '{level}': one of {', '.join(LEVELS)} is expected, or nothing")
    logging.getLogger(part).setLevel(level.upper() if level else logging.NOTSET)
    log.info("the level of %s is %s", part, level or "that of what it is a part of")


def levels() -> dict[str, str]:
    """The parts with a level of their own; "" is the whole process."""
    found = {"": logging.getLevelName(logging.getLogger().level).lower()}
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level and name.split(".")[0] in PARTS:
            found[name] = logging.getLevelName(logger.level).lower()
    return found
