"""MayflyMQ. Its packages are the folders `node` and `cluster` of the tree; `simulation` and `tests` are not
installed.
"""
