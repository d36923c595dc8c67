"""What one string of octets stands for in fuzzing that is led by coverage: a decoder of what clients send, or frames to
a connection. What must hold is in `tests.fuzz.codecs`; whatever else is raised is a defect."""

import random
from typing import Final

from pamqp import commands, frame

from tests.fuzz.codecs import TARGETS
from tests.fuzz.conversations import LIKELY, METHODS, content, method_octets, raw_frame

FROM_CLIENTS: Final = ("frames", "method", "table", "header", "response")
_KINDS: Final = len(FROM_CLIENTS) + 1
_MOST_FRAMES: Final = 30


class FromOctets(random.Random):
    """Choices that follow from octets: whoever changes one of them changes a choice. Zeros when they are used up."""

    def __init__(self, octets: bytes) -> None:
        super().__init__(0)
        self._octets = octets
        self._at = 0

    @property
    def is_used_up(self) -> bool:
        return self._at >= len(self._octets)

    def getrandbits(self, count: int, /) -> int:
        size = (count + 7) // 8
        taken = self._octets[self._at : self._at + size].ljust(size, b"\0")
        self._at += size
        return int.from_bytes(taken, "big") >> (8 * size - count)

    def random(self) -> float:
        return self.getrandbits(16) / 65_536


def sequence(octets: bytes) -> bytes:
    """Frames with methods and contents whose octets are right, in any order on a few channels; rarely others."""
    chance = FromOctets(octets)
    frames = [frame.marshal(commands.Channel.Open(), 2)]
    while not chance.is_used_up and len(frames) < _MOST_FRAMES:
        channel = 1 + chance.getrandbits(1)
        what = chance.randrange(256)
        if what < 150:
            frames.append(raw_frame(1, channel, method_octets(chance, chance.choice(LIKELY))))
        elif what < 240:
            frames.append(content(chance, channel))
        elif what < 244:
            frames.append(raw_frame(1, channel, method_octets(chance, chance.choice(METHODS))))
        elif what < 247:
            frames.append(raw_frame(chance.randrange(9), channel, chance.randbytes(chance.randrange(40))))
        else:
            frames.append(raw_frame(8, 0, b""))
    return b"".join(frames)


def one_input(octets: bytes) -> None:
    """Try the target that the first octet names with the rest."""
    if not octets:
        return
    kind = octets[0] % _KINDS
    if kind == len(FROM_CLIENTS):
        TARGETS["frames"][0](sequence(octets[1:]))
    else:
        TARGETS[FROM_CLIENTS[kind]][0](octets[1:])


def first_inputs() -> list[bytes]:
    """What to begin with: right octets for each target, and some sequences."""
    right = [bytes([kind]) + each for kind, name in enumerate(FROM_CLIENTS) for each in TARGETS[name][1]]
    chance = random.Random(1)
    return right + [bytes([len(FROM_CLIENTS)]) + chance.randbytes(size) for size in (20, 60, 200, 600)]
