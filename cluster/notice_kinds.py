"""The kinds of notices between hosts, one octet each; `node.notice_kinds` has those of the layer above.

Each module that sends one says what is in it.
"""

from typing import Final

# cluster.host.divided_notices
DIVIDED: Final = 241
# cluster.host.feeding
CURSORS: Final = 242
UNKEPT: Final = 243
FEED: Final = 244
RESUME: Final = 245
LEADS: Final = 246

DRAINING: Final = 251
ANSWERS: Final = 252
HEARTBEATS: Final = 253
REBUILD: Final = 255
