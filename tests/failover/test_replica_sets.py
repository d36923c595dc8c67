"""Five containers, three replicas of each shard, clients on the two that have none."""

from pathlib import Path

import pytest

from tests.waiting import wait_for

pytestmark = [pytest.mark.processes, pytest.mark.slow]

NODES = 5
SETTINGS = {"MAYFLY_BALANCE_BY_LOAD": "false"}


def test_clients_beside_a_shard_go_on_when_its_leader_dies_and_a_replica_is_wiped(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker kill` of the leader, then a replica's container and data are deleted, and it comes back as a new member:
    all that was confirmed came, once and in order, nothing is marked as redelivered, and no consumer was cancelled."""
    monkeypatch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
    from tests.failover.containers import ContainerNetwork, ContainerNodes
    from tests.integration.clients import channel, declare_in_shard
    from tests.integration.replica_sets import as_planned, declare_kept, kill_leader, load, shard_of, without
    from tests.reliability.chaos import is_whole

    network = ContainerNetwork()
    try:
        nodes = ContainerNodes(tmp_path, network, SETTINGS, count=NODES)
        try:
            nodes.serve()
            queue, here, there = declare_kept(nodes, "led", leader=nodes.with_small_disk)
            with channel(nodes, here) as declaring:
                second = declare_in_shard(nodes, declaring, "second", shard_of(nodes, queue))
            with load(nodes, queue, here, there) as publisher, load(nodes, second, there, here) as other:
                leader = kill_leader(nodes, queue, witness=here)
                assert leader == nodes.with_small_disk
                publisher.until_confirmed(200)
                nodes.start(leader)
                wait_for(lambda: is_whole(nodes), "a whole cluster", every_s=0.05)
                other.until_confirmed(200)
                assert without(nodes, queue) == [here, there]
                nodes.kill(leader)
                nodes.wipe(leader)
                nodes.start(leader)
                nodes.until_replaced(leader, witness=here)
                publisher.until_confirmed(200)
                wait_for(lambda: as_planned(nodes, there), "replicas as planned")
        finally:
            nodes.close()
            assert nodes.log_faults() == []
    finally:
        network.close()
