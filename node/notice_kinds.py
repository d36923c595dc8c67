"""The kinds of notices between nodes, one octet each; `cluster.notice_kinds` has those of the layer below.

Each module that sends one says what is in it.
"""

from typing import Final

# node.transient.streams
REQUEST: Final = 1
EVENTS: Final = 2
LOST: Final = 3
TRANSFER: Final = 4
RECEIVED: Final = 5
ENDED: Final = 6
# node.duties.distant_targets
TARGET_TRANSFER: Final = 7
TARGET_ASKED: Final = 8
TARGET_TOLD: Final = 9
# node.broker.direct_replies
REPLY: Final = 16
ASK: Final = 17
TOLD: Final = 18

# Questions of operators (node.operating.clients, by node.broker.peer_questions)
QUESTION: Final = 247
ANSWER: Final = 248

# node.duties.quiet
QUIET: Final = 11
# node.membership.group_reports
GROUPS: Final = 12

COUNTS: Final = 249
ALARMS: Final = 250
APPLIED: Final = 254
