"""What operators see and do: the ports of `node.http`, behind it the engine."""
