"""Stubs generated from proto/ by `python -m mayfly.cluster.rpc.generate`; nothing in here is written by hand but this."""
