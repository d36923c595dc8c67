"""A switch in user space whose links lose, delay, repeat and reorder single packets. Run as a program by `Network`.

    python soft_switch.py FD FD ...

The arguments are open TAP devices, one a port: numbers 0, 1, ... A line on stdin changes what becomes of packets from
one port to another: `FROM TO LOSS DELAY_MS JITTER_MS REPEATS`, the first two ports, LOSS and REPEATS shares of the
packets; `heal` ends all that. Each line is answered with one. A packet is late by the delay and a part of the jitter of
its own: what is sent later may come earlier.
"""

import asyncio
import os
import random
import sys
from typing import Final, NamedTuple

_MOST_BYTES: Final = 65_536
_ADDRESS_BYTES: Final = 6


class Rule(NamedTuple):
    """What becomes of the packets of one direction."""

    loss: float
    delay_ms: float
    jitter_ms: float
    repeats: float


class Switch:
    """Takes packets in at each port and has them come out where their receiver is, or everywhere."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._loop = asyncio.get_running_loop()
        self._port_of: dict[bytes, int] = {}
        self._rules: dict[tuple[int, int], Rule] = {}
        for number, port in enumerate(ports):
            os.set_blocking(port, False)
            self._loop.add_reader(port, self._take, number)

    def obey(self, line: str) -> str:
        """Change a rule; the answer."""
        if line == "heal":
            self._rules.clear()
        else:
            sender, receiver, *shares = line.split()
            self._rules[int(sender), int(receiver)] = Rule(*map(float, shares))
        return "done"

    def _take(self, number: int) -> None:
        while True:
            try:
                packet = os.read(self._ports[number], _MOST_BYTES)
            except OSError:  # nothing more for now, or the device is down
                return
            self._port_of[packet[_ADDRESS_BYTES : 2 * _ADDRESS_BYTES]] = number
            known = self._port_of.get(packet[:_ADDRESS_BYTES])
            for receiver in range(len(self._ports)) if known is None else (known,):
                if receiver != number:
                    self._pass(packet, number, receiver)

    def _pass(self, packet: bytes, sender: int, receiver: int) -> None:
        rule = self._rules.get((sender, receiver))
        if rule is None:
            self._give(packet, receiver)
            return
        for _ in range(2 if random.random() < rule.repeats else 1):
            if random.random() >= rule.loss:
                late_s = (rule.delay_ms + random.random() * rule.jitter_ms) / 1000
                self._loop.call_later(late_s, self._give, packet, receiver)

    def _give(self, packet: bytes, receiver: int) -> None:
        try:
            os.write(self._ports[receiver], packet)
        except OSError:
            return  # its queue is full, or the device is down: lost, as on any network


async def main() -> None:
    """Serve until stdin ends."""
    switch = Switch([int(word) for word in sys.argv[1:]])
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        print(switch.obey(line.decode().strip()), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
