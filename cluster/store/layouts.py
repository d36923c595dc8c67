"""How data of an older layout becomes data of the next one. The numbers are those of `cluster.versions.LAYOUT_VERSION`.

A step works inside the transaction that writes the new number, before anything else is read, write-ahead files too: it
must not touch what their records hold.
"""

from collections.abc import Callable
from typing import Final

import lmdb

USER_PREFIX: Final = b"u"
"""Before the keys of the node's own values in the table `meta`."""


STEPS: Final[dict[int, Callable[[lmdb.Transaction], None]]] = {}
"""By the layout that was found; what is given is the table `meta`. Layout 6 is the first that can be converted."""
