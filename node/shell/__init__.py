"""The process around the engine: sockets, disk, clocks, watches, start and end."""
