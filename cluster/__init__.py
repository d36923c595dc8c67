"""Consensus, log, transport, membership and placement of a MayflyMQ cluster."""
