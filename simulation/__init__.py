"""Whole clusters in virtual time, with a network and disks that fail; from a seed. Not part of the product."""
