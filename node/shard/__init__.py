"""The queue state machine of a shard: pure, deterministic, driven by log entries (RULES C1).

Start at ``node.shard.shard.Shard``; commands are encoded by ``node.shard.commands``.
"""
