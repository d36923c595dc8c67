"""Where things stand in a message's content header (AMQP 0-9-1, 4.2.6.1): class id (2 octets), weight (2), body size
(8), property flags (2), then the properties whose flag is set, in the order of their flags from the highest."""

from typing import Final

FLAGS_AT: Final = 12
PROPERTIES_AT: Final = 14

CONTENT_TYPE: Final = 0x8000
CONTENT_ENCODING: Final = 0x4000
HEADERS: Final = 0x2000
DELIVERY_MODE: Final = 0x1000
PRIORITY: Final = 0x0800
CORRELATION_ID: Final = 0x0400
REPLY_TO: Final = 0x0200
EXPIRATION: Final = 0x0100
MESSAGE_ID: Final = 0x0080
TIMESTAMP: Final = 0x0040
MESSAGE_TYPE: Final = 0x0020
USER_ID: Final = 0x0010
APP_ID: Final = 0x0008
CLUSTER_ID: Final = 0x0004
MORE_FLAGS: Final = 0x0001
