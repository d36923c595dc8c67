"""The one version that clients and tools are told (RULES Q4)."""

import pytest

from mayfly.node.amqp.settings import ConnectionSettings
from mayfly.node.catalog import Catalog
from mayfly.node.operating.definitions.exporting import definitions_of
from mayfly.node.operating.views.overview import feature_flags, overview
from mayfly.node.version import RABBITMQ_VERSION
from tests.golden.recordings import VERSION


def test_q4_by_default_it_is_the_one_whose_answers_are_held() -> None:
    """RULES Q4: no other recordings are compared with (tests/golden)."""
    assert RABBITMQ_VERSION == VERSION
    assert ConnectionSettings().server_properties()["version"] == VERSION
    assert definitions_of(Catalog(1))["rabbitmq_version"] == VERSION


@pytest.mark.parametrize("version, flags", [("3.13.7", 0), ("4.0.9", 1), ("4.3.6", 4), ("5.0.0", 0)])
def test_q4_wherever_a_version_is_told_it_is_the_same(version: str, flags: int) -> None:
    """RULES Q4: in AMQP's server properties, the overview and exported definitions; flags of releases go with it."""
    told = [
        ConnectionSettings(version).server_properties()["version"],
        overview(version, "c")["rabbitmq_version"],
        overview(version, "c")["management_version"],
        definitions_of(Catalog(1), version)["rabbit_version"],
        definitions_of(Catalog(1), version)["rabbitmq_version"],
    ]
    assert set(told) == {version}
    assert sum(flag["name"].startswith("rabbitmq_4.") for flag in feature_flags(version)) == flags
