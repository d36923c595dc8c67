"""Which MayflyMQ this is."""

from typing import Final

VERSION: Final = "0.1.0"

RABBITMQ_VERSION: Final = "4.3.6"
"""The newest version of RabbitMQ whose recorded answers are matched (RULES Q4). Clients of both protocols go by the
number that they are told: this one, unless the setting `rabbitmq_version` says another."""
