"""`mayfly up`: a cluster of node processes on this machine."""

import os
import sys
import time
from pathlib import Path
from typing import Final

import click

from mayfly.node.command_line.secret_file import secret_file
from mayfly.node.local_nodes import exit_codes
from mayfly.node.local_nodes.local_cluster import (
    ChildEnd,
    ClusterError,
    LocalCluster,
    NodePlan,
    default_data_dir,
    log_tail,
    plan_cluster,
)
from mayfly.node.local_nodes.stop_signals import StopSignals
from mayfly.node.settings import SettingsError
from mayfly.node.settings.sources import load_settings
from mayfly.node.shell.private_files import keeping_private

_WATCH_S: Final = 0.1
_MOST_NODES: Final = 99


@click.command("up")
@click.option("--nodes", type=click.IntRange(1, _MOST_NODES), default=3, show_default=True, help="How many nodes.")
@click.option(
    "--base-port",
    type=int,
    default=5672,
    show_default=True,
    help="AMQP port of the first node; the next ones follow. HTTP is 10000 above, peers 20000, their frames 15000.",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=default_data_dir,
    help="Folder of the nodes' folders and logs. [default: ./mayfly-data]",
)
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="TOML file with further settings, the same for every node.",
)
def command(nodes: int, base_port: int, data_dir: Path, config: Path | None) -> None:
    """Run a cluster on this machine, for trying and testing: a process for each node.

    Prints one line for each node when it serves, with the command that starts it alone, on the same data.
    The nodes prove a cluster secret to each other, which stands in the file cluster-secret of the folder; a further
    node has to be given that file (--cluster-secret-file).

    Ends its nodes on SIGTERM and Ctrl-C. Settings in the environment (MAYFLY_...) hold for all.
    """
    click.get_current_context().with_resource(keeping_private())
    try:
        plans = plan_cluster(nodes, base_port, data_dir, config, secret_file(data_dir, config, os.environ))
        for plan in plans:
            # Each node reads them, too; one text here is better than one in each log.
            load_settings(config, os.environ, {key: str(value) for key, value in plan.own_settings().items()})
        cluster = LocalCluster(plans)
        with StopSignals() as signals:
            try:
                _run(cluster, signals)
            finally:
                cluster.stop()
    except SettingsError as error:
        raise exit_codes.BadSettings(error) from None
    except NoneMayGoOn as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(exit_codes.REFUSED)
    except (ClusterError, OSError) as error:
        raise click.ClickException(str(error)) from None


class NoneMayGoOn(ClusterError):
    """Every node has ended, and none of them may be started again as it is."""


def _run(cluster: LocalCluster, signals: StopSignals) -> None:
    codes: list[int] = []
    try:
        _watch(cluster, signals, codes)
    except ClusterError as error:
        if len(codes) == len(cluster.plans) and set(codes) == {exit_codes.REFUSED}:
            raise NoneMayGoOn(str(error)) from None
        raise


def _watch(cluster: LocalCluster, signals: StopSignals, codes: list[int]) -> None:
    """Until a signal comes; with the exit codes of those that end. Raises ClusterError when none is left."""

    def on_serving(plan: NodePlan) -> None:
        click.echo(serving_line(plan, cluster.pid(plan)))

    def on_early_end(end: ChildEnd) -> None:
        codes.append(end.code)
        click.echo(f"{end.describe()} before it served; {log_tail(end.plan)}", err=True)

    cluster.start()
    cluster.wait_until_serving(on_serving, on_early_end, signals.asked)
    while not signals.asked():
        for end in cluster.ended():
            codes.append(end.code)
            click.echo(f"{end.describe()}; the others go on", err=True)
        if not cluster.running():
            raise ClusterError("no node is left")
        time.sleep(_WATCH_S)


def serving_line(plan: NodePlan, pid: int | None) -> str:
    """The one line that tells of a node that serves."""
    addresses = f"AMQP {plan.amqp}, HTTP {plan.http}, peers {plan.peer}, frames {plan.frames}"
    return f"{plan.name} serves: {addresses}, pid {pid}. Alone again: {plan.command()}"
