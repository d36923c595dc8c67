"""Leases at their edges: uses, deaths of leaders, outages and stepped clocks at the very moment when a lease ends.

`simulation.node` draws its histories at random and meets these moments rarely. Here a seed draws nothing else.
"""
