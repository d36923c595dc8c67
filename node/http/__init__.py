"""HTTP of one node: health for everybody, what monitors look at, and what operators do."""

from mayfly.node.http.server import HttpServer, HttpSettings, PagePorts

__all__ = ["HttpServer", "HttpSettings", "PagePorts"]
