"""All replicas of one node, driven as one: frames, heartbeats, writes, leadership, placement. Pure."""
