"""The stubs in cluster/rpc are those of proto/."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def test_the_stubs_are_not_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc_tools")
    from mayfly.cluster.rpc import generate

    monkeypatch.setattr(generate, "TARGET", ROOT / "cluster" / "rpc")
    monkeypatch.setattr(generate, "PROTO", ROOT / "proto")
    assert generate.stale() == [], f"run: {Path(sys.executable).name} -m mayfly.cluster.rpc.generate"


def test_a_stale_stub_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("grpc_tools")
    from mayfly.cluster.rpc import generate

    changed = (ROOT / "proto" / "peer.proto").read_text().replace("clock_ms = 1", "clock_ms = 9", 1)
    (tmp_path / "peer.proto").write_text(changed)
    monkeypatch.setattr(generate, "TARGET", ROOT / "cluster" / "rpc")
    monkeypatch.setattr(generate, "PROTO", tmp_path)
    assert generate.stale() == ["peer_pb2.py"]


def test_imports_between_stubs_stay_in_the_package() -> None:
    pytest.importorskip("grpc_tools")
    from mayfly.cluster.rpc import generate

    text = "import peer_pb2 as peer__pb2\nimport sys\n"
    assert generate.with_package(text) == "from mayfly.cluster.rpc import peer_pb2 as peer__pb2\nimport sys\n"
