"""How data of an older layout becomes data of the next one. The numbers are those of `cluster.versions.LAYOUT_VERSION`.

A step works inside the transaction that writes the new number, before anything else is read, write-ahead files too: it
must not touch what their records hold.
"""

from collections.abc import Callable
from typing import Final

import lmdb

USER_PREFIX: Final = b"u"
"""Before the keys of the node's own values in the table `meta`."""


def _keep_level(meta: lmdb.Transaction) -> None:
    """4 -> 5: the cluster's feature level as last heard of, here the first, stands beside the node's own values."""
    meta.put(USER_PREFIX + b"level", b"1")


STEPS: Final[dict[int, Callable[[lmdb.Transaction], None]]] = {4: _keep_level}
"""By the layout that was found."""
