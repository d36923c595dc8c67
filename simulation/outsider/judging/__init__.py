"""Histories as clients see them, and what the rules say about them. Imports nothing of the product or the simulator."""
