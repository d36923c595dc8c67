"""Stands in for `mayfly node` where a test is about processes: takes its arguments, says that it is ready.

Its behaviour follows from files in its data folder: `refuse` (ends at once), `sent away` (the same, for good), `deaf`
(ignores SIGTERM).
"""

import http.server
import signal
import sys
from pathlib import Path

from mayfly.node.command_line.parent import stop_with_parent
from mayfly.node.local_nodes import exit_codes


class Ready(http.server.BaseHTTPRequestHandler):
    """Always ready."""

    def do_GET(self) -> None:
        body = b'{"status": "ready"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


def main() -> None:
    arguments = sys.argv[1:]
    assert arguments.pop(0) == "node"
    arguments = [word for word in arguments if word != "--amqp-reuse-port"]
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    data_dir = Path(options["--data-dir"])
    if (data_dir / "refuse").exists():
        sys.exit("this node does not want to")
    if (data_dir / "sent away").exists():
        sys.exit(exit_codes.REFUSED)
    if (data_dir / "deaf").exists():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stop_with_parent(int(options["--stop-with-parent"]))
    host, port = options["--http-address"].rsplit(":", 1)
    http.server.ThreadingHTTPServer((host, int(port)), Ready).serve_forever()


if __name__ == "__main__":
    main()
