"""The durable log of a node, without its disk: what is written (`batch`), in which form (`records`), and how Raft reads
it (`group_log`). `cluster.store` puts it on disk.
"""
