"""`mayfly tls`: certificates for the nodes of a cluster."""

from pathlib import Path
from typing import Final

import click

_AUTHORITY_DAYS: Final = 3650
_NODE_DAYS: Final = 825

_in_folder = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("mayfly-tls"),
    show_default=True,
    help="Folder of the authority, and of what it issues. Keep it off the nodes.",
)


@click.group("tls")
def command() -> None:
    """Make a certificate authority for a cluster, and certificates for its nodes.

    Whoever has a certificate of this authority is let in as a node: make another one, in a folder of its own, for
    clients that log in with certificates.
    """


@command.command("init")
@_in_folder
@click.option("--name", default="mayfly", show_default=True, help="The authority's name, for people.")
@click.option(
    "--days", type=click.IntRange(1, 36500), default=_AUTHORITY_DAYS, show_default=True, help="How long good."
)
def init(folder: Path, name: str, days: int) -> None:
    """Make the authority: ca.pem, which every node gets, and ca.key, which none does."""
    from mayfly.node.command_line.certificate_authority import AuthorityError, make_authority

    try:
        make_authority(folder, name, days)
    except (AuthorityError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{folder / 'ca.pem'} is for all nodes (peer_tls_ca); keep {folder / 'ca.key'} to yourself")


@command.command("issue")
@click.argument("nodes", metavar="NODE...", nargs=-1, required=True)
@_in_folder
@click.option("--days", type=click.IntRange(1, 36500), default=_NODE_DAYS, show_default=True, help="How long good.")
@click.option("--renew", is_flag=True, help="Replace files that are there. Running nodes take new ones by themselves.")
def issue(nodes: tuple[str, ...], folder: Path, days: int, renew: bool) -> None:
    """Make a certificate and a key for each NODE.

    A NODE is the host under which other nodes reach it, as in `seeds`: a name or an address; or several with commas
    between: a.example,10.0.0.1. The files are called after the first.
    """
    from mayfly.node.command_line.certificate_authority import AuthorityError
    from mayfly.node.command_line.certificate_authority import issue as issue_to

    for node in nodes:
        names = [name.strip() for name in node.split(",")]
        try:
            certificate, key = issue_to(folder, names, days, renew)
        except (AuthorityError, OSError, ValueError) as error:
            raise click.ClickException(f"{node}: {error}") from None
        click.echo(f"{names[0]}: peer_tls_cert {certificate}, peer_tls_key {key}, peer_tls_ca {folder / 'ca.pem'}")
