"""As much of the service of a container engine as a suite needs that starts its broker as a container: every container
that is asked for runs, and its ports are those of the broker that listens here.  Prints a line when it serves."""

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final

PORT: Final = 2375
_PORTS: Final = {f"{port}/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(port)}] for port in (5672, 5671)}
_CONTAINER: Final = {"Id": "broker", "NetworkSettings": {"Ports": _PORTS}}


class _Service(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.dumps(_CONTAINER).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - so the base class calls them

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", PORT), _Service)
    print(PORT, flush=True)
    server.serve_forever()
