"""No test of the transport may leave errors in the log."""

from collections.abc import Iterator

import pytest

from mayfly.cluster.transport import options

_AN_HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def quiet(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Neither an error nor a traceback in the log, nor anything on stderr."""
    caplog.set_level("INFO")
    yield
    records = caplog.get_records("call")
    assert [record.getMessage() for record in records if record.levelname in ("ERROR", "CRITICAL")] == []
    assert [record for record in records if record.exc_info] == []
    assert capfd.readouterr().err == ""


@pytest.fixture
def nobody_asks_for_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is noticed while a test waits was not noticed because gRPC had asked whether the peer is there."""
    patient = [(name, _AN_HOUR_MS if name == "grpc.keepalive_time_ms" else value) for name, value in options._COMMON]
    assert patient != options._COMMON
    monkeypatch.setattr(options, "_COMMON", patient)
