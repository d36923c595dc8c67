"""Tools for RabbitMQ's management API, called for all that they can do; each call is counted.

`python -m tests.interop.management_tools` prints the counts, on a node that it starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.node.http.real_node import Node

_WITHIN_S: Final = 60.0
_SCRIPTS: Final = "usr/lib/rabbitmq/lib/*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin"
NO_SCRIPT: Final = "no rabbitmqadmin: Debian's package rabbitmq-server has it, or RABBITMQADMIN says where it is"


class Count(NamedTuple):
    """How many calls there were, and those that failed, with why."""

    calls: int
    failed: dict[str, str]

    @property
    def passed(self) -> int:
        """How many did not fail."""
        return self.calls - len(self.failed)


COMMANDS: Final = """
show overview
show overview node rabbitmq_version
list vhosts
list vhosts name messages
list users
list nodes
list nodes name type mem_used
list permissions
list parameters
list policies
list operator_policies
list vhost_limits
list exchanges
list exchanges name type
list queues
list bindings
list connections
list channels
list consumers
declare vhost name=v1
declare vhost name=v2 tracing=true
declare user name=u1 password=pw tags=administrator
declare user name=u2 password_hash= tags=
declare permission vhost=v1 user=guest configure=.* write=.* read=.*
declare permission vhost=v1 user=u1 configure=.* write=.* read=.*
-V v1 declare exchange name=x type=direct
-V v1 declare exchange name=y type=topic durable=false auto_delete=true internal=false
-V v1 declare queue name=q durable=true
-V v1 declare queue name=qq queue_type=quorum
-V v1 declare queue name=qa arguments={"x-message-ttl":60000}
-V v1 declare binding source=x destination=q routing_key=k
-V v1 declare binding source=x destination=y destination_type=exchange routing_key=k2
-V v1 declare binding source=x destination=qq
-V v1 declare policy name=p pattern=^q definition={"max-length":100} apply-to=queues priority=1
-V v1 declare operator_policy name=op pattern=^q definition={"max-length":1000} apply-to=queues
declare vhost_limit vhost=v1 name=max-queues value=50
declare parameter component=federation-upstream name=f value={"uri":"amqp://"}
-V v1 publish exchange=x routing_key=k payload=hello
-V v1 publish routing_key=q payload=again properties={"delivery_mode":2}
-V v1 publish exchange=amq.default routing_key=q payload=aGVsbG8= payload_encoding=base64
-V v1 get queue=q
-V v1 get queue=q count=2 ackmode=ack_requeue_false
-V v1 get queue=q payload_file=FOLDER/payload ackmode=reject_requeue_true
-V v1 list queues vhost name node messages message_stats.publish_details.rate
-V v1 list queues --sort=messages --sort-reverse
-f long -d 3 list queues
-f raw_json list queues
-f kvp list exchanges
-f tsv list bindings
-f bash list users
-f pretty_json show overview
-V v1 purge queue name=q
export FOLDER/all.json
-V v1 export FOLDER/v1.json
import FOLDER/all.json
-V v1 import FOLDER/v1.json
close connection name=CONNECTION
-V v1 delete binding source=x destination_type=queue destination=q properties_key=k
-V v1 delete policy name=p
-V v1 delete operator_policy name=op
delete vhost_limit vhost=v1 name=max-queues
delete parameter component=federation-upstream name=f
-V v1 delete queue name=q
-V v1 delete exchange name=x
delete permission vhost=v1 user=u1
delete user name=u1
delete vhost name=v1
delete user name=u2
delete vhost name=v2
help subcommands
help config
""".strip().split("\n")
"""For rabbitmqadmin of 3.10: all its subcommands, and its formats."""

REFUSED: Final = frozenset(line for line in COMMANDS if "federation-upstream" in line)
"""These fail on a RabbitMQ without plugins, too."""


def script() -> Path | None:
    """rabbitmqadmin, if it is there."""
    told = os.environ.get("RABBITMQADMIN")
    return Path(told) if told else next(iter(sorted(Path("/").glob(_SCRIPTS))), None)


def rabbitmqadmin(path: Path, node: Node) -> Count:
    """Each command in a process."""
    host, _, port = node.address.rpartition(":")
    failed: dict[str, str] = {}
    node.connect()
    with tempfile.TemporaryDirectory() as folder:
        for line in COMMANDS:
            told = line.replace("FOLDER", folder).split(" ")
            if "CONNECTION" in line:
                name = node.ask("GET", "/api/connections")[1][0]["name"]
                told = [word.replace("CONNECTION", name) for word in told]
            words = [sys.executable, str(path), "-H", host, "-P", port, *told]
            done = subprocess.run(words, capture_output=True, text=True, timeout=_WITHIN_S, check=False)
            if done.returncode != 0:
                failed[line] = " ".join((done.stdout + done.stderr).split())[-200:]
    return Count(len(COMMANDS), failed)


def pyrabbit2(node: Node) -> Count:
    """Its client's methods."""
    from pyrabbit2 import api

    client = api.Client(node.address, "guest", "guest")
    connection, channel = _names(node)
    hash_of_pw = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    policy = {"pattern": "^q", "definition": {"max-length": 5}, "priority": 0, "apply-to": "queues"}
    calls: dict[str, Callable[[], Any]] = {
        "is_alive": client.is_alive,
        "get_whoami": client.get_whoami,
        "get_overview": client.get_overview,
        "get_nodes": client.get_nodes,
        "get_users": client.get_users,
        "get_definitions": client.get_definitions,
        "get_extensions": client.get_extensions,
        "get_cluster_name": client.get_cluster_name,
        "create_vhost": lambda: client.create_vhost("p2"),
        "get_all_vhosts": client.get_all_vhosts,
        "get_vhost_names": client.get_vhost_names,
        "get_vhost": lambda: client.get_vhost("p2"),
        "create_user": lambda: client.create_user("pu", "pw", tags="management"),
        "create_user with a hash": lambda: client.create_user("ph", password_hash=hash_of_pw),
        "set_vhost_permissions": lambda: client.set_vhost_permissions("p2", "pu", ".*", ".*", ".*"),
        "get_permissions": client.get_permissions,
        "get_vhost_permissions": lambda: client.get_vhost_permissions("p2"),
        "get_user_permissions": lambda: client.get_user_permissions("pu"),
        "get_permission": lambda: client.get_permission("p2", "pu"),
        "create_exchange": lambda: client.create_exchange("p2", "x", "topic", durable=True),
        "get_exchanges": lambda: client.get_exchanges("p2"),
        "get_exchange": lambda: client.get_exchange("p2", "x"),
        "create_queue": lambda: client.create_queue("p2", "q", durable=True),
        "get_queues": client.get_queues,
        "get_queues with a pattern": lambda: client.get_queues("p2", pattern="q"),
        "get_queues with a regex": lambda: client.get_queues("p2", pattern="^q$", regex=True)[0],
        "get_queue": lambda: client.get_queue("p2", "q"),
        "create_binding": lambda: client.create_binding("p2", "x", "q", "k"),
        "get_bindings": client.get_bindings,
        "get_queue_bindings": lambda: client.get_queue_bindings("p2", "q"),
        "publish": lambda: _true(client.publish("p2", "x", "k", "payload")),
        "get_queue_depth": lambda: client.get_queue_depth("p2", "q"),
        "get_queue_depths": lambda: client.get_queue_depths("p2", ["q"]),
        "get_messages": lambda: client.get_messages("p2", "q", requeue=True)[0]["payload"],
        "purge_queue": lambda: client.purge_queue("p2", "q"),
        "purge_queues": lambda: client.purge_queues([("q", "p2")]),
        "create_policy": lambda: client.create_policy("p2", "p", **policy),
        "get_policy": lambda: client.get_policy("p2", "p"),
        "get_all_policies": client.get_all_policies,
        "delete_policy": lambda: client.delete_policy("p2", "p"),
        "delete_binding": lambda: client.delete_binding("p2", "x", "q", "k"),
        "get_connections": client.get_connections,
        "get_connection": lambda: client.get_connection(connection),
        "get_channels": client.get_channels,
        "get_channel": lambda: client.get_channel(channel),
        "delete_connection": lambda: client.delete_connection(connection),
        "delete_exchange": lambda: client.delete_exchange("p2", "x"),
        "delete_queue": lambda: client.delete_queue("p2", "q"),
        "delete_permission": lambda: client.delete_permission("p2", "pu"),
        "delete_user": lambda: [client.delete_user(name) for name in ("pu", "ph")],
        "delete_vhost": lambda: client.delete_vhost("p2"),
    }
    return _counted(calls.items())


def rabbitmq_admin(node: Node) -> Count:
    """Its methods."""
    from rabbitmq_admin import AdminAPI

    api = AdminAPI(f"http://{node.address}", auth=("guest", "guest"))
    connection, channel = _names(node)
    policy: dict[str, Any] = {"pattern": "^a", "definition": {"max-length": 5}, "apply_to": "queues"}
    exchange = {"type": "direct", "auto_delete": False, "durable": False, "internal": False, "arguments": {}}
    definitions: dict[str, Any] = {}
    member = api.list_nodes()[0]["name"]
    calls: dict[str, Callable[[], Any]] = {
        "overview": api.overview,
        "get_cluster_name": api.get_cluster_name,
        "list_nodes": api.list_nodes,
        "get_node": lambda: api.get_node(member, memory=True, binary=True),
        "list_extensions": lambda: _true(api.list_extensions() == [{"javascript": "dispatcher.js"}]),
        "get_definitions": lambda: definitions.update(api.get_definitions()),
        "post_definitions": lambda: api.post_definitions(definitions),
        "list_connections": api.list_connections,
        "get_connection": lambda: api.get_connection(connection),
        "list_connection_channels": lambda: api.list_connection_channels(connection),
        "list_channels": api.list_channels,
        "get_channel": lambda: api.get_channel(channel),
        "list_consumers": api.list_consumers,
        "list_consumers_for_vhost": lambda: api.list_consumers_for_vhost("/"),
        "list_exchanges": api.list_exchanges,
        "list_exchanges_for_vhost": lambda: api.list_exchanges_for_vhost("/"),
        "create_exchange_for_vhost": lambda: api.create_exchange_for_vhost("ax", "/", exchange),
        "get_exchange_for_vhost": lambda: api.get_exchange_for_vhost("ax", "/"),
        "delete_exchange_for_vhost": lambda: api.delete_exchange_for_vhost("ax", "/"),
        "list_bindings": api.list_bindings,
        "list_bindings_for_vhost": lambda: api.list_bindings_for_vhost("/"),
        "create_vhost": lambda: api.create_vhost("av", tracing=True),
        "list_vhosts": api.list_vhosts,
        "get_vhost": lambda: api.get_vhost("av"),
        "create_user": lambda: api.create_user("au", "pw"),
        "list_users": api.list_users,
        "get_user": lambda: api.get_user("au"),
        "create_user_permission": lambda: api.create_user_permission("au", "av"),
        "list_user_permissions": lambda: api.list_user_permissions("au"),
        "get_user_permission": lambda: api.get_user_permission("av", "au"),
        "list_permissions": api.list_permissions,
        "delete_user_permission": lambda: api.delete_user_permission("au", "av"),
        "whoami": api.whoami,
        "create_policy_for_vhost": lambda: api.create_policy_for_vhost("/", "ap", **policy),
        "list_policies": api.list_policies,
        "list_policies_for_vhost": lambda: api.list_policies_for_vhost("/"),
        "get_policy_for_vhost": lambda: api.get_policy_for_vhost("/", "ap"),
        "delete_policy_for_vhost": lambda: api.delete_policy_for_vhost("/", "ap"),
        "is_vhost_alive": lambda: api.is_vhost_alive("/"),
        "delete_connection": lambda: api.delete_connection(connection, "a reason"),
        "delete_user": lambda: api.delete_user("au"),
        "delete_vhost": lambda: api.delete_vhost("av"),
    }
    return _counted(calls.items())


def amqpstorm_management(node: Node) -> Count:
    """Its methods."""
    from amqpstorm.management import ManagementApi

    api = ManagementApi(f"http://{node.address}", "guest", "guest")
    connection, channel = _names(node)
    calls: dict[str, Callable[[], Any]] = {
        "aliveness_test": api.aliveness_test,
        "cluster_name": api.cluster_name,
        "nodes": api.nodes,
        "node": lambda: api.node(api.nodes()[0]["name"]),
        "overview": api.overview,
        "whoami": api.whoami,
        "healthchecks.get": api.healthchecks.get,
        "healthchecks.get of a node": lambda: api.healthchecks.get(api.overview()["contexts"][0]["node"]),
        "user.create": lambda: api.user.create("su", "pw", tags="management"),
        "user.get": lambda: api.user.get("su"),
        "user.list": api.user.list,
        "user.set_permission": lambda: api.user.set_permission("su", "/"),
        "user.get_permission": lambda: api.user.get_permission("su", "/"),
        "user.get_permissions": lambda: api.user.get_permissions("su"),
        "user.delete_permission": lambda: api.user.delete_permission("su", "/"),
        "user.delete of several": lambda: api.user.delete(["su"]),
        "virtual_host.create": lambda: api.virtual_host.create("sv"),
        "virtual_host.get": lambda: api.virtual_host.get("sv"),
        "virtual_host.list": api.virtual_host.list,
        "virtual_host.get_permissions": lambda: api.virtual_host.get_permissions("sv"),
        "virtual_host.delete": lambda: api.virtual_host.delete("sv"),
        "exchange.declare": lambda: api.exchange.declare("sx", durable=True),
        "exchange.declare another": lambda: api.exchange.declare("sy"),
        "exchange.declare passively": lambda: api.exchange.declare("sx", passive=True),
        "exchange.get": lambda: api.exchange.get("sx"),
        "exchange.list": api.exchange.list,
        "exchange.list of all": lambda: api.exchange.list(show_all=True, name="s", page_size=5),
        "exchange.bind": lambda: api.exchange.bind("sx", "sy", "k"),
        "exchange.bindings": lambda: api.exchange.bindings("sx"),
        "exchange.unbind": lambda: api.exchange.unbind("sx", "sy", "k", properties_key="k"),
        "queue.declare": lambda: api.queue.declare("sq", durable=True),
        "queue.declare passively": lambda: api.queue.declare("sq", passive=True),
        "queue.get": lambda: api.queue.get("sq"),
        "queue.list": api.queue.list,
        "queue.list by regex": lambda: _true(len(api.queue.list(name="^s.$", use_regex=True, page_size=10))),
        "queue.bind": lambda: api.queue.bind("sq", "sx", "k"),
        "queue.bindings": lambda: api.queue.bindings("sq"),
        "basic.publish": lambda: _true(api.basic.publish("hello", "k", "sx")["routed"]),
        "basic.get": lambda: _true(api.basic.get("sq", requeue=True)[0].body == "hello"),
        "basic.get as a dict": lambda: api.basic.get("sq", to_dict=True)[0]["payload"],
        "queue.unbind": lambda: api.queue.unbind("sq", "sx", "k", properties_key="k"),
        "queue.purge": lambda: api.queue.purge("sq"),
        "queue.delete": lambda: api.queue.delete("sq"),
        "exchange.delete": lambda: [api.exchange.delete(name) for name in ("sx", "sy")],
        "connection.list": api.connection.list,
        "connection.get": lambda: api.connection.get(connection),
        "channel.list": api.channel.list,
        "channel.get": lambda: api.channel.get(channel),
        "connection.close": lambda: api.connection.close(connection, reason="a reason"),
    }
    return _counted(calls.items())


def _names(node: Node) -> tuple[str, str]:
    """Of a connection, which a tool may close, and its channel."""
    node.connect()
    row = node.ask("GET", "/api/channels")[1][0]
    return row["connection_details"]["name"], row["name"]


def _true(value: object) -> None:
    if not value:
        raise ValueError(f"it said {value!r}")


def _counted(calls: Iterable[tuple[str, Callable[[], Any]]]) -> Count:
    failed: dict[str, str] = {}
    count = 0
    for name, call in calls:
        count += 1
        try:
            call()
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"[:200]
    return Count(count, failed)


def main() -> None:
    """Print the counts."""
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder))
        counts = {tool.__name__: tool(node) for tool in (pyrabbit2, rabbitmq_admin, amqpstorm_management)}
        path = script()
        if path is not None:
            counts["rabbitmqadmin"] = rabbitmqadmin(path, node)
        node.stop()
    for name, count in counts.items():
        print(f"{name}: {count.passed} of {count.calls}", json.dumps(count.failed))


if __name__ == "__main__":
    main()
