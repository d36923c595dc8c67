"""The `mayfly` command. Every subcommand is a module of its own, loaded when it is asked for."""

from typing import Final

import click

from mayfly.node.shell.build import describe_version
from mayfly.node.version import VERSION

# Subcommand -> (module, help). The modules of one do not burden the others: `mayfly status` needs no gRPC.
_COMMANDS: Final = {
    "node": "mayfly.node.command_line.node_command",
    "up": "mayfly.node.command_line.up_command",
    "status": "mayfly.node.command_line.status_command",
    "cluster": "mayfly.node.command_line.cluster_command",
    "ready": "mayfly.node.command_line.ready_command",
    "export": "mayfly.node.command_line.export_command",
    "import": "mayfly.node.command_line.import_command",
    "snapshot": "mayfly.node.command_line.snapshot_command",
    "restore": "mayfly.node.command_line.restore_command",
    "drain": "mayfly.node.command_line.drain_command",
    "revive": "mayfly.node.command_line.revive_command",
    "check": "mayfly.node.command_line.check_command",
    "report": "mayfly.node.command_line.report_command",
    "deadletters": "mayfly.node.command_line.deadletters_command",
    "shards": "mayfly.node.command_line.shards_command",
    "brake": "mayfly.node.command_line.brake_command",
    "redrive": "mayfly.node.command_line.redrive_command",
    "forecast": "mayfly.node.command_line.forecast_command",
    "policy": "mayfly.node.command_line.policy_command",
    "user": "mayfly.node.command_line.user_command",
    "schedule": "mayfly.node.command_line.schedule_command",
    "stream": "mayfly.node.command_line.stream_command",
    "journal": "mayfly.node.command_line.journal_command",
    "switch": "mayfly.node.command_line.switch_command",
    "vhost": "mayfly.node.command_line.vhost_command",
    "permission": "mayfly.node.command_line.permission_command",
    "tls": "mayfly.node.command_line.tls_command",
    "queue": "mayfly.node.command_line.queue_command",
    "exchange": "mayfly.node.command_line.exchange_command",
    "binding": "mayfly.node.command_line.binding_command",
    "log": "mayfly.node.command_line.log_command",
    "trace": "mayfly.node.command_line.trace_command",
    "connection": "mayfly.node.command_line.connection_command",
    "channel": "mayfly.node.command_line.channel_command",
    "consumer": "mayfly.node.command_line.consumer_command",
    "demo": "mayfly.node.command_line.demo_command",
}


_OF_RABBITMQ: Final = {
    "list_exchanges": "exchange list", "list_bindings": "binding list", "delete_queue": "queue delete",
    "purge_queue": "queue purge", "list_queues": "queue list", "list_connections": "connection list",
    "list_channels": "channel list",
    "list_consumers": "consumer list", "list_policies": "policy list", "list_users": "user list",
    "list_vhosts": "vhost list", "list_permissions": "permission list", "list_user_permissions": "permission list",
    "add_user": "user add", "delete_user": "user delete", "change_password": "user password",
    "add_vhost": "vhost add", "delete_vhost": "vhost delete", "set_permissions": "permission set",
    "set_policy": "policy set", "clear_policy": "policy delete", "cluster_status": "status", "status": "status",
    "close_connection": "connection close", "export_definitions": "export",
    "import_definitions": "import", "forget_cluster_node": "cluster remove",
    "trace_on": "trace", "ping": "ready", "check_running": "check",
    "check_local_alarms": "check alarms", "check_port_connectivity": "check ports",
    "check_if_node_is_quorum_critical": "ready --without", "drain": "drain", "report": "report",
}  # fmt: skip
"""What rabbitmqctl and rabbitmq-diagnostics call it."""


class _Commands(click.Group):
    """Finds subcommands by name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            raise click.UsageError(_no_such(args[0]), ctx) from None

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        from importlib import import_module

        command = import_module(_COMMANDS[name]).command
        assert isinstance(command, click.Command)
        return command


def _no_such(name: str) -> str:
    from difflib import get_close_matches

    ours = _OF_RABBITMQ.get(name.replace("-", "_"))
    close = [f"'{each}'" for each in get_close_matches(name, _COMMANDS)]
    hint = f" Here it is 'mayfly {ours}'." if ours else f" Did you mean {' or '.join(close)}?" if close else ""
    return f"No such command '{name}'.{hint}"


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, message=f"mayfly {describe_version()}")
def main() -> None:
    """MayflyMQ: a clustered AMQP 0-9-1 broker whose subject is time.

    `mayfly node` alone is a complete broker on 127.0.0.1:5672; `mayfly up` starts a cluster on this machine.
    """


__all__ = ["main"]
