"""No test of the transport may leave errors in the log."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Neither an error nor a traceback in the log, nor anything on stderr."""
    caplog.set_level("INFO")
    yield
    records = caplog.get_records("call")
    assert [record.getMessage() for record in records if record.levelname in ("ERROR", "CRITICAL")] == []
    assert [record for record in records if record.exc_info] == []
    assert capfd.readouterr().err == ""
