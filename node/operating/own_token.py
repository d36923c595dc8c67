"""A node's own token: what the hooks beside a node show instead of a login, which operators may change at any time.

Whoever may read the node's data can show it. What it opens, and from where, is said in `node.http.operating`. It is
another one after every start, and in no log.
"""

import hmac


class OwnToken:
    """The token of a node that runs."""

    def __init__(self, text: str) -> None:
        self._octets = text.encode()

    def is_shown(self, text: str) -> bool:
        """Whether the text is the token; takes as long for any text of that length."""
        return hmac.compare_digest(self._octets, text.encode("utf-8", "surrogateescape"))
