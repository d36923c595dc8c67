"""Mutual TLS between nodes."""

import ssl
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

    def check(self) -> None:
        """Raise `OSError`, with the file's name, when a file can't be read or used."""
        for file in (self.certificate, self.key, self.authority):
            file.read_bytes()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except ssl.SSLError as error:
            text = f"{self.certificate} and {self.key} are not a certificate and its key: {error}"
            raise OSError(text) from None
        try:
            context.load_verify_locations(self.authority)
        except ssl.SSLError as error:
            raise OSError(f"{self.authority} is not a certificate: {error}") from None

    def server_context(self) -> ssl.SSLContext:
        """TLS of the frame stream where it is listened for: as `server_credentials`. Raises `OSError`."""
        return self._with_files(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def client_context(self) -> ssl.SSLContext:
        """TLS of the frame stream where it is opened: as `channel_credentials`. Raises `OSError`."""
        return self._with_files(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    def _with_files(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.certificate, self.key)
        context.load_verify_locations(self.authority)
        return context

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
