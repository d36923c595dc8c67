"""The stub that stands in for the node where a test is about processes, and what is seen of them."""

from pathlib import Path
from typing import Final

STUB: Final = Path(__file__).parent / "stub_node.py"


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
