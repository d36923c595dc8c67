"""What the exit code of `mayfly` says. 1 is any failure that may be over at the next start."""

from typing import Final

import click

from mayfly.node.settings import SettingsError

REFUSED: Final = 78
"""EX_CONFIG of sysexits.h. The node must not go on as it is: settings can't be, data and settings contradict each
other, or the cluster has removed it or sent it away. Starting it again changes nothing (systemd:
`RestartPreventExitStatus=78`)."""


class BadSettings(click.ClickException):
    """Settings with which nothing can be started, however often it is tried."""

    exit_code = REFUSED

    def __init__(self, error: SettingsError) -> None:
        super().__init__(f"settings:\n{error}")
