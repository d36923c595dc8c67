"""What a node does on its own account: keep time for the shards it leads, follow members and policies."""
