"""What keeps strangers from being a node, as settings say it, and what operators are told where nothing does."""

import io
import stat
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mayfly.node.command_line.secret_file import FILE, secret_file
from mayfly.node.command_line.status_command import show_status
from mayfly.node.local_nodes.local_cluster import plan_cluster
from mayfly.node.settings import NodeSettings, SettingsError
from mayfly.node.settings.kinds import Address
from mayfly.node.settings.sources import load_settings
from mayfly.node.shell.peer_protection import cluster_secrets, peer_warnings, protection

SECRET = "0123456789abcdef-secret"
ANYWHERE: dict[str, Any] = {
    "peer_address": Address("0.0.0.0", 25672), "seeds": (), "advertised_peer_address": Address("h", 25672),
}  # fmt: skip


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_on_loopback_nothing_is_warned_of(host: str) -> None:
    settings = NodeSettings(peer_address=Address(host, 25672))
    assert peer_warnings(settings) == []
    assert protection(settings) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "node1.example"])
def test_a_node_that_anybody_can_reach_says_so_and_what_to_set(host: str) -> None:
    settings = NodeSettings(peer_address=Address(host, 25672), advertised_peer_address=Address("h", 25672))
    (warning,) = peer_warnings(settings)
    assert "become a node of the cluster" in warning
    assert f"{Address(host, 25672)} and {Address(host, 30672)}" in warning
    assert "peer_tls_cert" in warning
    assert "cluster_secret" in warning
    assert protection(settings) == []


def test_frames_beyond_loopback_count_alone() -> None:
    (warning,) = peer_warnings(NodeSettings(frames_address=Address("10.0.0.1", 1)))
    assert "whoever reaches 10.0.0.1:1 can" in warning


def test_with_a_secret_what_is_left_is_said(tmp_path: Path) -> None:
    (warning,) = peer_warnings(NodeSettings(**ANYWHERE, cluster_secret=SECRET))
    assert "without TLS" in warning
    assert SECRET not in warning
    demanding = NodeSettings(**ANYWHERE, cluster_secret=SECRET)
    assert protection(demanding) == ["secret"]
    waiting = NodeSettings(**ANYWHERE, cluster_secret=SECRET, cluster_secret_demanded=False)
    assert "are taken as well" in peer_warnings(waiting)[1]
    assert protection(waiting) == []


def test_with_tls_nothing_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "x.pem"
    settings = NodeSettings(**ANYWHERE, peer_tls_cert=file, peer_tls_key=file, peer_tls_ca=file)
    assert peer_warnings(settings) == []
    assert protection(settings) == ["tls"]


def test_the_secret_is_taken_from_a_setting_or_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n{SECRET}-new\n")
    for settings in (
        NodeSettings(cluster_secret_file=path), NodeSettings(cluster_secret=f"{SECRET} {SECRET}-new"),
    ):  # fmt: skip
        known = cluster_secrets(settings)
        assert known
        assert known.demanded
        assert repr(known) == "ClusterSecrets(2, demanded=True)"
    assert not cluster_secrets(NodeSettings())
    assert not cluster_secrets(NodeSettings(cluster_secret=SECRET, cluster_secret_demanded=False)).demanded


@pytest.mark.parametrize("content", [b"", b"\n", b"short", b"\xff" * 20, b"0123456789abcdef " * 5, bytes(100)])
def test_a_file_without_a_good_secret_is_refused_by_its_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"cluster_secret_file = .*expected") as refused:
        cluster_secrets(NodeSettings(cluster_secret_file=path))
    assert not content.strip() or content.decode("latin-1").strip() not in str(refused.value)


def test_a_file_that_went_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can be read"):
        cluster_secrets(NodeSettings(cluster_secret_file=tmp_path / "gone"))


@pytest.mark.parametrize("text", ["short", "x" * 256, " ".join(["a" * 16] * 5), "a" * 16 + "\n", "ä" * 20])
def test_a_bad_secret_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(SettingsError, match=r"cluster_secret = \(hidden\)") as refused:
        load_settings(environment={"MAYFLY_CLUSTER_SECRET": text})
    assert text not in str(refused.value)


def test_a_secret_is_shown_nowhere(tmp_path: Path) -> None:
    settings = load_settings(environment={"MAYFLY_CLUSTER_SECRET": SECRET})
    assert SECRET not in repr(settings)
    assert settings.describe()["cluster_secret"] == "(hidden)"
    assert NodeSettings().describe()["cluster_secret"] == ""


def test_a_secret_stands_in_one_place(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    with pytest.raises(SettingsError, match="cluster_secret_file"):
        NodeSettings(cluster_secret=SECRET, cluster_secret_file=tmp_path / "secret")


def test_mayfly_up_makes_a_secret_that_its_owner_alone_may_read_and_keeps_it(tmp_path: Path) -> None:
    path = secret_file(tmp_path / "data", None, {})
    assert path == tmp_path / "data" / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_text()
    assert cluster_secrets(NodeSettings(cluster_secret_file=path)).demanded
    assert secret_file(tmp_path / "data", None, {}) == path
    assert path.read_text() == content
    assert [each.name for each in path.parent.iterdir()] == [FILE]
    for plan in plan_cluster(3, 5672, tmp_path / "data", None, path):
        arguments = plan.arguments()
        assert arguments[arguments.index("--cluster-secret-file") + 1] == str(path)
        assert content.strip() not in " ".join(arguments)


def test_mayfly_up_leaves_a_secret_of_the_settings_alone(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(f"cluster_secret = '{SECRET}'")
    assert secret_file(tmp_path / "data", config, {}) is None
    assert secret_file(tmp_path / "data", None, {"MAYFLY_CLUSTER_SECRET": SECRET}) is None
    assert secret_file(tmp_path / "data", None, {"MAYFLY_NONSENSE": "1"}) is None
    assert not (tmp_path / "data").exists()


def test_mayfly_status_shows_warnings() -> None:
    shown = io.StringIO()
    show_status({"name": "node1", "warnings": ["anybody can"]}, Console(file=shown, width=160))
    assert "WARNING: anybody can" in shown.getvalue()
