"""No password is ever in a log, whichever way it comes and however it ends."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pamqp import commands

NEEDLES = ("right-needle-1", "wrong-needle-2", "nobodys-needle-3", "malformed-needle-4", "updated-needle-5")


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN", "EXTERNAL", "NONE"])
def test_no_password_is_logged(world: Any, caplog: pytest.LogCaptureFixture, mechanism: str) -> None:
    caplog.set_level(logging.DEBUG)
    world.add_user("worker", NEEDLES[0], ".*", ".*", ".*")
    for user, password in (("worker", NEEDLES[0]), ("worker", NEEDLES[1]), ("nobody", NEEDLES[2])):
        world.login(user, password, mechanism=mechanism).lose()
    # More zero octets than there are parts.
    world.login("worker", f"x\0{NEEDLES[3]}").lose()
    client = world.client(user="worker", password=NEEDLES[0])
    client.send(0, commands.Connection.UpdateSecret(NEEDLES[4], "because"))
    client.send(0, commands.Connection.UpdateSecret(NEEDLES[4], "because"), commands.Connection.Open())
    client.lose()
    assert "refused" in caplog.text or "malformed" in caplog.text
    assert [needle for needle in NEEDLES if needle in caplog.text] == []
