"""A second judge: clients with a plan of their own, and what they saw held against the rules by somebody who knows
nothing but the rules. Not part of the product."""
