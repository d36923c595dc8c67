"""HTTP of one node: health, metrics, status, and what operators do. Reading is free: nothing in it is secret."""

from node.http.provider import ManagementPort, Metric, OperatorPort, StatusProvider
from node.http.server import HttpServer

__all__ = ["HttpServer", "ManagementPort", "Metric", "OperatorPort", "StatusProvider"]
