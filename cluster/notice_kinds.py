"""The kinds of notices between hosts, one octet each; `node.notice_kinds` has those of the layer above.

Each module that sends one says what is in it.
"""

from typing import Final

DRAINING: Final = 251
ANSWERS: Final = 252
HEARTBEATS: Final = 253
REBUILD: Final = 255
