"""Mutual TLS between nodes."""

from pathlib import Path

import grpc


class TlsFiles:
    """PEM files of a node: its certificate (chain), its key, and the authority that signed all nodes'.

    Peers' certificates have to name the host that this node connects to; or, with `server_name`, that name.
    """

    def __init__(
        self, certificate: Path | str, key: Path | str, authority: Path | str, server_name: str = ""
    ) -> None:
        self.certificate = Path(certificate)
        self.key = Path(key)
        self.authority = Path(authority)
        self.server_name = server_name

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials of a server that demands a certificate of the same authority. Raises `OSError`."""
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.certificate.read_bytes())],
            root_certificates=self.authority.read_bytes(),
            require_client_auth=True,
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a client that shows its certificate and checks the server's. Raises `OSError`."""
        return grpc.ssl_channel_credentials(
            root_certificates=self.authority.read_bytes(),
            private_key=self.key.read_bytes(),
            certificate_chain=self.certificate.read_bytes(),
        )
