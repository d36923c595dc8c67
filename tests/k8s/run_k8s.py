"""`make test-k8s`: the chart on a real API server, under load; what happened goes into docs/measurements/kubernetes.md.

    python -P tests/k8s/run_k8s.py --kubeconfig FILE [--image mayfly:latest] [--write docs/measurements/kubernetes.md]
        [--from-image mayfly:before [--from-chart FOLDER]] [--steps kill,drain] [--rate 150]

Install, `helm test`, an upgrade that can't work and its rollback, an upgrade that works, 3 -> 5 -> 3 nodes with the
login changed in between, a killed pod, a drained machine, a scale-in whose pods can't ask the API server, TLS switched
on for clients and between nodes; messages come and go all the time and are judged as in tests/reliability. Then the
release is uninstalled and installed again on its volumes; then there is another one, with login, definitions and
certificates from secrets. The API server may have one machine and no provisioner of volumes: volumes are folders here.
`--steps` plays some of them only, always with the install before and the judgement after them.

`--from-image` is that of an earlier release, `--from-chart` its chart (default: this one): they are installed first,
replaced under load, put back, and replaced again (steps `rollout` and `back`). Where the earlier release does not know
this one's feature level, it is first replaced and put back while the level is held (step `held`); once the level has
been raised, `back` is refused by the first pod, and the way on is to go forward again.

`--without-disks`: pods keep nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

sys.path.append(str(Path(__file__).resolve().parent.parent.parent))

from tests.k8s import encryption, from_secrets, load, losses, reinstallation, scaling, upgrades
from tests.k8s.cluster import RELEASE, Cluster
from tests.k8s.release import CHART, Release
from tests.k8s.transcript import Steps

RATE: Final = 150.0
UNDER_LOAD: Final[tuple[tuple[str, str, upgrades.Scene], ...]] = (
    ("bad-upgrade", "upgrade to an image that is not there, rollback", upgrades.without_image),
    ("upgrade", "upgrade of an annotation", upgrades.of_an_annotation),
    ("grow", "scale out, 3 to 5", scaling.grow),
    ("password", "the administrator's password changed by `mayfly user password`", scaling.change_password),
    ("shrink", "scale in, 5 to 3", scaling.shrink),
    ("password", "the new password into the Secret, helm test", scaling.change_secret),
    ("kill", "pod killed (no grace)", losses.kill),
    ("pair", "two pods deleted at the same time", losses.delete_two),
    ("drain", "all pods evicted, as when machines are drained", losses.drain),
    ("blind", "scale out, 3 to 5, pods may not ask the API server from then on", scaling.grow_blind),
    ("blind", "scale in, 5 to 3, without the API server", scaling.shrink),
    ("tls", "TLS for clients, at a port beside the plain one", encryption.clients_beside),
    ("tls", "TLS between nodes, rolled back", encryption.not_between_nodes),
    ("tls", "TLS between nodes", encryption.between_nodes),
    ("test", "helm test again", Release.test),
)
AFTER_LOAD: Final[tuple[tuple[str, str, upgrades.Scene], ...]] = (
    ("tls", "the plain port closed", encryption.clients_only),
    ("reinstall", "uninstalled, installed again", reinstallation.reinstall),
    ("secrets", "another release: login, definitions, certificates from secrets", from_secrets.install),
)
STEPS: Final = ("held", "rollout", "back", *dict.fromkeys(step for step, *_ in (*UNDER_LOAD, *AFTER_LOAD)))
NEEDS_EARLIER: Final = {"held", "rollout", "back"}


def main() -> None:
    """Run, print, write; ends the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, default=os.environ.get("KUBECONFIG"))
    parser.add_argument("--image", default="mayfly:latest", help="of `make image` (default: %(default)s)")
    parser.add_argument("--from-image", help="that of an earlier release, for the steps `rollout` and `back`")
    parser.add_argument("--from-chart", type=Path, default=CHART, help="its chart (default: this one)")
    parser.add_argument("--without-disks", action="store_true", help="a pod that is replaced has lost its data")
    parser.add_argument("--write", type=Path, help="Markdown file whose transcript is replaced")
    parser.add_argument("--steps", help=f"some of {','.join(STEPS)}; default: all")
    parser.add_argument("--rate", type=float, default=RATE, help="messages per second (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="remove nothing if a step fails, to look for the cause")
    arguments = parser.parse_args()
    if arguments.kubeconfig is None:
        sys.exit("no API server: --kubeconfig or KUBECONFIG names its file (docs/operations/kubernetes.md)")
    possible = tuple(each for each in STEPS if arguments.from_image or each not in NEEDS_EARLIER)
    chosen = possible if arguments.steps is None else tuple(arguments.steps.split(","))
    if set(chosen) - set(possible):
        sys.exit(f"--steps {arguments.steps}: some of {','.join(possible)} are expected")
    earlier = earlier_release(arguments) if NEEDS_EARLIER & set(chosen) else None
    folder = Path(tempfile.mkdtemp(prefix="mayfly-k8s-"))
    cluster = Cluster(arguments.kubeconfig, folder)
    release = Release(cluster, arguments.image)
    if arguments.without_disks:
        release.values["persistence"] = {"enabled": False}
    steps = Steps(cluster)
    cluster.prepare()
    kept = arguments.keep
    try:
        violations = play(release, earlier, steps, chosen, arguments.rate)
        kept = False
    finally:
        if not kept:
            cluster.remove(RELEASE, from_secrets.RELEASE)
            shutil.rmtree(folder, ignore_errors=True)
        print("\n" + "\n".join(steps.lines), flush=True)
    machine = f"one machine of {os.cpu_count()} processors, load average {os.getloadavg()[1]:.1f} at the end"
    head = f"{time.strftime('%Y-%m-%d')}, Kubernetes {cluster.version} on {machine}; {arguments.rate:g} messages/s."
    print(head, *violations, sep="\n")
    if arguments.write is not None:
        from tests.reliability.run_chaos import replace_figures

        replace_figures(arguments.write, "test-k8s", "\n".join([head, "", *steps.lines]))
    sys.exit(f"{len(violations)} promises were broken" if violations else 0)


def earlier_release(arguments: argparse.Namespace) -> upgrades.Earlier:
    """What is installed first; ends the process if there is no way from it to this one."""
    from tests.failover.engine import release_of_image
    from tests.failover.releases import Upgrade

    way = Upgrade(release_of_image(arguments.from_image), release_of_image(arguments.image))
    if way.fault():
        sys.exit(f"no rolling upgrade: {way.fault()}")
    return upgrades.Earlier(arguments.from_chart, way)


def play(
    release: Release, earlier: upgrades.Earlier | None, steps: Steps, chosen: Sequence[str], rate: float
) -> list[Any]:
    """The chosen steps; the promises that were broken."""
    if earlier is None:
        steps.do("install, three nodes", release.install, count=False)
    else:
        steps.do("install, three nodes of the earlier release", lambda: earlier.install(release), count=False)
    if "test" in chosen:
        steps.do("helm test", release.test)
    release.add_user_of_load()
    clients = load.begin(release.cluster, rate)
    steps.load = clients
    try:
        for step, title, scene in (*(() if earlier is None else earlier.scenes()), *UNDER_LOAD):
            if step in chosen:
                steps.do(title, lambda: scene(release))  # noqa: B023
                clients.check()
        steps.load = None
        violations = load.end(release.cluster, clients, steps)
    finally:
        clients.end()
    for step, title, scene in AFTER_LOAD:
        if step in chosen:
            steps.do(title, lambda: scene(release), count=False)  # noqa: B023
    return violations


if __name__ == "__main__":
    main()
