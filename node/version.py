"""Which MayflyMQ this is."""

from typing import Final

VERSION: Final = "0.1.0"

RABBITMQ_VERSION: Final = "3.10.8"
"""The version of RabbitMQ whose management API is spoken: clients go by it."""
