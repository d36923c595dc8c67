"""Starts and stops the node of a pod: `lifecycle.py start` becomes the node, `lifecycle.py stop` is the preStop hook.

start: the first pods begin the cluster together (seeds); all others join, and so does one whose node was removed, once
a node that has missed nothing says so: its data is of no more use then. Beside the node it is written down who it is.
stop: a node that is in no cluster yet goes. A pod that is scaled away takes its node out of the cluster and returns
when all it held is elsewhere. One that is only restarted is drained, and goes when no shard loses its majority by that.
One that can't find out which of the two it is goes like one that is restarted, if the others can spare it; if not, it
takes itself out: never a majority is lost then, and where it was restarted after all it has to get its data anew.

Beside the node its hooks show the node's own token: no login that somebody has changed keeps a pod from leaving. Only a
node of a release without such tokens is asked with the login of the environment.

Nothing but the standard library; what it needs to know is in the environment, by the chart.
"""

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

VOLUME = Path(os.environ.get("CHART_VOLUME", "/var/lib/mayfly"))
DATA = VOLUME / "data"
OWN_TOKEN = DATA / "own-token"
"""The node writes it at its start. None: the node is of an earlier release, or had no room for it."""
LEAVING = VOLUME / "leaving"
"""There: this node was told to leave the cluster; it may be that it did."""
MEMBER = VOLUME / "member"
"""The id of the member whose data is here, and that of its cluster."""
JOINED = VOLUME / "joined"
"""There: this node has joined a cluster that was there, though its number is one of those that begin."""
LOG_OF_POD = Path("/proc/1/fd/2")
"""What the first process of the container says is the pod's log."""
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ASK_WITHIN_S = 3.0
TRY_EVERY_S = 2.0
PATIENCE_S = 60.0
ALWAYS_ASKED = 3
"""So many of the first pods are asked, also where fewer have begun the cluster, or none: it was restored."""
COME_BACK_WITHIN_S = 60.0
"""So long a pod that does not know why it stops waits for those that stopped before it."""


class Pod:
    """What the chart has told this pod."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.name = environment["POD_NAME"]
        self.namespace = environment["POD_NAMESPACE"]
        self.set, _, number = self.name.rpartition("-")
        self.number = int(number)
        self.founders = int(environment["CHART_FOUNDERS"])
        self._domain = environment["CHART_DOMAIN"]
        self.user = environment["MAYFLY_DEFAULT_USER"]
        # Empty where an upgrade kept the values of a chart that did not have them.
        self.drain_timeout_s = environment.get("CHART_DRAIN_TIMEOUT_S") or "60"
        self.spare_timeout_s = float(environment.get("CHART_SPARE_TIMEOUT_S") or "300")
        self.failure_domain = environment.get("CHART_FAILURE_DOMAIN")
        """Of a label of the pod; "" if it has none such, None if none is asked for."""

    def host(self, number: int) -> str:
        """The name under which others reach a pod of the set."""
        return f"{self.set}-{number}.{self._domain}"

    def peer(self, number: int) -> str:
        """A pod's address for other nodes."""
        return f"{self.host(number)}:25672"

    def others(self) -> list[int]:
        """The numbers of pods that may be there if this one is: sets grow and shrink at the end."""
        return [number for number in range(max(self.number, self.founders, ALWAYS_ASKED)) if number != self.number]


def settings_of(pod: Pod, joins: bool, through: str) -> dict[str, str]:
    """The node's settings that depend on the pod."""
    settings = {
        "MAYFLY_NAME": pod.name,
        "MAYFLY_DATA_DIR": str(DATA),
        "MAYFLY_ADVERTISED_PEER_ADDRESS": pod.peer(pod.number),
    }
    if pod.failure_domain:
        settings["MAYFLY_FAILURE_DOMAIN"] = pod.failure_domain
    elif pod.failure_domain is not None:
        say("the pod lacks the label that failureDomainFromLabel names: the failure domain is as without that")
    if joins:
        return {**settings, "MAYFLY_JOIN": through}
    return {**settings, "MAYFLY_SEEDS": ",".join(pod.peer(number) for number in range(pod.founders))}


class Answer(NamedTuple):
    """What a node says of the members."""

    peer: str
    """Its peer address."""
    states: dict[int, str] | None
    """All members by id, removed ones too. Ids are never given out twice. None: it may have missed changes."""
    cluster: str = ""
    """The id of the cluster that it is in."""


def page(host: str, path: str) -> dict[str, Any]:
    """A page of a node. Raises OSError or ValueError."""
    with urllib.request.urlopen(f"http://{host}:15672{path}", timeout=ASK_WITHIN_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def members(pod: Pod) -> Answer | None:
    """What the others say: one that has missed nothing, if there is such a one, else any; None: nobody answers."""
    stale = None
    for number in pod.others():
        try:
            found = page(pod.host(number), "/cluster/members")
            states = {int(row["id"]): str(row["state"]) for row in found["members"]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if found.get("current") is True:
            return Answer(pod.peer(number), states, str(found.get("cluster", "")))
        stale = stale or Answer(pod.peer(number), None)
    return stale


def ask(pod: Pod) -> Answer | None:
    """Ask for the members as long as the answer is needed.

    Without data the node needs somebody to join. With data, if it was told to leave, it needs a current answer; it does
    not wait for ever, because it may be its vote that the others need to give one. Else it does not wait at all.
    """
    waited_s = 0.0
    while True:
        found = members(pod)
        if not holds_data():
            enough = found is not None
        elif LEAVING.exists():
            enough = (found is not None and found.states is not None) or waited_s >= PATIENCE_S
        else:
            enough = True
        if enough:
            return found
        say("nobody answers yet" if found is None else "no current answer yet")
        time.sleep(TRY_EVERY_S)
        waited_s += TRY_EVERY_S


def holds_data() -> bool:
    """Whether a node's data is here. The folder itself may be there without: emptied, or given up by the node."""
    return (DATA / "log").exists()


def forget_if_removed(states: dict[int, str], cluster: str) -> None:
    """A node that was removed comes back as a new one. `states` and `cluster`: of a current answer."""
    id, _, own_cluster = MEMBER.read_text().strip().partition(" ") if MEMBER.exists() else ("", "", "")
    state = states.get(int(id)) if id and own_cluster == cluster else None
    if state == "removed":
        say(f"node {id} was taken out of the cluster: joins it as a new node")
        shutil.rmtree(DATA)
        JOINED.touch()
        forget_notes()
    elif state == "member":
        LEAVING.unlink(missing_ok=True)
    else:
        say(f"keeps its data: nobody says that node {id or 'of an unknown id'} was removed from its cluster")


def forget_notes() -> None:
    """They are of data that is gone: they must not be held against the data of a new member."""
    MEMBER.unlink(missing_ok=True)
    LEAVING.unlink(missing_ok=True)


def start(pod: Pod) -> None:
    """Become the node."""
    through = pod.peer(0 if pod.number else 1)
    if not holds_data():
        if LEAVING.exists():
            JOINED.touch()
        forget_notes()
    noted = LEAVING.exists() or MEMBER.exists()
    if noted or pod.number >= pod.founders or JOINED.exists():
        found = ask(pod)
        if found is not None:
            through = found.peer
            if noted and found.states is not None:
                forget_if_removed(found.states, found.cluster)
    joins = pod.number >= pod.founders or JOINED.exists()
    os.environ.update(settings_of(pod, joins, through))
    beside(note_member_when_known)
    os.execvp("mayfly", ["mayfly", "node"])


def beside(work: Callable[[], None]) -> None:
    """Do it in a process of its own, which is no child of what this process becomes. It ends with the container."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        if os.fork() == 0:
            work()
    finally:
        os._exit(0)


def note_member_when_known() -> None:
    """Write down who the node is, once it is in a cluster."""
    while not note_member():
        time.sleep(TRY_EVERY_S)


def note_member() -> bool:
    """Write down which member this node is: by that it is known whether it was removed. Its name may be another's then.

    Whether it could. Without the note its data is never deleted here."""
    try:
        id = int(page("127.0.0.1", "/status")["id"])
        cluster = str(page("127.0.0.1", "/cluster/members")["cluster"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    draft = MEMBER.with_suffix(".draft")
    draft.write_text(f"{id} {cluster}\n")
    draft.replace(MEMBER)
    return True


def wanted_replicas(pod: Pod, tries: int = 5) -> int | None:
    """How many pods the set is to have; None: nobody can say, or the set is being deleted."""
    if not (ACCOUNT / "token").exists():
        say("may not ask for the set: the pod was given no account")
        return None
    try:
        request = urllib.request.Request(
            f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
            f"/apis/apps/v1/namespaces/{pod.namespace}/statefulsets/{pod.set}",
            headers={"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}"},
        )
        context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        with urllib.request.urlopen(request, timeout=ASK_WITHIN_S, context=context) as answer:
            found: dict[str, Any] = json.load(answer)
    except (OSError, ValueError, KeyError) as error:
        if tries > 1:
            time.sleep(TRY_EVERY_S)
            return wanted_replicas(pod, tries - 1)
        say(f"cannot ask for the set: {error}")
        return None
    # A set that is being deleted is switched off.
    return 0 if "deletionTimestamp" in found["metadata"] else int(found["spec"]["replicas"])


def stop(pod: Pod) -> None:
    """Leave the cluster, if the pod is scaled away for good; else drain."""
    if in_no_cluster_yet():
        say("the node is in no cluster yet: it holds nothing")
        return
    wanted = wanted_replicas(pod)
    if wanted is None:
        stop_for_whatever_reason(pod)
    elif wanted == 0:
        # Switched off: all go, and keep their data.
        drain(pod)
    elif wanted <= pod.number:
        leave(pod, list(range(wanted)))
    else:
        restart(pod)


def in_no_cluster_yet() -> bool:
    """Whether the node still asks for a place."""
    try:
        return bool(page("127.0.0.1", "/status").get("waits"))
    except (OSError, ValueError):
        return False


def restart(pod: Pod) -> None:
    """Go when the others can spare this node: it serves until then, and is drained. It goes in any case in the end."""
    began_s = time.monotonic()
    until_spared(pod, pod.spare_timeout_s)
    drain(pod)
    # Another one may have begun to drain at the same moment: one of the two goes first.
    if not until_spared(pod, max(0.0, began_s + pod.spare_timeout_s - time.monotonic())):
        say("goes though a shard loses its majority by that: it was told to restart, and nobody has come back")


def stop_for_whatever_reason(pod: Pod) -> None:
    """Drain and go; leave the cluster if a shard would lose its majority.

    Pods with higher numbers that have not come back went like this one, and have noted that they may be taken out.
    Where nobody stays the set is switched off."""
    drain(pod)
    spared = until_spared(pod, COME_BACK_WITHIN_S)
    others = other_members(pod)
    staying = [number for number, row in others.items() if row["up"] and not row.get("draining")]
    if not staying:
        return
    if spared:
        note_leaving()
        return
    say("can't be spared, and does not know whether it comes back: leaves the cluster")
    leave(pod, staying, [row["name"] for number, row in others.items() if number > pod.number and not row["up"]])


def other_members(pod: Pod) -> dict[int, dict[str, Any]]:
    """The members in other pods of the set, by number, as this pod's node has them; none where it does not answer."""
    try:
        rows = page("127.0.0.1", "/cluster/members")["members"]
        present = {number_of(pod, row["name"]): row for row in rows if row["state"] != "removed"}
    except (OSError, ValueError, KeyError, TypeError) as error:
        say(f"cannot ask the node for the members: {error}")
        return {}
    return {number: row for number, row in present.items() if number not in (-1, pod.number)}


def number_of(pod: Pod, name: str) -> int:
    """A pod's number, by its name; -1 if it is none of the set."""
    set_, _, number = name.rpartition("-")
    return int(number) if set_ == pod.set and number.isdigit() else -1


def until_spared(pod: Pod, within_s: float) -> bool:
    """Wait until no shard would lose its majority with this node, but no longer than that; whether it is so.

    A node that reaches nobody takes all others for down, and would wait for them in vain: another one is asked."""
    try:
        page("127.0.0.1", "/health/live")
    except (OSError, ValueError) as error:
        say(f"the node does not answer, nobody has it any more: {error}")
        return True
    return mayfly("ready", "--without", pod.name, "--node", f"{who_knows(pod)}:15672", "--timeout", f"{within_s:.0f}")


def who_knows(pod: Pod) -> str:
    """Where a node is asked who is up: the own one, unless it has missed changes and another one has not."""
    for host in ("127.0.0.1", *map(pod.host, pod.others())):
        try:
            if page(host, "/cluster/members").get("current") is True:
                return host
        except (OSError, ValueError):
            continue
    return "127.0.0.1"


def leave(pod: Pod, staying: list[int], gone: Sequence[str] = ()) -> None:
    """Take this node out, and before it those that are gone; tries until that is done or the pod's time is over.

    By the node's own token, which its own node takes; else by the login, through one of those that stay."""
    while True:
        note_leaving()
        by_login = [("--node", f"{pod.host(number)}:15672", "--user", pod.user) for number in staying]
        for through in [*by_own_token(), *by_login]:
            for name in gone:
                mayfly("cluster", "remove", name, "--no-wait", *through)
            # The own node may have ended when it was out, before it could say so.
            if mayfly("cluster", "remove", pod.name, *through) or is_removed(pod):
                return
        say("not out of the cluster yet: tries again")
        time.sleep(TRY_EVERY_S)


def by_own_token() -> list[tuple[str, ...]]:
    """How a command asks the own node without a login; nothing where the node has written no token."""
    return [("--node", "127.0.0.1:15672", "--token-file", str(OWN_TOKEN))] if OWN_TOKEN.exists() else []


def is_removed(pod: Pod) -> bool:
    """Whether another node, one that has missed nothing, says that this pod's member was removed."""
    id, _, cluster = MEMBER.read_text().strip().partition(" ") if MEMBER.exists() else ("", "", "")
    found = members(pod) if id else None
    if found is None or found.states is None or found.cluster != cluster:
        return False
    return found.states.get(int(id)) == "removed"


def note_leaving() -> None:
    """Write down that this node was told to leave, and who it is, if that could not be done before."""
    if not note_member() and not MEMBER.exists():
        say("cannot ask the node who it is")
    LEAVING.touch()


def drain(pod: Pod) -> None:
    """Hand over what this node leads and send its clients elsewhere."""
    by_login = ("--node", "127.0.0.1:15672", "--user", pod.user)
    mayfly("drain", *(by_own_token() or [by_login])[0], "--timeout", pod.drain_timeout_s)


def mayfly(*words: str) -> bool:
    """An operator's command; whether it succeeded."""
    return subprocess.run(["mayfly", *words], check=False).returncode == 0


def say(text: str) -> None:
    """To the pod's log."""
    print(f"lifecycle: {text}", file=sys.stderr, flush=True)


def speak_through(log: Path) -> None:
    """Have this process and its commands write there, if that may be opened: a hook's own output is kept nowhere."""
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    except OSError:
        return
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())


if __name__ == "__main__":
    if sys.argv[1] == "stop":
        speak_through(LOG_OF_POD)
    {"start": start, "stop": stop}[sys.argv[1]](Pod(dict(os.environ)))
