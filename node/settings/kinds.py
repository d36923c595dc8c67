"""The kinds of values a setting can have: what is accepted from text and from TOML, and how that is told.

Every kind turns text (environment, command line) or a TOML value into the value used, or raises ValueError.
The message of the error is the sentence part after "expected".
"""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

T = TypeVar("T")

LARGEST_PORT: Final = 65535
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?\Z|[0-9A-Fa-f:.]+(%\w+)?\Z")
_SIZE: Final = re.compile(r"(\d[\d_]*)\s*(|[kmgt]i?b?|b)\Z", re.IGNORECASE)
_SIZE_UNITS: Final = {
    "": 1,
    "b": 1,
    **{letter + "ib": 1024**power for power, letter in enumerate("kmgt", 1)},
    **{letter + "i": 1024**power for power, letter in enumerate("kmgt", 1)},
    **{letter + "b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
}


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """A host (name, IPv4 or IPv6) and a TCP port; port 0 lets the system choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Read `host:port` or `[ipv6]:port`; raises ValueError saying what would be right."""
        host, colon, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError("an IPv6 address in brackets, such as [::1]:5672")
        if not colon or not _HOST.match(host):
            raise ValueError("host:port, such as 127.0.0.1:5672")
        if not (port.isascii() and port.isdigit()) or int(port) > LARGEST_PORT:
            raise ValueError(f"host:port with a port from 0 to {LARGEST_PORT}")
        return cls(host, int(port))


class Kind(ABC, Generic[T]):
    """One kind of value."""

    #: Stands for the value in `--option VALUE`.
    placeholder: str = "TEXT"

    @abstractmethod
    def from_text(self, text: str) -> T:
        """The value that `text` (environment, command line) means."""

    def from_toml(self, value: object) -> T:
        """The value that a TOML value means; without more, a string that is read as text is."""
        if not isinstance(value, str):
            raise ValueError(f"a string: {self.hint()}")
        return self.from_text(value)

    def hint(self) -> str:
        """What would be right, for messages about values that are not even of the right type."""
        return "text"


class Text(Kind[str]):
    """Any text that matches a pattern."""

    def __init__(self, pattern: str, description: str) -> None:
        self._pattern = re.compile(pattern + r"\Z")
        self._description = description

    def from_text(self, text: str) -> str:
        if not self._pattern.match(text):
            raise ValueError(self._description)
        return text

    def hint(self) -> str:
        return self._description


class Choice(Kind[str]):
    """One of a few words."""

    def __init__(self, *words: str) -> None:
        self._words = words
        self.placeholder = "|".join(words)

    def from_text(self, text: str) -> str:
        if text.lower() not in self._words:
            raise ValueError(self.hint())
        return text.lower()

    def hint(self) -> str:
        return "one of " + ", ".join(self._words)


class Number(Kind[int]):
    """A whole number within bounds, both included."""

    placeholder = "NUMBER"

    def __init__(self, minimum: int, maximum: int, unit: str = "") -> None:
        self._minimum = minimum
        self._maximum = maximum
        self._unit = f" of {unit}" if unit else ""

    def from_text(self, text: str) -> int:
        try:
            return self._bounded(int(text))
        except ValueError:
            raise ValueError(self.hint()) from None

    def from_toml(self, value: object) -> int:
        if type(value) is not int:  # not isinstance: `true` is no number to the writer of a TOML file
            raise ValueError(self.hint())
        return self._bounded(value)

    def _bounded(self, value: int) -> int:
        if not self._minimum <= value <= self._maximum:
            raise ValueError(self.hint())
        return value

    def hint(self) -> str:
        return f"a whole number{self._unit} from {self._minimum} to {self._maximum}"


AUTO: Final = 0
"""The value of a `NumberOrAuto` that is to be chosen."""


class NumberOrAuto(Number):
    """A whole number within bounds, or the word auto: AUTO."""

    placeholder = "NUMBER|auto"

    def from_text(self, text: str) -> int:
        return AUTO if text.strip().lower() == "auto" else super().from_text(text)

    def from_toml(self, value: object) -> int:
        return AUTO if value == "auto" else super().from_toml(value)

    def hint(self) -> str:
        return f'{super().hint()}, or "auto"'


class Size(Kind[int]):
    """A number of bytes: `67108864`, `"64 MiB"` or `"64MB"`."""

    placeholder = "BYTES"

    def __init__(self, minimum: int, maximum: int) -> None:
        self._minimum = minimum
        self._maximum = maximum

    def from_text(self, text: str) -> int:
        match = _SIZE.match(text.strip())
        if match is None:
            raise ValueError(self.hint())
        return self.from_toml(int(match[1].replace("_", "")) * _SIZE_UNITS[match[2].lower()])

    def from_toml(self, value: object) -> int:
        if isinstance(value, str):
            return self.from_text(value)
        if type(value) is not int or not self._minimum <= value <= self._maximum:
            raise ValueError(self.hint())
        return value

    def hint(self) -> str:
        least, most = describe_size(self._minimum), describe_size(self._maximum)
        return f'a size such as 67108864 or "64 MiB", from {least} to {most}'


class Switch(Kind[bool]):
    """On or off."""

    placeholder = "BOOLEAN"

    def from_text(self, text: str) -> bool:
        word = text.strip().lower()
        if word in ("1", "true", "yes", "on"):
            return True
        if word in ("0", "false", "no", "off"):
            return False
        raise ValueError(self.hint())

    def from_toml(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(self.hint())
        return value

    def hint(self) -> str:
        return "true or false"


class AddressKind(Kind[Address]):
    """A host and a port."""

    placeholder = "HOST:PORT"

    def from_text(self, text: str) -> Address:
        return Address.parse(text)

    def hint(self) -> str:
        return "host:port, such as 127.0.0.1:5672"


class OptionalAddress(Kind[Address | None]):
    """A host and a port, or nothing."""

    placeholder = "HOST:PORT"

    def from_text(self, text: str) -> Address | None:
        return Address.parse(text) if text.strip() else None

    def hint(self) -> str:
        return "host:port, such as node1.example:25672"


_RANGE: Final = re.compile(r"\{(\d{1,4})\.\.(\d{1,4})\}")
_MOST_OF_A_RANGE: Final = 1000


def expanded(text: str) -> list[str]:
    """`a-{0..2}:1` is a-0:1, a-1:1 and a-2:1; a text without such a range is itself. Raises ValueError."""
    match = _RANGE.search(text)
    if match is None:
        return [text]
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + _MOST_OF_A_RANGE:
        raise ValueError(f"a range that rises, of up to {_MOST_OF_A_RANGE} numbers, such as {{0..2}}")
    return [text[: match.start()] + str(number) + text[match.end() :] for number in range(first, last + 1)]


class AddressList(Kind[tuple[Address, ...]]):
    """Addresses, in text separated by commas; each at most once. One with a range such as {0..2} in it is several."""

    placeholder = "HOST:PORT,..."

    def from_text(self, text: str) -> tuple[Address, ...]:
        return self._distinct([part for part in text.split(",") if part.strip()])

    def from_toml(self, value: object) -> tuple[Address, ...]:
        if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
            raise ValueError(self.hint())
        return self._distinct([str(part) for part in value])

    def _distinct(self, parts: list[str]) -> tuple[Address, ...]:
        addresses = tuple(Address.parse(each) for part in parts for each in expanded(part))
        if len(set(addresses)) != len(addresses):
            raise ValueError("every address at most once")
        return addresses

    def hint(self) -> str:
        return 'a list of addresses, such as ["10.0.0.1:25672", "10.0.0.2:25672"]'


def _look_at(text: str) -> tuple[Path, bool]:
    """The path, and whether something is there. ValueError if the system does not let this user look."""
    if "\0" in text:
        raise ValueError("a path without zero octets")
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError("the path of a user that there is") from error
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return path, False
    except OSError as error:
        raise ValueError(f"a path that this user can look at ({error.strerror})") from error
    return path, True


class Folder(Kind[Path]):
    """A folder, which need not be there yet; relative to where the process is started."""

    placeholder = "FOLDER"

    def from_text(self, text: str) -> Path:
        if not text:
            raise ValueError(self.hint())
        path, is_there = _look_at(text)
        if is_there and not path.is_dir():
            raise ValueError("a folder, and this is a file")
        return path

    def hint(self) -> str:
        return "the path of a folder"


class OptionalFile(Kind[Path | None]):
    """A file that is there, or nothing."""

    placeholder = "FILE"

    def from_text(self, text: str) -> Path | None:
        if not text:
            return None
        path, is_there = _look_at(text)
        if not is_there or not path.is_file():
            raise ValueError("the path of a file that is there")
        return path

    def hint(self) -> str:
        return "the path of a file"


def describe_size(size_bytes: int) -> str:
    """`67108864` -> `64 MiB`: in the largest binary unit that leaves no rest."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size_bytes and size_bytes % 1024**power == 0:
            return f"{size_bytes // 1024**power} {unit}"
    return f"{size_bytes} bytes"
