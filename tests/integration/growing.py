"""A cluster of real processes whose members change."""

import dataclasses
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from mayfly.node.local_nodes.local_cluster import this_mayfly
from mayfly.node.numbers import CATALOG_GROUP
from tests.integration.nodes import PATIENT_SESSIONS, Nodes, fetch
from tests.waiting import BOUND_S, wait_for

SETTLED_WITHIN_S: Final = 5 * BOUND_S
STOPS: Final = "stopping: |stopped by itself: "


class Growing(Nodes):
    """Places for five nodes. Node number n is called `node<n>`; its id is whatever it was given."""

    def __init__(self, folder: Path, seeds: int = 1) -> None:
        super().__init__(folder, 5, PATIENT_SESSIONS)
        founders = tuple(plan.peer for plan in self.plans[:seeds])
        self.plans = [
            dataclasses.replace(plan, seeds=founders if number < seeds else ())
            for number, plan in enumerate(self.plans)
        ]
        self.expected_errors.append(STOPS)

    def log_text(self, id: int) -> str:
        """Nothing, for a place that was not taken."""
        return super().log_text(id) if self.plan(id).log_file.exists() else ""

    def join(self, number: int, through: int, serve: bool = True) -> None:
        """Start a node that joins."""
        self.configure(number, join=str(self.plan(through).peer))
        self.start(number)
        if serve:
            self.until_serving()

    def members(self, witness: int) -> dict[str, dict[str, Any]]:
        """Present members by name, as a node has them."""
        code, answer = fetch(self.plan(witness).http, "/cluster/members")
        assert code == 200, answer
        return {row["name"]: row for row in answer["members"] if row["state"] != "removed"}

    def settled(self, witness: int, *numbers: int) -> bool:
        """Whether these are the members, and every group votes and is led as planned."""
        rows = self.members(witness)
        if sorted(rows) != sorted(f"node{number}" for number in numbers):
            return False
        if any(row["state"] != "member" for row in rows.values()):
            return False
        ids = {row["id"] for row in rows.values()}
        voting = min(3, len(numbers))
        for group in fetch(self.plan(witness).http, "/shards")[1]["shards"]:
            if set(group["voters"]) != set(group["plan"]) or len(group["plan"]) != voting or group["changing"]:
                return False
            # The catalog is everywhere, a shard where the plan has it.
            spare = ids - set(group["voters"]) if group["group"] == CATALOG_GROUP else set()
            if set(group["learners"]) != spare or group["leader"] != group["plan"][0]:
                return False
        return True

    def group_count(self, witness: int) -> int:
        """How many groups a node has."""
        rows: list[object] = fetch(self.plan(witness).http, "/shards")[1]["shards"]
        return len(rows)

    def until_settled(self, witness: int, *numbers: int) -> None:
        """Wait for it."""
        wait_for(lambda: self.settled(witness, *numbers), f"{numbers} as members", SETTLED_WITHIN_S, every_s=0.1)

    def mayfly(self, *arguments: str, password: str = "guest") -> subprocess.CompletedProcess[str]:
        """An operator's command."""
        environment = {**os.environ, "MAYFLY_PASSWORD": password}
        return subprocess.run(
            [*this_mayfly(), *arguments],
            capture_output=True, text=True, timeout=5 * BOUND_S, check=False, env=environment,
        )  # fmt: skip

    def remove(self, name: str, witness: int) -> None:
        """`mayfly cluster remove`, through a node that stays."""
        done = self.mayfly("cluster", "remove", name, "--node", str(self.plan(witness).http))
        assert done.returncode == 0, done.stderr + done.stdout
