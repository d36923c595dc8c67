"""`mayfly tls`: what it makes is good for TLS between those it names, and for nobody else."""

import ssl
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography import x509

from mayfly.cluster.transport.tls import PeerTlsFiles
from mayfly.node.command_line import main
from mayfly.node.shell.certificates_watch import Certificates, look_at


def mayfly(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tls", *arguments])


def good(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "authority"
    assert "ca.pem" in good(mayfly("init", "--folder", str(folder)))
    good(mayfly("issue", "a.example,10.0.0.1", "127.0.0.1", "--folder", str(folder)))
    return folder


def files(folder: Path, name: str) -> PeerTlsFiles:
    return PeerTlsFiles(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")


def shake_hands(server: PeerTlsFiles, client: PeerTlsFiles, name: str) -> None:
    """A whole handshake in memory. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.client_context().wrap_bio(to_client, to_server, server_hostname=name),
        server.server_context().wrap_bio(to_server, to_client, server_side=True),
    ]
    left = list(ends)
    for _ in range(20):
        for end in list(left):
            try:
                end.do_handshake()
                left.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not left:
            break
    assert not left
    # A client of TLS 1.3 is done before the server has looked at its certificate.
    ends[1].write(b"welcome")
    assert ends[0].read(7) == b"welcome"


def test_what_is_issued_is_good_for_both_ends(folder: Path) -> None:
    one, other = files(folder, "a.example"), files(folder, "127.0.0.1")
    for each in (one, other):
        each.check()
    shake_hands(one, other, "a.example")
    shake_hands(one, other, "10.0.0.1")
    shake_hands(other, one, "127.0.0.1")
    with pytest.raises(ssl.SSLCertVerificationError, match="ostname mismatch"):
        shake_hands(one, other, "b.example")


def test_another_authority_is_another(folder: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    good(mayfly("init", "--folder", str(theirs)))
    good(mayfly("issue", "a.example", "--folder", str(theirs)))
    stranger = PeerTlsFiles(theirs / "a.example.pem", theirs / "a.example.key", folder / "ca.pem")
    with pytest.raises(ssl.SSLError):
        shake_hands(files(folder, "a.example"), stranger, "a.example")
    with pytest.raises(ssl.SSLError):
        shake_hands(stranger, files(folder, "a.example"), "a.example")


def test_what_a_node_has_signs_nothing(folder: Path) -> None:
    """Otherwise whoever gets hold of one node's key makes as many nodes as wanted."""
    certificate = x509.load_pem_x509_certificate((folder / "a.example.pem").read_bytes())
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


def test_keys_are_the_owner_s(folder: Path) -> None:
    for name in ("ca.key", "a.example.key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def test_nothing_is_overwritten_unless_asked(folder: Path) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    again = mayfly("init", "--folder", str(folder))
    assert again.exit_code == 1
    assert "has an authority already" in again.output
    again = mayfly("issue", "a.example", "--folder", str(folder))
    assert again.exit_code == 1
    assert "--renew replaces it" in again.output
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    good(mayfly("issue", "a.example", "--folder", str(folder), "--renew"))
    assert (folder / "a.example.pem").read_bytes() != before["a.example.pem"]
    shake_hands(files(folder, "a.example"), files(folder, "127.0.0.1"), "a.example")


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ("ca", "the authority's own files"), ("a b", "neither a host name nor an address"),
        ("../x", "neither a host name"), ("a,,b", "neither a host name"), ("", "neither a host name"),
    ],
)  # fmt: skip
def test_bad_names(folder: Path, node: str, text: str) -> None:
    before = sorted(folder.iterdir())
    result = mayfly("issue", node, "--folder", str(folder))
    assert result.exit_code == 1
    assert text in result.output
    assert sorted(folder.iterdir()) == before


def test_without_an_authority(tmp_path: Path) -> None:
    result = mayfly("issue", "a", "--folder", str(tmp_path))
    assert result.exit_code == 1
    assert "`mayfly tls init` makes an authority" in result.output


def test_files_that_can_not_be_used_leave_the_others_reloaded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    read = []

    def broken() -> None:
        raise OSError("own.pem is no certificate")

    Certificates([], {"for nodes": broken, "for clients": lambda: read.append(1)}).reload("asked for")
    assert read == [1]
    assert "certificates for nodes can't be used (asked for); those from before stay in use: own.pem is" in caplog.text


def test_replaced_files_look_different(folder: Path) -> None:
    watched = [folder / "a.example.pem", folder / "gone.pem"]
    before = look_at(watched)
    assert look_at(watched) == before
    good(mayfly("issue", "a.example", "--folder", str(folder), "--renew"))
    assert look_at(watched) != before
