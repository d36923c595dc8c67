"""What keeps strangers from being a node of the cluster, and what the operator is told where nothing does."""

from ipaddress import ip_address

from mayfly.cluster.transport.cluster_secret import ClusterSecrets, secret_fault
from mayfly.node.settings import NodeSettings, Problem, SettingsError
from mayfly.node.settings.kinds import Address


def cluster_secrets(settings: NodeSettings) -> ClusterSecrets:
    """The cluster secrets that the settings name, or the file that they name. Raises SettingsError; no text has any of
    what is in the file."""
    path = settings.cluster_secret_file
    if path is None:
        return ClusterSecrets(settings.cluster_secret.split(), settings.cluster_secret_demanded)
    try:
        # More than all of them together may have is not read.
        with path.open("rb") as file:
            known = file.read(_MOST_OCTETS).decode("ascii", "replace").split()
    except OSError as error:
        text = str(Problem("cluster_secret_file", str(path), "as a file", f"one that can be read ({error.strerror})"))
        raise SettingsError([text]) from None
    fault = secret_fault(known) if known else "a secret in it"
    if fault:
        raise SettingsError([str(Problem("cluster_secret_file", str(path), "as a file", fault))])
    return ClusterSecrets(known, settings.cluster_secret_demanded)


def protection(settings: NodeSettings) -> list[str]:
    """What a node has to show to be taken for a member: "tls", "secret"; nothing: to connect is enough."""
    shown = ["tls"] if settings.peer_tls is not None else []
    return [*shown, "secret"] if _has_secret(settings) and settings.cluster_secret_demanded else shown


def peer_warnings(settings: NodeSettings) -> list[str]:
    """What is wrong where other nodes connect; nothing on loopback, where only this machine can, and with TLS."""
    listens = (settings.peer_address, settings.frames_listen_address)
    exposed = [str(address) for address in listens if not _is_loopback(address)]
    if not exposed or settings.peer_tls is not None:
        return []
    where = " and ".join(exposed)
    if not _has_secret(settings):
        return [
            f"whoever reaches {where} can read and change all messages and become a node of the cluster: there is "
            "neither TLS between nodes nor a cluster secret; set peer_tls_cert, peer_tls_key and peer_tls_ca, or "
            "cluster_secret"
        ]
    warnings = [
        f"nodes speak without TLS at {where}: whoever is on the way between them can read and change all messages; set "
        "peer_tls_cert, peer_tls_key and peer_tls_ca"
    ]
    if not settings.cluster_secret_demanded:
        warnings.append(
            "nodes without the cluster secret are taken as well: once all have it, start them with "
            "cluster_secret_demanded = true"
        )
    return warnings


_MOST_OCTETS = 4096


def _has_secret(settings: NodeSettings) -> bool:
    return bool(settings.cluster_secret) or settings.cluster_secret_file is not None


def _is_loopback(address: Address) -> bool:
    try:
        return ip_address(address.host.partition("%")[0]).is_loopback
    except ValueError:
        return address.host == "localhost"
