"""The durable log of a node: what is written (`batch`), where (`lmdb_store`),
and how Raft reads it (`group_log`).
"""
