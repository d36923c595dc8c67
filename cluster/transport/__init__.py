"""The gRPC shell between nodes: frames and snapshots out and in, peers up and down."""
