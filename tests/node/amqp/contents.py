"""Contents for tests."""

from mayfly.node.amqp.content import short_string


def make_exchange_and_key(exchange: str | bytes, routing_key: str | bytes) -> bytes:
    """The two short strings that name where a message was published, as Content keeps them."""
    return short_string(exchange) + short_string(routing_key)
