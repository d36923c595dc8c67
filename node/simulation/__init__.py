"""Whole nodes under `cluster.simulator`: clients with a workload, their histories, and a checker over them.

`python -m node.simulation --seed 17` runs one seed; docs/simulator.md explains the rest.
"""
