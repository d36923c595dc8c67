"""A node's own token: what the hooks beside a node show instead of a login, which operators may change at any time.

Whoever may read the node's data can show it. What it opens, and from where, is said in `node.http.operating`. It is
another one after every start, and in no log.
"""

import hmac
import os
import secrets
from pathlib import Path
from typing import Final

FILE: Final = "own-token"
_OCTETS: Final = 32


class OwnToken:
    """The token of a node that runs."""

    def __init__(self, text: str) -> None:
        self._octets = text.encode()

    def is_shown(self, text: str) -> bool:
        """Whether the text is the token; takes as long for any text of that length."""
        return hmac.compare_digest(self._octets, text.encode("utf-8", "surrogateescape"))


def write_own_token(folder: Path) -> OwnToken:
    """Make a token and write it to the folder's file for it, which its owner alone may read. Raises OSError; then there
    is no such file."""
    path, draft = folder / FILE, folder / f"{FILE}.unfinished"
    for old in (path, draft):
        old.unlink(missing_ok=True)
    text = secrets.token_urlsafe(_OCTETS)
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{text}\n")
        draft.rename(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return OwnToken(text)
