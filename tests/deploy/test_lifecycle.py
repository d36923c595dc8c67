"""What a pod does when it starts and stops: who begins the cluster, who joins, who leaves it and comes back."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

from tests.waiting import BOUND_S

FILE: Final = Path(__file__).resolve().parent.parent.parent / "helm" / "mayfly" / "files" / "lifecycle.py"
DOMAIN: Final = "mq-headless.prod.svc.cluster.local"


@pytest.fixture
def lifecycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The chart's script, with a volume of its own."""
    monkeypatch.setenv("CHART_VOLUME", str(tmp_path))
    spec = importlib.util.spec_from_file_location("lifecycle", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class World:
    """The cluster around a pod, as its script sees it."""

    def __init__(self, lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch, number: int, founders: int = 3) -> None:
        environment = {
            "POD_NAME": f"mq-{number}",
            "POD_NAMESPACE": "prod",
            "CHART_FOUNDERS": str(founders),
            "CHART_DOMAIN": DOMAIN,
            "MAYFLY_DEFAULT_USER": "me",
        }
        self.pod = lifecycle.Pod(environment)
        self.states: dict[int, str] | None = None
        self.current = True
        self.own_is_current = True
        self.replicas: int | None = None
        self.commands: list[tuple[str, ...]] = []
        self.failures = 0
        self.login_is_right = True
        self.spared: list[bool] = []
        self.others: list[dict[str, Any]] = []
        self.started: dict[str, str] = {}
        self._lifecycle = lifecycle
        self.slept_s = 0.0
        self.beside: Callable[[], None] = lambda: None
        self.own_id: int | None = 9
        self.waits = ""
        self.silent: set[str] = set()
        self.cluster = "prod"
        self.others_cluster = "prod"
        self.lives = True
        self.stale: dict[str, dict[int, str]] = {}
        monkeypatch.setattr(lifecycle, "page", self._page)
        monkeypatch.setattr(lifecycle, "wanted_replicas", lambda pod: self.replicas)
        monkeypatch.setattr(lifecycle, "mayfly", self._mayfly)
        monkeypatch.setattr(lifecycle, "beside", self._beside)
        monkeypatch.setattr(lifecycle.time, "sleep", self._sleep)
        monkeypatch.setattr(lifecycle.os, "execvp", lambda *words: None)
        monkeypatch.setattr(lifecycle.os, "environ", self.started)

    def _page(self, host: str, path: str) -> dict[str, Any]:
        """What nodes answer: every other node the same; those in `stale` have missed changes, and say so."""
        if path == "/status" and self.waits:
            return {"name": self.pod.name, "waits": self.waits}
        if path == "/status" and self.own_id is not None:
            return {"id": self.own_id}
        if path == "/health/live" and self.lives:
            return {"status": "live"}
        if host == "127.0.0.1" and path == "/cluster/members" and self.lives:
            present = [{"name": self.pod.name, "state": "member", "up": True}, *self.others]
            return {"members": present, "cluster": self.cluster, "current": self.own_is_current}
        if path == "/status" or self.states is None or host in self.silent:
            raise OSError("connection refused")
        rows = self.stale.get(host, self.states)
        members = [{"id": id, "name": f"node{id}", "state": state} for id, state in rows.items()]
        current = self.current and host not in self.stale
        return {"members": members, "cluster": self.others_cluster, "current": current}

    def _beside(self, work: Callable[[], None]) -> None:
        """What runs beside the node runs when it is a member."""
        self.beside = work

    def _mayfly(self, *words: str) -> bool:
        self.commands.append(words)
        if words[0] == "ready":
            return self.spared.pop(0) if self.spared else True
        if "--user" in words and not self.login_is_right:
            return False
        self.failures -= 1
        return self.failures < 0

    def _sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        assert self.slept_s < 600, "waits for ever"

    def serve(self) -> None:
        """The node has started with its data, and is a member."""
        put_data(self._lifecycle)
        self.start()
        self.beside()

    def start(self) -> dict[str, str]:
        """The settings that the node gets."""
        self.started.clear()
        self._lifecycle.start(self.pod)
        return dict(self.started)


def peer(number: int) -> str:
    return f"mq-{number}.{DOMAIN}:25672"


def test_the_first_pods_begin_together(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked: nobody could answer before they serve."""
    settings = World(lifecycle, monkeypatch, 1).start()
    assert settings["MAYFLY_SEEDS"] == ",".join(map(peer, range(3)))
    assert settings["MAYFLY_ADVERTISED_PEER_ADDRESS"] == peer(1)
    assert settings["MAYFLY_NAME"] == "mq-1"
    assert "MAYFLY_JOIN" not in settings


def test_later_ones_join(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(lifecycle, monkeypatch, 3)
    world.states = {1: "member", 2: "member", 3: "member"}
    settings = world.start()
    assert settings["MAYFLY_JOIN"] == peer(0)
    assert "MAYFLY_SEEDS" not in settings
    world.stale[f"mq-0.{DOMAIN}"] = {}
    assert world.start()["MAYFLY_JOIN"] == peer(1)
    world.current = False
    assert world.start()["MAYFLY_JOIN"] == peer(0)


def test_a_node_with_data_starts_though_nobody_answers(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods may have been down."""
    put_data(lifecycle)
    settings = World(lifecycle, monkeypatch, 4).start()
    assert settings["MAYFLY_JOIN"] == peer(0)


def test_a_restart_drains(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(lifecycle, monkeypatch, 2)
    for replicas, commands in ((3, ["ready", "drain", "ready"]), (None, ["drain", "ready"]), (0, ["drain"])):
        world.replicas, world.commands = replicas, []
        lifecycle.stop(world.pod)
        assert [words[0] for words in world.commands] == commands, replicas
        assert not lifecycle.LEAVING.exists()


def test_a_restart_waits_for_the_others_while_it_serves(
    lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes in the end, and the wait of both times together is bounded."""
    world = World(lifecycle, monkeypatch, 1)
    world.replicas, world.spared = 3, [False, False]
    clock_s = iter((1_000.0, 1_290.0))
    # Its own alone: other threads of this process may look at theirs.
    clock = SimpleNamespace(monotonic=lambda: next(clock_s), sleep=lifecycle.time.sleep)
    monkeypatch.setattr(lifecycle, "time", clock)
    lifecycle.stop(world.pod)
    asked = ("ready", "--without", "mq-1", "--node", "127.0.0.1:15672", "--timeout")
    assert [words for words in world.commands if words[0] == "ready"] == [(*asked, "300"), (*asked, "10")]
    assert [words[0] for words in world.commands] == ["ready", "drain", "ready"]


def test_who_is_cut_off_asks_others_whether_it_is_spared(
    lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the first pod whose node speaks TLS to the others: to its own node they all seem to be down."""
    world = World(lifecycle, monkeypatch, 2)
    world.serve()
    world.replicas, world.own_is_current = 3, False
    world.states = {1: "member", 2: "member", 9: "member"}
    world.silent = {f"mq-0.{DOMAIN}"}
    for others, host in ((True, f"mq-1.{DOMAIN}"), (False, "127.0.0.1")):
        world.current = others
        world.commands.clear()
        lifecycle.stop(world.pod)
        assert {command[4] for command in world.commands if command[0] == "ready"} == {f"{host}:15672"}


def test_a_node_that_hangs_is_not_waited_for(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes restarts it because it does not answer: the sooner the better."""
    world = World(lifecycle, monkeypatch, 1)
    world.lives = False
    for world.replicas in (3, None):
        lifecycle.stop(world.pod)
    assert [words[0] for words in world.commands] == ["drain", "drain"]
    assert not lifecycle.LEAVING.exists()


def member(number: int, up: bool = True, draining: bool = False, state: str = "member") -> dict[str, Any]:
    return {"name": f"mq-{number}", "state": state, "up": up, "draining": draining}


def test_who_may_be_scaled_away_and_can_be_spared_goes(
    lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server does not say. It may be taken out afterwards: then it comes back as a new one."""
    world = World(lifecycle, monkeypatch, 4)
    world.others = [member(number) for number in range(4)]
    lifecycle.stop(world.pod)
    assert [words[0] for words in world.commands] == ["drain", "ready"]
    assert is_noted(lifecycle)


def test_who_may_be_scaled_away_and_is_needed_leaves(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so does the one that went before, which would get votes else. Who drains does not stay; a crashed pod with
    a lower number comes back."""
    world = World(lifecycle, monkeypatch, 3)
    world.others = [member(0), member(1, up=False), member(2, draining=True), member(4, up=False)]
    world.others += [member(5, up=False, state="removed"), {"name": "elsewhere", "state": "member", "up": False}]
    world.spared = [False]
    lifecycle.stop(world.pod)
    through = ("--node", f"mq-0.{DOMAIN}:15672", "--user", "me")
    assert world.commands[2:] == [
        ("cluster", "remove", "mq-4", "--no-wait", *through),
        ("cluster", "remove", "mq-3", *through),
    ]
    assert is_noted(lifecycle)


@pytest.mark.parametrize("others", [[], [member(0, draining=True), member(1, up=False)]])
def test_nobody_leaves_a_set_that_is_switched_off(
    lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch, others: list[dict[str, Any]]
) -> None:
    world = World(lifecycle, monkeypatch, 2)
    world.others, world.spared = others, [False]
    lifecycle.stop(world.pod)
    assert [words[0] for words in world.commands] == ["drain", "ready"]
    assert not lifecycle.LEAVING.exists()


def test_a_pod_that_is_scaled_away_leaves_through_one_that_stays(
    lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(lifecycle, monkeypatch, 4)
    world.replicas, world.failures = 3, 4
    lifecycle.stop(world.pod)
    assert [words[:3] for words in world.commands] == [("cluster", "remove", "mq-4")] * 5
    assert [words[4] for words in world.commands] == [f"mq-{n}.{DOMAIN}:15672" for n in (0, 1, 2, 0, 1)]
    assert is_noted(lifecycle)


def test_a_changed_login_keeps_nobody_from_leaving(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands with the login of the environment get 401: the node's own token needs none."""
    world = World(lifecycle, monkeypatch, 4)
    world.serve()
    lifecycle.OWN_TOKEN.touch()
    world.login_is_right = False
    own = ("--node", "127.0.0.1:15672", "--token-file", str(lifecycle.OWN_TOKEN))
    world.replicas = 3
    lifecycle.stop(world.pod)
    assert world.commands == [("cluster", "remove", "mq-4", *own)]
    world.commands = []
    world.replicas = 5
    lifecycle.stop(world.pod)
    assert world.commands[1] == ("drain", *own, "--timeout", "60")


def test_who_goes_with_others_takes_them_out_without_a_login(
    lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the API server does not answer: the own token also takes out members that are down."""
    world = World(lifecycle, monkeypatch, 3)
    world.serve()
    lifecycle.OWN_TOKEN.touch()
    world.login_is_right = False
    world.others = [member(0), member(1), member(2), member(4, up=False)]
    world.spared = [False]
    lifecycle.stop(world.pod)
    removed = [words for words in world.commands if words[:2] == ("cluster", "remove")]
    assert [(words[2], "--token-file" in words) for words in removed] == [("mq-4", True), ("mq-3", True)]


def test_a_node_that_ended_when_it_was_out_is_out(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can't tell its own hook any more: another node says so, one that has missed nothing, of the same cluster."""
    world = World(lifecycle, monkeypatch, 4)
    world.serve()
    lifecycle.OWN_TOKEN.touch()
    world.replicas, world.failures = 3, 1_000
    world.states = {1: "member", 9: "leaving"}

    def passes(seconds: float) -> None:
        world.slept_s += seconds
        world.current = world.slept_s >= 4
        world.others_cluster = "prod" if world.slept_s >= 6 else "another"
        world.states = {1: "member", 9: "removed"} if world.slept_s >= 8 else world.states
        assert world.slept_s < 60, "waits for ever"

    monkeypatch.setattr(lifecycle.time, "sleep", passes)
    lifecycle.stop(world.pod)
    assert world.slept_s == 8


@pytest.mark.parametrize("number", [2, 4])
def test_who_left_comes_back_as_a_new_node(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Also one of those that begin: the cluster knows them no more."""
    world = told_to_leave(lifecycle, monkeypatch, number)
    world.states = {1: "member", 2: "member", 9: "removed"}
    assert world.start()["MAYFLY_JOIN"] == peer(0)
    assert not lifecycle.LEAVING.exists()
    assert not lifecycle.DATA.exists()
    # What it has from then on is a new member's, and stays, whatever is said of the old one.
    put_data(lifecycle)
    world.states[10] = "member"
    assert world.start()["MAYFLY_JOIN"] == peer(0)
    assert has_data(lifecycle)


def test_who_was_to_leave_and_did_not_keeps_its_data(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    world = told_to_leave(lifecycle, monkeypatch, 2)
    world.states = {1: "member", 2: "member", 9: "leaving"}
    assert "MAYFLY_SEEDS" in world.start()
    assert has_data(lifecycle)
    assert lifecycle.LEAVING.exists(), "it is still on its way out"
    world.states[9] = "member"
    assert "MAYFLY_SEEDS" in world.start()
    assert has_data(lifecycle)
    assert not lifecycle.LEAVING.exists()


def test_only_a_current_answer_deletes_data(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that has missed changes is passed over, whatever it says; where all have, the data stays, and the node
    does not wait for ever: the answer may need its vote."""
    world = told_to_leave(lifecycle, monkeypatch, 2)
    world.states = {1: "member", 2: "member", 9: "member"}
    world.stale[f"mq-0.{DOMAIN}"] = {1: "member", 9: "removed"}
    assert "MAYFLY_SEEDS" in world.start()
    assert has_data(lifecycle)
    lifecycle.LEAVING.touch()
    world.states, world.current, world.stale = {1: "member", 9: "removed"}, False, {}
    assert "MAYFLY_SEEDS" in world.start()
    assert has_data(lifecycle)
    assert lifecycle.LEAVING.exists()
    world.states = None
    assert "MAYFLY_SEEDS" in world.start()
    assert has_data(lifecycle)
    world.states, world.current = {1: "member", 9: "removed"}, True
    assert world.start()["MAYFLY_JOIN"] == peer(0)
    assert not lifecycle.DATA.exists()


@pytest.mark.parametrize("states", [{1: "member", 2: "removed"}, {1: "member", 2: "member"}])
def test_a_name_that_is_gone_does_not_delete_data(
    lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch, states: dict[int, str]
) -> None:
    """Only the id counts: unknown ones, and a node that could not be asked for its own, keep what they have."""
    world = told_to_leave(lifecycle, monkeypatch, 2)
    world.states = states
    assert "MAYFLY_SEEDS" in world.start()
    assert has_data(lifecycle)
    lifecycle.LEAVING.unlink(missing_ok=True)
    lifecycle.MEMBER.unlink()
    world.own_id, world.replicas = None, 1
    world.states = {1: "member", 9: "removed"}
    lifecycle.stop(world.pod)
    assert lifecycle.LEAVING.exists()
    assert not lifecycle.MEMBER.exists()
    assert "MAYFLY_SEEDS" in world.start()
    assert has_data(lifecycle)


@pytest.mark.parametrize("all_of_it", [True, False])
def test_a_note_of_data_that_is_gone_is_not_held_against_new_data(
    lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch, all_of_it: bool
) -> None:
    """The volume was emptied by hand."""
    world = told_to_leave(lifecycle, monkeypatch, 2)
    (lifecycle.DATA / "log").unlink()
    if not all_of_it:
        (lifecycle.DATA / "clock").touch()
    else:
        lifecycle.DATA.rmdir()
    world.states, world.current = {1: "member"}, False
    assert world.start()["MAYFLY_JOIN"] == peer(0)
    put_data(lifecycle)
    world.states, world.current = {1: "member", 9: "removed", 10: "member"}, True
    assert world.start()["MAYFLY_JOIN"] == peer(0)
    assert has_data(lifecycle)


@pytest.mark.parametrize("number", [2, 4])
def test_who_was_removed_while_it_was_dead_comes_back_as_a_new_node(
    lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Its machine died, no hook ran; another pod, or an operator, took it out."""
    world = World(lifecycle, monkeypatch, number)
    world.serve()
    world.states = {1: "member", 2: "member", 9: "removed"}
    for world.current, world.others_cluster in ((False, "prod"), (True, "another")):
        world.start()
        assert has_data(lifecycle)
    world.others_cluster = "prod"
    assert world.start()["MAYFLY_JOIN"] == peer(0)
    assert not lifecycle.DATA.exists()
    assert not lifecycle.MEMBER.exists()
    world.own_id = 10
    world.serve()
    assert world.start()["MAYFLY_JOIN"] == peer(0)
    assert has_data(lifecycle)


def test_who_was_not_told_to_leave_does_not_wait_for_an_answer(
    lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pods may have been down: they need each other."""
    world = World(lifecycle, monkeypatch, 2)
    world.serve()
    assert "MAYFLY_SEEDS" in world.start()
    world.states, world.current = {1: "member", 9: "removed"}, False
    assert "MAYFLY_SEEDS" in world.start()
    assert world.slept_s == 0
    assert has_data(lifecycle)


def test_a_founder_that_lost_its_data_asks_as_one(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not told to leave: where all lost theirs, somebody has to begin."""
    world = World(lifecycle, monkeypatch, 2)
    world.serve()
    (lifecycle.DATA / "log").unlink()
    world.states = {1: "member", 9: "removed"}
    assert "MAYFLY_SEEDS" in world.start()
    assert not lifecycle.MEMBER.exists()


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_nobody_begins_where_founders_is_0(
    lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The cluster was restored: one of the first three has its data, whichever, and the others join through it."""
    for first in {0, 1, 2} - {number}:
        world = World(lifecycle, monkeypatch, number, founders=0)
        world.states = {1: "member"}
        world.silent = {f"mq-{other}.{DOMAIN}" for other in range(4) if other != first}
        settings = world.start()
        assert settings["MAYFLY_JOIN"] == peer(first)
        assert "MAYFLY_SEEDS" not in settings
    world.states = None
    put_data(lifecycle)
    assert "MAYFLY_JOIN" in world.start()


def test_the_note_waits_for_the_node(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(lifecycle, monkeypatch, 4)
    world.waits = "asking for a place in the cluster"
    world.states = {1: "member"}
    world.start()

    def taken_in(seconds: float) -> None:
        assert not lifecycle.MEMBER.exists()
        world.waits = ""

    monkeypatch.setattr(lifecycle.time, "sleep", taken_in)
    world.beside()
    assert is_noted(lifecycle)


def test_a_node_in_no_cluster_yet_goes_at_once(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds nothing, whyever it stops; nothing is to be noted."""
    world = World(lifecycle, monkeypatch, 4)
    world.waits = "asking for a place in the cluster"
    for world.replicas in (5, 3, 0, None):
        lifecycle.stop(world.pod)
    assert world.commands == []
    assert not lifecycle.LEAVING.exists()
    assert not lifecycle.MEMBER.exists()


@pytest.mark.parametrize(("value", "seconds"), [("", 300.0), ("0", 0.0), ("20", 20.0)])
def test_times_that_the_chart_leaves_out(lifecycle: ModuleType, value: str, seconds: float) -> None:
    told = {"POD_NAME": "mq-1", "POD_NAMESPACE": "prod", "CHART_FOUNDERS": "3", "CHART_DOMAIN": DOMAIN}
    told |= {"MAYFLY_DEFAULT_USER": "me", "CHART_SPARE_TIMEOUT_S": value, "CHART_DRAIN_TIMEOUT_S": value}
    pod = lifecycle.Pod(told)
    assert (pod.spare_timeout_s, pod.drain_timeout_s) == (seconds, value or "60")


@pytest.mark.parametrize(("label", "domain"), [("zone-a", "zone-a"), ("", None), (None, None)])
def test_the_failure_domain_of_a_label(
    lifecycle: ModuleType, label: str | None, domain: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod without the label, as on older Kubernetes, has the domain that the chart gives it otherwise."""
    told = {"POD_NAME": "mq-1", "POD_NAMESPACE": "prod", "CHART_FOUNDERS": "3", "CHART_DOMAIN": DOMAIN}
    told |= {"MAYFLY_DEFAULT_USER": "me"} | ({} if label is None else {"CHART_FAILURE_DOMAIN": label})
    settings = lifecycle.settings_of(lifecycle.Pod(told), False, "")
    assert settings.get("MAYFLY_FAILURE_DOMAIN") == domain
    assert ("lacks the label" in capsys.readouterr().err) == (label == "")


def test_work_beside_the_node_outlives_the_start(lifecycle: ModuleType, tmp_path: Path) -> None:
    """The process that starts becomes the node; the work goes on, and is no child that the node has to look at."""
    node = "import os\ntry: os.wait()\nexcept ChildProcessError: print('alone', flush=True)"
    script = f"""
import importlib.util, os
spec = importlib.util.spec_from_file_location("lifecycle", {str(FILE)!r})
lifecycle = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lifecycle)
lifecycle.beside(lambda: (os.read(0, 1), lifecycle.JOINED.touch(), os.write(1, b"done")))
os.execvp("python3", ["python3", "-c", {node!r}])
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"alone\n"
    process.wait(BOUND_S)
    process.stdin.write(b"x")
    process.stdin.close()
    assert process.stdout.read() == b"done"
    assert lifecycle.JOINED.exists()


def told_to_leave(lifecycle: ModuleType, monkeypatch: pytest.MonkeyPatch, number: int) -> World:
    """Node 9, with data, whose stop hook has run."""
    put_data(lifecycle)
    world = World(lifecycle, monkeypatch, number)
    world.replicas = 1
    lifecycle.stop(world.pod)
    assert is_noted(lifecycle)
    return world


def is_noted(lifecycle: ModuleType) -> bool:
    """Node 9 has written down that it was told to leave, and who it is."""
    return bool(lifecycle.MEMBER.read_text() == "9 prod\n")


def put_data(lifecycle: ModuleType) -> None:
    lifecycle.DATA.mkdir(exist_ok=True)
    (lifecycle.DATA / "log").touch()


def has_data(lifecycle: ModuleType) -> bool:
    return bool((lifecycle.DATA / "log").exists())


@pytest.mark.parametrize(("has_account", "slept_s"), [(False, 0.0), (True, 8.0)])
def test_a_pod_without_an_account_does_not_ask_again_and_again(
    lifecycle: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_account: bool, slept_s: float
) -> None:
    """It will be given none; an API server that does not answer may do so later."""
    replicas = lifecycle.wanted_replicas
    world = World(lifecycle, monkeypatch, 4)
    account = tmp_path / "account"
    account.mkdir()
    if has_account:
        (account / "token").write_text("secret")
    monkeypatch.setattr(lifecycle, "ACCOUNT", account)
    monkeypatch.setattr(lifecycle, "wanted_replicas", replicas)
    world.started |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    assert replicas(world.pod) is None
    assert world.slept_s == slept_s


@pytest.mark.parametrize("may_open", [True, False])
def test_what_a_hook_and_its_commands_say_is_in_the_pods_log(tmp_path: Path, may_open: bool) -> None:
    """Where that can't be had they say it all the same."""
    log = tmp_path / "log"
    if may_open:
        log.write_text("the node: \n")
    script = (
        f"import runpy, subprocess; from pathlib import Path; hook = runpy.run_path({str(FILE)!r})\n"
        f"hook['speak_through'](Path({str(log)!r})); hook['say']('a word'); subprocess.run(['echo', 'another'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    said = "lifecycle: a word\nanother\n"
    if may_open:
        assert (log.read_text(), done.stdout + done.stderr) == (f"the node: \n{said}", "")
    else:
        assert sorted((done.stdout, done.stderr)) == sorted(("another\n", "lifecycle: a word\n"))
