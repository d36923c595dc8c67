"""What a node shows of itself and of the cluster, from what it holds: rows, metrics, dead letters."""
