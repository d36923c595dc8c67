"""HTTP of one node: health, metrics, status, and what operators do. Reading is free: nothing in it is secret."""

from node.http.provider import Histogram, ManagementPort, Metric, OperatorPort, StatusProvider
from node.http.server import HttpServer

__all__ = ["Histogram", "HttpServer", "ManagementPort", "Metric", "OperatorPort", "StatusProvider"]
