"""What all tests of containers begin with."""

import pytest

from tests.failover.engine import DEMANDED, IMAGE, make_image, why_no_engine
from tests.made_wheel import made_wheel


@pytest.fixture(scope="module")
def image() -> str:
    """The image of these sources. Without an engine the tests are skipped, or fail where one is demanded."""
    reason = why_no_engine()
    if reason and not DEMANDED:
        pytest.skip(f"no failover tests on this machine: {reason}")
    assert not reason, f"an engine is demanded (FAILOVER_DEMAND_ENGINE): {reason}"
    make_image(made_wheel())
    return IMAGE
