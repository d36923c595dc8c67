"""What a large snapshot costs in memory and time at both ends: python -m tests.bench.snapshot_memory [megabytes]

Three real nodes; one is away while a queue gathers so much, and comes back when the log it needs is compacted. Caches
are small (8 MiB), so that what is measured is the transfer. Memory is anonymous memory: LMDB's mapped file, which the
system takes back at will, is not in it.
"""

import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.integration.clients import channel, declare_led_by, publish_all
from tests.integration.nodes import Nodes, wait_for

MESSAGE_BYTES = 64 * 1024
MB = 1_000_000


def anonymous_bytes(pid: int) -> int:
    """Memory of a process that is not a file's; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)


class Watch(threading.Thread):
    """The most memory that a process had."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._stopping = threading.Event()
        self.before_bytes = self.most_bytes = anonymous_bytes(pid)

    def run(self) -> None:
        """The thread."""
        while not self._stopping.wait(0.005):
            self.most_bytes = max(self.most_bytes, anonymous_bytes(self._pid))

    def end(self, name: str) -> None:
        """Stop, and tell."""
        self._stopping.set()
        self.join()
        after_bytes = anonymous_bytes(self._pid)
        print(
            f"{name:9} before {self.before_bytes / MB:6.0f} MB, at most {self.most_bytes / MB:6.0f} MB, "
            f"after {after_bytes / MB:6.0f} MB"
        )


def main() -> None:
    """Measure, print."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, object] = {"compact_bytes": 4 << 20, "cache_bytes": 8 << 20}
        nodes = Nodes(Path(folder), 3, settings)
        try:
            nodes.serve()
            with channel(nodes, 1) as declaring:
                queue = declare_led_by(nodes, declaring, "big", lambda leader: leader == 1)
            shard = int((nodes.queue(1, queue) or {})["shard"])
            nodes.kill(3)
            for _ in range(megabytes * MB // (MESSAGE_BYTES * 100)):
                publish_all(nodes, 1, queue, [bytes(MESSAGE_BYTES)] * 100)
            gone = nodes.groups(2)[shard]["commit"]
            with channel(nodes, 1) as other:
                other.basic_publish("", queue, bytes(100))
            publish_all(nodes, 1, queue, [bytes(MESSAGE_BYTES)] * 400)
            wait_for(lambda: nodes.groups(1)[shard]["compacted"] >= gone - 300, "a compacted log", every_s=0.1)
            wanted = nodes.ready(1, queue)
            sender = Watch(nodes.pid(1))
            sender.start()
            began_s = time.monotonic()
            nodes.start(3)
            receiver = Watch(nodes.pid(3))
            receiver.start()
            nodes.until_serving()
            wait_for(lambda: nodes.ready(3, queue) == wanted, "all of it on node 3", 120, every_s=0.05)
            took_s = time.monotonic() - began_s
            print(f"{wanted * MESSAGE_BYTES / MB:.0f} MB in {took_s:.1f} s, start of a node included")
            time.sleep(1)
            sender.end("sender")
            receiver.end("receiver")
        finally:
            nodes.stop()


if __name__ == "__main__":
    main()
