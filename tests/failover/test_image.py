"""The image compiles what it is told to: the other tests of containers put in the modules that `make` has compiled."""

import pytest

from tests.failover.engine import make_image_of_little

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_the_build_stage_compiles(image: str) -> None:
    assert "(compiled: " in make_image_of_little(f"{image}-little")
