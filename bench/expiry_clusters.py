"""The clusters of both brokers, as `bench/expiry.py` asks for them."""

from contextlib import AbstractContextManager

from bench.clusters import NODES, ROOT, SHARED, START_S, Cluster, page
from bench.mayfly_cluster import Mayfly
from bench.rabbitmq_cluster import Rabbitmq

__all__ = ["NODES", "ROOT", "SHARED", "START_S", "Cluster", "has_rabbitmq", "mayfly", "page", "rabbitmq"]


def mayfly(source: bool) -> AbstractContextManager[Cluster]:
    """Three nodes by `mayfly up`, from the installed package or (`source`) from this tree, uncompiled."""
    return Mayfly(source).three_nodes()


def rabbitmq() -> AbstractContextManager[Cluster]:
    """Three nodes of the packaged server."""
    return Rabbitmq().three_nodes()


def has_rabbitmq() -> bool:
    """Whether it can be started here."""
    return Rabbitmq.installed()
