"""Nodes as processes of this machine: what those share that start them, the commands and the demonstration."""
