"""`mayfly demo`: the main job, shown and checked."""

import shlex
import sys

import click

from mayfly.node.shell.private_files import keeping_private


@click.command("demo")
@click.option("--once", is_flag=True, help="End after the demonstration; exit code 0 if every promise was kept.")
@click.option("--base-port", type=int, default=5672, show_default=True, help="AMQP port of the first node.")
def command(once: bool, base_port: int) -> None:
    """Start three nodes and show with an ordinary client what they promise.

    The cluster stays up afterwards, for a client of your own, until Ctrl-C.
    """
    click.get_current_context().with_resource(keeping_private())
    try:
        import pika  # noqa: F401  # not a dependency of the broker
    except ImportError:
        raise click.ClickException(
            "the demonstration needs the Python client pika (1.3 or newer), which is not installed beside this "
            f"MayflyMQ: {shlex.quote(sys.executable)} -m pip install 'pika>=1.3'"
        ) from None
    from mayfly.node.demonstration import demonstrate

    sys.exit(demonstrate(once=once, base_port=base_port))
