"""How a node comes into a cluster, who it is, and what it does so that all follow the members. Pure."""
