"""One node without its shell. Pure."""
