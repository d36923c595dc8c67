"""`mayfly restore`: the first node of a new cluster, from copies of what the nodes of a lost one had."""

from pathlib import Path

import click

from mayfly.node.settings import NodeSettings
from mayfly.node.shell.private_files import keeping_private


@click.command("restore")
@click.argument("copies", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--data-dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to make; the node is then started with it.",
)
def command(copies: tuple[Path, ...], data_dir: Path) -> None:
    """Make the data of the first node of a new cluster from COPIES of a lost one's nodes.

    COPIES are folders made by mayfly snapshot, or data folders of nodes that are stopped, of as many nodes as it takes
    to have all shards, or more; of each shard the most up-to-date one is taken. The node has the name and id of the
    node of the first one. The others come with empty folders and --join. See docs/operations/backup.md.
    """
    click.get_current_context().with_resource(keeping_private())
    from mayfly.node.shell.restoring import RestoreRefused, restore

    try:
        made = restore(copies, data_dir, NodeSettings().disk_map_bytes)
    except (RestoreRefused, OSError) as error:
        raise click.ClickException(str(error)) from None
    for copy in copies:
        groups = [group for group, folder in made.taken.items() if folder == copy]
        without = [str(group) for group, folders in made.without.items() if copy in folders]
        late = [str(group) for group, folders in made.behind.items() if copy in folders]
        lags = f", behind in groups {', '.join(late)}" if late else ""
        lags += f", without groups {', '.join(without)}" if without else ""
        click.echo(f"{copy}: {len(groups)} of {len(made.taken)} groups taken{lags}")
    if made.empty:
        click.echo(f"shards {', '.join(map(str, made.empty))} had been added and had taken nothing: they begin empty")
    identity = made.identity
    click.echo(f"{data_dir}: node {identity.node} ({identity.name}), the first of cluster {identity.cluster}")
    click.echo("start it without seeds; then the other nodes with empty folders and --join")
