"""The gRPC shell between nodes: frames and snapshots out and in, peers up and down."""

import os

# gRPC's core writes to stderr about every connection that isn't one (port scans, health checks). It reads
# these when it is imported, so this has to come before. What the environment says wins.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
# A node never forks after start, and gRPC need not prepare for it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
