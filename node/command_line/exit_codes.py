"""What the exit code of `mayfly node` says. 1 is any failure that may be over at the next start."""

from typing import Final

REFUSED: Final = 78
"""EX_CONFIG of sysexits.h. The node must not go on as it is: data and settings contradict each other, or the cluster
has removed it or sent it away. Starting it again changes nothing (systemd: `RestartPreventExitStatus=78`)."""
