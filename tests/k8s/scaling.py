"""More pods, and fewer; and another password of the login that pods were given."""

from __future__ import annotations

import urllib.error
import urllib.request
from base64 import b64encode
from http import HTTPStatus
from typing import Any

from tests.k8s.cluster import SET, Login
from tests.k8s.release import OPERATOR, Release

LATER = Login(OPERATOR.user, "the second one")


def grow(release: Release) -> str:
    """Two more nodes join and get votes."""
    return _grow(release, {"replicaCount": 5})


def grow_blind(release: Release) -> str:
    """The same, and the pods are restarted without a right to ask the API server."""
    return _grow(release, {"replicaCount": 5, "rbac": {"create": False}})


def _grow(release: Release, values: dict[str, Any]) -> str:
    cluster = release.cluster
    release.upgrade(values)
    release.until_ready(5)
    release.until(lambda: len(cluster.members()) == 5 and cluster.voting() == {3}, "five members, votes moved")
    return f"members {', '.join(cluster.members())}; three vote in each group"


def shrink(release: Release) -> str:
    """Two leave, at the same time."""
    cluster = release.cluster
    release.upgrade({"replicaCount": 3})
    release.until_ready(3)
    release.until(lambda: cluster.members() == [f"{SET}-{number}" for number in range(3)], "three members")
    assert cluster.voting() == {3}
    return f"members {', '.join(cluster.members())}; three vote in each group"


def change_password(release: Release) -> str:
    """In the cluster alone: the Secret, and with it the pods' environment, has the one from before."""
    before = release.login
    release.mayfly("user", "password", before.user, "--new-password", LATER.password)
    release.login = LATER
    assert _answer(release, before) == HTTPStatus.UNAUTHORIZED, "the password from before is taken"
    assert _answer(release, LATER) == HTTPStatus.OK, "the new password is not taken"
    return "the one in the Secret, and in the pods' environment, is taken no more"


def change_secret(release: Release) -> str:
    """It follows, and `helm test` logs in with it."""
    before = release.cluster.ids()
    release.upgrade({"auth": {"username": LATER.user, "password": LATER.password}})
    seen = release.test()
    assert release.kept(before) == len(before), "pods were restarted"
    return f"{seen}; no pod was restarted"


def _answer(release: Release, login: Login) -> int:
    """HTTP's status for somebody who asks who that is."""
    url = f"http://{release.cluster.address()}:15672/api/whoami"
    shown = b64encode(f"{login.user}:{login.password}".encode()).decode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, None, {"Authorization": f"Basic {shown}"})) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
