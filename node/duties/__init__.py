"""What a node does on its own account: keep time for the shards it leads, route the dead, follow policies. Pure."""
