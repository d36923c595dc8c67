"""`mayfly demo`: the main job, shown and checked."""

import sys

import click


@click.command("demo")
@click.option("--once", is_flag=True, help="End after the demonstration; exit code 0 if every promise was kept.")
@click.option("--base-port", type=int, default=5672, show_default=True, help="AMQP port of the first node.")
def command(once: bool, base_port: int) -> None:
    """Start three nodes and show with an ordinary client what they promise.

    The cluster stays up afterwards, for a client of your own, until Ctrl-C.
    """
    try:
        import pika  # noqa: F401  # not a dependency of the broker
    except ImportError:
        raise click.ClickException("the demonstration needs the client pika: pip install 'mayfly[demo]'") from None
    from node.demonstration import demonstrate

    sys.exit(demonstrate(once=once, base_port=base_port))
