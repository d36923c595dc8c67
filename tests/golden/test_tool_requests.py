"""What tools ask for over HTTP: answered as `tests.golden.tool_requests` recorded of RabbitMQ 4.3.6."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.golden.tool_requests import RECORDING, Broker
from tests.node.http.real_node import Node
from tests.node.http.served import address_of

OTHER_STATUS: Final = {
    # Says whether the parameter is new.
    "7 PUT global-parameters/cluster_tags": 201,
    # Fails there: it is to be put alone.
    "GET vhosts/%2F/deletion/protection": 200,
    # An empty default type is none here, as it was in RabbitMQ 3; there nothing of what follows has a vhost then.
    "terraform 0 PUT vhosts/tf": 201,
    # Of a password and a hash the hash counts, as it did in RabbitMQ 3; there nothing of what follows has a user then.
    "operator 6 PUT users/app": 201,
    # A quorum queue is deleted if it is unused, too.
    "operator 25 DELETE queues/top/q?if-unused=true&if-empty=true": 204,
    # The notes of an import are told.
    "rabbitmqadmin 54 POST definitions": 200,
    "rabbitmqadmin 55 POST definitions/v1": 200,
}
FOLLOWS: Final = re.compile(
    r"terraform \d+ \w+ (\w+/tf|permissions/tf/|topic-permissions/tf/|\w+-policies/tf/|bindings/tf)"
    r"|operator \d+ \w+ (user-limits/app|users/app|(topic-)?permissions/top/app)"
)
"""What has no vhost or user there, because this was refused."""

OTHER_TEXT: Final = {
    # Which vhost is not there is said.
    "GET aliveness-test/none": "no vhost 'none'",
    "operator 31 DELETE vhosts/top": "vhost top not found",
}

LEFT_OUT: Final = {
    "of Erlang": """applications callbacks cached_segments contexts cowboy_opts crypto_lib_version erlang_full_version
        erlang_version garbage_collection mem_calculation_strategy metrics_gc_queue_length net_ticktime proc_used
        reductions socket_opts""",
    "of how RabbitMQ keeps things": """cluster_links cluster_state config_files db_dir delayed_retry log_files
        memory message_bytes_dlx message_bytes_persistent message_bytes_ram messages_active_priorities
        messages_by_priority messages_delayed messages_dlx messages_persistent messages_ram messages_ready_ram
        messages_ready_returned messages_unacknowledged_ram node_tags online open_files pending_raft_commands
        quorum_queue_dlx_procs sample_retention_policies statistics_db_event_queue storage_version""",
    "not counted here": """churn_rates consumer_capacity consumer_utilisation deliveries disk_reads disk_writes incoming
        publish_out publishers recv_cnt send_cnt send_pend""",
    "octets of a vhost's clients together": "recv_oct send_oct",
    "known of TLS, where there is none": """peer_cert_issuer peer_cert_serial_number peer_cert_subject
        peer_cert_validity ssl_cipher ssl_hash ssl_key_exchange ssl_opts ssl_protocol tls""",
    "of settings and plugins that are not here": """auth_mechanisms description exchange_types experiment_level internal
        internal_owner is_internal_user is_op_policy_updating_enabled require_definition_json_extension require_level
        user_who_performed_action""",
    "said elsewhere": "default_queue_type rabbitmq_version user_provided_name x-queue-type",
    "of a file for people": "explanation original_cluster_name original_vhost_name rabbitmq_definition_format",
    "of exports: said of queues by their arguments, of limits by parameters": "type limits metadata",
    "only where there is something": """cluster_tags consumer_details exclusive_consumer_tag head_message_timestamp
        idle_since reason single_active_consumer_tag""",
}
"""Fields that there are not here, by why not. Besides rates: they are there from a second look on."""
NAMES: Final = frozenset(" ".join(LEFT_OUT.values()).split())
RATES_AND_STORES: Final = re.compile(
    r".*_details$|(io|gc|mnesia|msg_store|queue_index|context_switches|ra_open|channel|connection|queue)_?\w*"
    r"(count|time|bytes|num|reclaimed|created|closed|declared|deleted|switches|metrics)$|context_switches$"
)

OTHER_TYPES: Final = {
    # null where there is none; there left out.
    ("policy", "null or text"),
    # A number where there is a limit.
    ("delivery_limit", "number or text"),
}


def differences(ours: Any, theirs: Any, name: str = "") -> Iterator[str]:
    """Fields that are missing in ours, and those of another type."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for field, inner in theirs.items():
            if field in ours:
                yield from differences(ours[field], inner, field)
            elif field not in NAMES and not RATES_AND_STORES.match(field):
                yield f"{name}.{field} is missing"
    elif isinstance(theirs, list) and isinstance(ours, list):
        if theirs and ours:
            yield from differences(ours[0], theirs[0], name)
    elif isinstance(theirs, str) and isinstance(ours, str):
        if not {*ours.split(" or ")} <= {*theirs.split(" or ")} and (name, ours) not in OTHER_TYPES:
            yield f"{name} is {ours}, not {theirs}"
    elif (name, theirs) != ("properties", []):  # an empty table of Erlang
        yield f"{name} is {ours}, not {theirs}"


def recorded() -> dict[str, list[Any]]:
    content: dict[str, list[Any]] = json.loads(RECORDING.read_text(encoding="utf-8"))
    return content


KEYS: Final = list(recorded())


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    folder: Path = tmp_path_factory.mktemp("node")
    node = Node(folder)
    try:
        node.connection.close()
        yield Broker(node.parts.listener.port, address_of(node.parts.http).port, 0.0).play()
    finally:
        node.stop()


def test_every_request_is_recorded(answers: dict[str, list[Any]]) -> None:
    assert list(answers) == KEYS


@pytest.mark.parametrize("key", KEYS)
def test_requests(answers: dict[str, list[Any]], key: str) -> None:
    status, content = answers[key]
    expected_status, expected = recorded()[key]
    if key in OTHER_STATUS:
        assert (status, status != expected_status) == (OTHER_STATUS[key], True), content
    elif FOLLOWS.match(key) and status != expected_status:
        assert expected_status >= 400 > status, content
    elif status >= 400:
        text = OTHER_TEXT.get(key)
        assert (status, content) == (expected_status, expected if text is None else {**expected, "reason": text})
    else:
        assert status == expected_status, content
        # Columns of columns count here; there the first name does.
        assert "columns=" in key or list(differences(content, expected)) == []
