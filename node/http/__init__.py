"""HTTP of one node: health, metrics and status. Read-only, and nothing in it is secret."""

from node.http.provider import Metric, StatusProvider
from node.http.server import HttpServer

__all__ = ["HttpServer", "Metric", "StatusProvider"]
