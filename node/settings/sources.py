"""Where a node's settings come from: defaults < TOML file < environment < command line."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from mayfly.node.settings import NodeSettings, Problem, SettingsError, setting_keys, setting_kind

PREFIX: Final = "MAYFLY_"
# Names with the prefix that belong to the command, the build, the benchmark and the tests, not to the node.
OTHER_VARIABLES: Final = frozenset(
    {
        "MAYFLY_CONFIG", "MAYFLY_NEW_PASSWORD", "MAYFLY_PASSWORD", "MAYFLY_PURE", "MAYFLY_RAFT_TRANSCRIPTS",
        "MAYFLY_SHARED", "MAYFLY_USER",
    }
)
# Container platforms put variables like these into the environment for every service whose name starts
# with "mayfly" (`MAYFLY_PORT_5672_TCP_ADDR`, `MAYFLY_HEADLESS_SERVICE_HOST`); nobody meant them as settings.
_SERVICE_LINK: Final = re.compile(
    r"MAYFLY_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)\Z"
)


def variable_of(key: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + key.upper()


def option_of(key: str) -> str:
    """The command-line option of a setting."""
    return "--" + key.replace("_", "-")


def no_option_of(key: str) -> str:
    """The option that switches a setting off, for those that are switches."""
    return "--no-" + key.replace("_", "-")


def load_settings(
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[str, object] | None = None,
) -> NodeSettings:
    """The settings of a node; raises SettingsError that names every bad or unknown key at once.

    `options` are those given on the command line, by key; text is read as in the environment.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    if config_file is not None:
        values |= _from_file(config_file, problems)
    values |= _from_environment(environment or {}, problems)
    for key, value in (options or {}).items():
        _take(values, key, value, f"option {option_of(key)}", problems)
    if problems:
        raise SettingsError(problems)
    return NodeSettings(**values)


def keys_given(config: Path | None, environment: Mapping[str, str], options: Mapping[str, object]) -> set[str]:
    """The settings that one of the sources of `load_settings` says, which took them."""
    from_file = {} if config is None else _from_file(config, [])
    return {*from_file, *_from_environment(environment, []), *options}


def suggest(name: str, known: Iterable[str]) -> str:
    """` Did you mean "x"?` where something close is known, else nothing."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f' Did you mean "{close[0]}"?' if close else ""


def _from_file(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        problems.append(f"{path}: cannot be read: {error.strerror}")
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{path}: not a TOML file: {error}")
        return {}
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key not in setting_keys():
            problems.append(f'{path}: unknown setting "{key}".{suggest(key, setting_keys())}')
        else:
            _take(values, key, value, str(path), problems, toml=True)
    return values


def _from_environment(environment: Mapping[str, str], problems: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    keys = {variable_of(key): key for key in setting_keys()}
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES:
            continue
        if name in keys:
            _take(values, keys[name], text, f"environment variable {name}", problems)
        elif not _SERVICE_LINK.match(name):
            known = [*keys, *OTHER_VARIABLES]
            problems.append(f'environment: unknown setting "{name}".{suggest(name, known)}')
    return values


def _take(
    values: dict[str, Any], key: str, value: object, origin: str, problems: list[str], *, toml: bool = False
) -> None:
    """Put the value in, or a line into `problems`."""
    kind = setting_kind(key)
    try:
        values[key] = kind.from_text(value) if isinstance(value, str) and not toml else kind.from_toml(value)
    except ValueError as error:
        problems.append(str(Problem(key, value, origin, str(error))))
