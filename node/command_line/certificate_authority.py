"""A certificate authority in a folder: `ca.pem` and `ca.key`, and a certificate and key for each name it issues to.

Keys are on the curve P-256, files are PEM, keys can be read by their owner alone. What a name gets is good for both
ends of a connection: nodes are both.
"""

import datetime
import ipaddress
import os
import re
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE: Final = "ca.pem"
KEY: Final = "ca.key"
_SLOW_CLOCKS: Final = datetime.timedelta(minutes=10)
"""Certificates are good from so long ago: clocks of nodes are not all the same."""
_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.@-]{0,62}[A-Za-z0-9_])?\Z")


class AuthorityError(Exception):
    """What was asked for can't be done; the text says why."""


def make_authority(folder: Path, name: str, days: int) -> None:
    """Make the authority. Raises AuthorityError if there is one already; OSError."""
    if (folder / CERTIFICATE).exists() or (folder / KEY).exists():
        raise AuthorityError(f"{folder} has an authority already; another one would make strangers of all its nodes")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    certificate = builder.sign(key, hashes.SHA256())
    _write_new(folder / KEY, _key_octets(key), 0o600)
    _write_new(folder / CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def issue(folder: Path, names: list[str], days: int, renew: bool) -> tuple[Path, Path]:
    """Make a certificate and a key for these host names and addresses; the files, called after the first.

    Files that are there are replaced if `renew` says so. Raises AuthorityError, OSError.
    """
    for name in names:
        if not _is_address(name) and not _NAME.match(name):
            raise AuthorityError(f"'{name}' is neither a host name nor an address")
    certificate_file, key_file = folder / f"{names[0]}.pem", folder / f"{names[0]}.key"
    if names[0] == Path(CERTIFICATE).stem:
        raise AuthorityError(f"'{names[0]}' is what the authority's own files are called")
    there = [file for file in (certificate_file, key_file) if file.exists()]
    if there and not renew:
        raise AuthorityError(f"{there[0]} is there already; --renew replaces it")
    authority, authority_key = _authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    both_ends = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(subject, authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(both_ends), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    certificate = builder.sign(authority_key, hashes.SHA256())
    # The key first: a node that looks in between sees two files that do not fit, and keeps what it has.
    _replace(key_file, _key_octets(key), 0o600)
    _replace(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    return certificate_file, key_file


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE).read_bytes())
        key = serialization.load_pem_private_key((folder / KEY).read_bytes(), None)
    except FileNotFoundError as error:
        raise AuthorityError(f"{error.filename} is not there; `mayfly tls init` makes an authority") from None
    except (ValueError, TypeError):
        raise AuthorityError(
            f"{folder / CERTIFICATE} and {folder / KEY} can't be read as certificate and key"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise AuthorityError(f"{folder / KEY} is not the key of {folder / CERTIFICATE}")
    return certificate, key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLOW_CLOCKS)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _alternative(name: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(name)) if _is_address(name) else x509.DNSName(name)


def _key_octets(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_new(file: Path, octets: bytes, mode: int) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as handle:
        handle.write(octets)


def _replace(file: Path, octets: bytes, mode: int) -> None:
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    _write_new(new, octets, mode)
    new.replace(file)
