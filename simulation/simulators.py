"""All simulators, from bare Raft to whole clusters with clients."""

from __future__ import annotations

from typing import Any

from simulation.cluster.host_group import HostSimulation
from simulation.cluster.host_scenario import HostScenario
from simulation.cluster.host_scenario import draw_scenario as draw_hosts
from simulation.cluster.machine_loss import MachineLoss, draw_machines
from simulation.cluster.raft_group import RaftGroup
from simulation.cluster.raft_scenario import RaftScenario
from simulation.cluster.raft_scenario import draw_scenario as draw_raft_group
from simulation.node.forming.run import FormingRun
from simulation.node.forming.scenario import FormingScenario
from simulation.node.forming.scenario import draw_scenario as draw_forming
from simulation.node.lease_edges.course import EdgeRun
from simulation.node.lease_edges.plan import EdgePlan, draw_plan
from simulation.node.run import Simulation
from simulation.node.scenario import NodeScenario, draw_braking, draw_moving, draw_redriving, draw_scenario, draw_wide
from simulation.outsider.run import OutsiderRun
from simulation.outsider.scenario import OutsiderScenario, draw_ages, draw_long
from simulation.outsider.scenario import draw_moving as draw_moving_outside
from simulation.outsider.scenario import draw_scenario as draw_outsider
from simulation.simulator import Simulator

RAFT: Simulator[RaftScenario] = Simulator("raft", "Raft groups alone on the worst network", draw_raft_group, RaftGroup)
HOSTS: Simulator[HostScenario] = Simulator(
    "hosts", "whole hosts on machines and disks that fail", draw_hosts, HostSimulation
)
MACHINES: Simulator[HostScenario] = Simulator(
    "machines", "machines of two hosts each that are lost as a whole", draw_machines, MachineLoss
)
CLUSTERS: Simulator[NodeScenario] = Simulator(
    "clusters", "whole nodes with clients", draw_scenario, Simulation, share=2
)
MOVES: Simulator[NodeScenario] = Simulator(
    "moves", "whole nodes with clients, whose queues move to other shards", draw_moving, Simulation
)
WIDE: Simulator[NodeScenario] = Simulator(
    "wide", "three to seven whole nodes, shards with one or three replicas that move", draw_wide, Simulation
)
REDRIVES: Simulator[NodeScenario] = Simulator(
    "redrives", "whole nodes with clients, one of whose queues is redriven", draw_redriving, Simulation
)
BRAKES: Simulator[NodeScenario] = Simulator(
    "brakes", "whole nodes with clients, one of whose queues has a brake", draw_braking, Simulation
)
LEASES: Simulator[EdgePlan] = Simulator("leases", "the moments when leases end", draw_plan, EdgeRun)
FORMING: Simulator[FormingScenario] = Simulator("forming", "clusters that form", draw_forming, FormingRun)
OUTSIDER: Simulator[OutsiderScenario] = Simulator(
    "outsider", "whole nodes, judged from outside", draw_outsider, OutsiderRun
)
LONG: Simulator[OutsiderScenario] = Simulator(
    "long", "whole nodes for hours, judged from outside", draw_long, OutsiderRun
)
AGES: Simulator[OutsiderScenario] = Simulator(
    "ages", "whole nodes for months, judged from outside", draw_ages, OutsiderRun
)
MOVING: Simulator[OutsiderScenario] = Simulator(
    "moving", "whole nodes whose queues move to other shards, judged from outside", draw_moving_outside, OutsiderRun
)
SIMULATORS: tuple[Simulator[Any], ...] = (
    RAFT, HOSTS, MACHINES, CLUSTERS, MOVES, WIDE, LEASES, FORMING, OUTSIDER, REDRIVES, LONG, AGES, BRAKES, MOVING
)  # fmt: skip
