"""HTTP of one node: health, metrics, status, and what operators do; without a login it shows names and counts alone."""

from node.http.provider import Histogram, ManagementPort, Metric, OperatorPort, StatusProvider
from node.http.server import HttpServer

__all__ = ["Histogram", "HttpServer", "ManagementPort", "Metric", "OperatorPort", "StatusProvider"]
