"""Mutual TLS between nodes, with files that may be replaced while the node runs."""

import ssl
from collections.abc import Callable
from pathlib import Path

import grpc


class PeerTlsFiles:
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
        """TLS of the frame stream where it is listened for: as `certificate_configuration`. Raises `OSError`."""
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

    def certificate_configuration(self) -> grpc.ServerCertificateConfiguration:
        """For a gRPC server, which demands a certificate of the same authority. Raises `OSError`."""
        return grpc.ssl_server_certificate_configuration(
            [(self.key.read_bytes(), self.certificate.read_bytes())], root_certificates=self.authority.read_bytes()
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a client that shows its certificate and checks the server's. Raises `OSError`."""
        return grpc.ssl_channel_credentials(
            root_certificates=self.authority.read_bytes(),
            private_key=self.key.read_bytes(),
            certificate_chain=self.certificate.read_bytes(),
        )


class SwitchedContext:
    """TLS of a listener whose files may change: handshakes that begin after `reload` go by the new ones.

    `front` is what the listener is given, once; at each client hello the newest context takes its place. Sessions are
    not resumed: who resumed one would not have to show a certificate.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext]) -> None:
        """`make()` reads the files. Raises what that raises."""
        self._make = make
        self.front = self._current = make()
        self.front.options |= ssl.OP_NO_TICKET
        self.front.num_tickets = 0
        self.front.sni_callback = self._switch

    def reload(self) -> None:
        """Read the files again. Raises as `make` does, and changes nothing then."""
        self._current = self._make()

    def _switch(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        if self._current is not self.front:
            connection.context = self._current


class NodeTls:
    """All that a node needs for TLS with others, from files that may be replaced. Open streams stay as they are.

    For connections that this node opens: `channel` (gRPC), `frames`, and `server_name`, which the peer's certificate
    has to name, "" for the host that it is reached at. Take them anew for each.
    """

    def __init__(self, files: PeerTlsFiles) -> None:
        """Raises OSError, with the file's name, when a file can't be read or used."""
        files.check()
        self._files = files
        self.server_name: str = files.server_name
        self._listener = SwitchedContext(files.server_context)
        self.channel: grpc.ChannelCredentials = files.channel_credentials()
        self.frames: ssl.SSLContext = files.client_context()
        self._certificates = files.certificate_configuration()
        self._given = self._certificates
        self.server_credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            self._certificates, self._newer_certificates, require_client_authentication=True
        )

    @property
    def server_context(self) -> ssl.SSLContext:
        """For who listens for frames."""
        return self._listener.front

    def reload(self) -> None:
        """Go by what is in the files now. Raises OSError, and changes nothing then."""
        files = self._files
        files.check()
        channel, frames = files.channel_credentials(), files.client_context()
        certificates = files.certificate_configuration()
        self._listener.reload()
        self.channel, self.frames, self._certificates = channel, frames, certificates

    def _newer_certificates(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked by gRPC at each handshake, in a thread of its own; None: as before."""
        newest = self._certificates
        if newest is self._given:
            return None
        self._given = newest
        return newest
