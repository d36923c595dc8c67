"""What has gathered on a leader for its next entry, and which nodes want to hear at once of its commit (pure)."""

from mayfly.cluster.group.pieces import BORROWS, WHOLE


class Proposals:
    """The batches of one group on its leader."""

    def __init__(self) -> None:
        self.gathered: list[bytes] = []
        self._asking: dict[int, None] = {}
        """Nodes whose batches are among these."""
        self._owed: dict[int, int] = {}
        """Node -> the last entry that has something of its own and of whose commit it has not been told."""

    def add(self, batches: bytes, asking: int) -> None:
        """`asking`: another node that wants to hear at once of their commit; 0: none."""
        if asking:
            self._asking[asking] = None
        self.gathered.append(batches)

    def in_entries(self, most_bytes: int) -> list[list[bytes]]:
        """In order, as many for each entry as fit; one that is larger is an entry of its own. Nothing follows a WHOLE
        or what BORROWS in its entry (`cluster.group.pieces`)."""
        start, gathered = 0, self.gathered
        entries: list[list[bytes]] = []
        while start < len(gathered):
            size, end = 0, start
            while end < len(gathered) and (end == start or size + len(gathered[end]) <= most_bytes):
                size += len(gathered[end])
                end += 1
                last = gathered[end - 1]
                if last and last[0] & (WHOLE | BORROWS):
                    break
            entries.append(gathered[start:end])
            start = end
        return entries

    def are_proposed(self, last_index: int) -> None:
        """They are in the log up to this entry."""
        for node in self._asking:
            self._owed[node] = last_index
        self.drop()

    def drop(self) -> None:
        """Whoever gave them repeats them."""
        self._asking = {}
        self.gathered = []

    def tell(self, node: int, commit: int) -> bool:
        """Whether a node waits to be told of a commit; it is told now that the log is committed so far."""
        owed = self._owed.get(node, 0)
        if owed and commit >= owed:
            del self._owed[node]
        return owed > 0

    def is_owed(self, node: int) -> bool:
        """Whether a node waits to be told of a commit."""
        return node in self._owed

    def forget_owed(self) -> None:
        """This node leads no more: nobody is told by it."""
        self._owed = {}
