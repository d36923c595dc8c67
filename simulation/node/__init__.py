"""Whole nodes under `simulation.cluster`: clients with a workload, their histories, and a checker over them.

`python -m simulation clusters --seed 17` runs one seed; docs/simulator.md explains the rest.
"""
