"""The algorithms by which tokens may be signed (RFC 7518, RFC 8037): those of public keys, and no others."""

from typing import Final

OF_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
OF_CURVES: Final = ("ES256", "ES384", "ES512")
OF_ED25519: Final = ("EdDSA",)
ALGORITHMS: Final = (*OF_RSA, *OF_CURVES, *OF_ED25519)
"""What signatures are looked at, unless a setting says fewer."""
