"""Exit code 0 if the node in this container lives: its loop turns and it has not given up. For HEALTHCHECK.

Nothing but the standard library, so that it costs some 20 ms of CPU.
"""

import http.client
import os
import sys

TIMEOUT_S = 4.0

host, _, port = os.environ.get("MAYFLY_HTTP_ADDRESS", "127.0.0.1:15672").rpartition(":")
if host in ("", "0.0.0.0", "[::]", "::"):
    host = "127.0.0.1"
connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT_S)
try:
    connection.request("GET", "/health/live")
    status = connection.getresponse().status
except OSError as error:
    sys.exit(f"{host}:{port} does not answer: {error}")
sys.exit(0 if status == http.client.OK else f"{host}:{port}/health/live answers {status}")
