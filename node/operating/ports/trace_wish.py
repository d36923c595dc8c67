"""What an operator wants to see happen."""

from typing import Final, NamedTuple

LONGEST_TRACE_S: Final = 60.0
MOST_EVENTS: Final = 10_000


class TraceWish(NamedTuple):
    """Of one queue of a vhost ("": of all queues), and of one user ("": of all), for some seconds."""

    vhost: str
    queue: str
    user: str
    seconds: float
    most: int
