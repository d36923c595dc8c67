"""Very many strangers at a port of a member."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack, suppress
from functools import partial

from mayfly.cluster.host.frame import Frame
from tests.cluster.transport.members import Member, Members, until

LOOK_EVERY = 70


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


async def connected(port: int) -> socket.socket:
    """A connection that is there, and not only asked for: of those that are begun at once most find no room in the
    port's backlog, and are never let in."""
    one = socket.socket()
    one.setblocking(False)
    await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))
    return one


async def let_come(open_here: ExitStack, port: int, count: int, said: bytes, most: int) -> None:
    """So many strangers come, and stay if they are let: the member takes at most so many descriptors for them."""
    before = descriptors()
    for number in range(1, count + 1):
        stranger = open_here.enter_context(await connected(port))
        with suppress(ConnectionError):  # Turned away already.
            assert stranger.send(said) == len(said)
        if number % LOOK_EVERY == 0:
            await until(partial(_are_at_most, before + number + most), "room")


def _are_at_most(count: int) -> bool:
    return descriptors() <= count


async def members_find_room(group: Members, one: Member, two: Member) -> None:
    await group.introduce()
    await until(lambda: 2 in one.up and 1 in two.up, "members that find room")
    two.transport.send(1, Frame(7))
    await until(lambda: one.clocks(2) == [7], "a frame")
