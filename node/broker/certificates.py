"""Who a client's certificate says it is, for the SASL mechanism EXTERNAL (as RabbitMQ's ssl_cert_login_from has it)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

COMMON_NAME: Final = "common_name"
SUBJECT_ALTERNATIVE_NAME: Final = "subject_alternative_name"
LOGIN_FROM: Final = (COMMON_NAME, SUBJECT_ALTERNATIVE_NAME)

SAN_TYPES: Final = {"dns": "DNS", "email": "email", "ip": "IP Address", "uri": "URI"}
"""Kinds of alternative names: as settings call them, and as `ssl` does."""


def user_of_certificate(certificate: Mapping[str, Any], login_from: str, san_type: str) -> str | None:
    """The user named in a verified certificate, as `SSLSocket.getpeercert()` shows it; None: it names nobody.

    The common name has to be there once; of the alternative names of that type the first counts.
    """
    if login_from == COMMON_NAME:
        names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
        if len(names) != 1:
            return None
    else:
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == SAN_TYPES[san_type]]
    name = names[0] if names else ""
    usable = isinstance(name, str) and name and all(ord(character) >= 32 for character in name)
    return name if usable else None
