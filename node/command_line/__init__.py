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
    "deadletters": "mayfly.node.command_line.deadletters_command",
    "shards": "mayfly.node.command_line.shards_command",
    "policy": "mayfly.node.command_line.policy_command",
    "user": "mayfly.node.command_line.user_command",
    "vhost": "mayfly.node.command_line.vhost_command",
    "permission": "mayfly.node.command_line.permission_command",
    "tls": "mayfly.node.command_line.tls_command",
    "queue": "mayfly.node.command_line.queue_command",
    "demo": "mayfly.node.command_line.demo_command",
}


class _Commands(click.Group):
    """Finds subcommands by name."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        from importlib import import_module

        command = import_module(_COMMANDS[name]).command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, message=f"mayfly {describe_version()}")
def main() -> None:
    """MayflyMQ: a clustered AMQP 0-9-1 broker whose subject is time.

    `mayfly node` alone is a complete broker on 127.0.0.1:5672; `mayfly up` starts a cluster on this machine.
    """


__all__ = ["main"]
