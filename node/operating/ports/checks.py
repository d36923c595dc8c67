"""RabbitMQ's health checks, of this node and of the cluster."""

from typing import Protocol

from mayfly.node.operating.ports.answers import Answer


class ChecksPort(Protocol):
    """Each answers 200 with `"status": "ok"`, or 503 with the `reason`; 400 for a question that can't be."""

    def alarms(self) -> Answer:
        """Of any node."""

    def local_alarms(self) -> Answer:
        """Of this node."""

    async def certificates(self, within: str, unit: str) -> Answer:
        """Whether those of this node are good for so long: so many days, weeks, months or years."""

    def port_listener(self, port: str) -> Answer:
        """Whether this node listens at that port."""

    def protocol_listener(self, protocol: str) -> Answer:
        """Whether this node listens for that protocol."""

    def quorum_critical(self) -> Answer:
        """Whether all groups keep a majority of their voters without this node."""

    async def leaders(self, vhost: str | None, pattern: str) -> Answer:
        """Whether all replicated queues of the vhost (None: of all) have a leader, of those in whose names the
        expression is found."""

    def ready(self) -> Answer:
        """Whether this node serves clients."""

    def ready_there(self, node: str) -> Answer:
        """The same of a member by name; of another one, whether this node hears it. 404 for one that is none."""

    def below_connection_limit(self) -> Answer:
        """Whether this node takes further connections."""

    def stored(self) -> Answer:
        """Whether the catalog here is up to date."""

    def nothing_to_check(self) -> Answer:
        """What can't be otherwise here."""
