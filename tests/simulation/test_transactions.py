"""Transactions and priorities in simulated clusters under chaos; half of all seeds of the others have them as well."""

from __future__ import annotations

import pytest

from simulation.node.run import Simulation
from simulation.node.scenario import draw_scenario, with_transactions
from simulation.simulators import CLUSTERS


@pytest.mark.parametrize("seed", [3, 7, 12])
def test_a_message_taken_in_a_transaction_is_given_for_exactly_once(seed: int) -> None:
    """See `check_transactions`; C1: replicas of queues with priorities are the same."""
    scenario = with_transactions(draw_scenario(seed))
    outcome = CLUSTERS.kept(Simulation(scenario))
    assert outcome.counts["transactions"] > 10
