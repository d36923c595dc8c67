"""Settings of a node: precedence of sources, bad values refused in words, suggestions for unknown keys."""

import os
from pathlib import Path
from typing import Any

import pytest

from mayfly.node.settings import NodeSettings, SettingsError, reference, setting_help, setting_keys, setting_kind
from mayfly.node.settings.kinds import Address, describe_size
from mayfly.node.settings.sources import load_settings, option_of, variable_of


def problems_of(file: Path | None = None, environment: Any = None, options: Any = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(file, environment, options)
    return str(caught.value)


def test_the_page_of_settings_is_current() -> None:
    written = (Path(__file__).resolve().parents[3] / "docs" / "settings.md").read_text()
    assert written == reference.page(), "python -m mayfly.node.settings.reference > docs/settings.md"


@pytest.fixture
def toml(tmp_path: Path) -> Any:
    def write(text: str) -> Path:
        path = tmp_path / "mayfly.toml"
        path.write_text(text)
        return path

    return write


def test_with_nothing_given_a_node_is_a_complete_broker_on_loopback() -> None:
    settings = load_settings()
    assert settings.name == "node1"
    assert str(settings.amqp_address) == "127.0.0.1:5672"
    assert str(settings.peer_address) == "127.0.0.1:25672"
    assert str(settings.http_address) == "127.0.0.1:15672"
    assert str(settings.frames_listen_address) == "127.0.0.1:30672"
    assert (settings.node_id, list(settings.nodes), settings.shards) == (1, [1], 16)
    assert settings.peer_tls is None
    assert settings.amqp_tls is None
    assert settings.aiomonitor is False


def test_each_source_wins_over_the_one_before(toml: Any) -> None:
    file = toml("shards = 4\ntick_ms = 20\nname = 'file'\n")
    environment = {"MAYFLY_TICK_MS": "30", "MAYFLY_NAME": "environment"}
    settings = load_settings(file, environment, {"name": "option"})
    assert settings.shards == 4
    assert settings.tick_ms == 30
    assert settings.name == "option"
    assert settings.expiry_tick_ms == NodeSettings().expiry_tick_ms


def test_all_keys_can_be_set_in_all_sources(toml: Any, tmp_path: Path) -> None:
    certificate = tmp_path / "some.pem"
    certificate.touch()
    three = "127.0.0.1:25670,127.0.0.1:25671,127.0.0.1:25672"
    given: dict[str, str] = {
        "name": "a",
        "data_dir": str(tmp_path),
        "amqp_address": "[::1]:1",
        "peer_address": "0.0.0.0:2",
        "frames_address": "0.0.0.0:3",
        "advertised_peer_address": "127.0.0.1:25671",
        "http_address": "localhost:5",
        "seeds": three,
        "default_user": "u",
        "default_pass": "p",
        "log_level": "debug",
        "log_format": "json",
        "aiomonitor": "true",
        "amqp_reuse_port": "true",
        "balance_by_load": "false",
        "move_hot_queues": "true",
        "failure_domain": "rack-1",
        "ssl_cert_login_from": "subject_alternative_name",
        "ssl_cert_login_san_type": "email",
        "http_open_pages": "metrics",
        "rabbitmq_version": "3.13.7",
        "cluster_secret_file": str(certificate),
        "cluster_secret_demanded": "false",
        "load_definitions": str(certificate),
        **{key: str(certificate) for key in setting_keys() if "_tls_" in key},
        "amqp_tls_address": "[::1]:4",
        "http_tls_address": "[::1]:6",
        "http_cors_origins": "https://one.example,http://two.example:8080",
        **{key: "67108864" for key in setting_keys() if key.endswith("_bytes")},
        "auth_backends": "oauth2,internal",
        "oauth2_resource_server_id": "rabbitmq",
        "oauth2_key_file": str(certificate),
        "oauth2_jwks_ca": str(certificate),
        "oauth2_issuer": "https://id.example.org",
        "oauth2_verify_aud": "false",
        "oauth2_algorithms": "ES256,EdDSA",
        "oauth2_scope_prefix": "api://",
        "oauth2_additional_scopes_key": "roles realm_access.roles",
        "oauth2_scope_aliases": "admin=rabbitmq.tag:administrator rabbitmq.read:*/*,reader=rabbitmq.read:*/*",
        "oauth2_preferred_username_claims": "user_name,email",
    }
    numbers = {
        "shards": 3,
        "processes": 2,
        "replication_factor": 5,
        "aiomonitor_port": 7,
        "tick_ms": 10,
        "heartbeat_ms": 20,
        "election_timeout_ms": 60,
        "session_timeout_ms": 100,
        "expiry_tick_ms": 5,
        "clock_bound_ms": 10,
        "drain_notice_ms": 500,
        "drain_acks_ms": 100,
        "drain_timeout_ms": 2000,
        "consumer_timeout_ms": 60_000,
        "compact_entries": 1000,
        "memory_limit_percent": 50,
        "feature_level_limit": 2,
        "replace_after_ms": 30_000,
        "replica_move_bytes_per_second": 2_000_000,
        "shards_per_node": 2,
        "oauth2_leeway_ms": 1000,
    }
    texts = given | {key: str(value) for key, value in numbers.items()}
    contradicting = {"join", "cluster_secret", "oauth2_jwks_url", "upstreams_file"}
    assert set(texts) == set(setting_keys()) - contradicting, "join contradicts seeds, and so on"

    by_option = load_settings(options=texts)
    by_variable = load_settings(environment={variable_of(key): text for key, text in texts.items()})
    lines = [f"{key} = {value}" for key, value in numbers.items()]
    others = (
        "seeds", "aiomonitor", "amqp_reuse_port", "balance_by_load", "cluster_secret_demanded", "move_hot_queues",
        "oauth2_verify_aud",
    )  # fmt: skip
    lines += [f"{key} = '{text}'" for key, text in given.items() if key not in others]
    lines += ["aiomonitor = true", "amqp_reuse_port = true", "move_hot_queues = true"]
    lines += ["cluster_secret_demanded = false", "balance_by_load = false", "oauth2_verify_aud = false"]
    lines += [f"seeds = {three.split(',')}"]
    by_file = load_settings(toml("\n".join(lines)))
    assert by_option == by_variable == by_file
    assert by_option.node_id == 2
    assert (by_option.replication_factor, len(by_option.nodes)) == (5, 3)
    assert by_option.nodes[3] == Address("127.0.0.1", 25672)
    assert by_option.peer_tls is not None
    assert by_option.amqp_tls is not None


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("name", "has space", "letters, digits"),
        ("name", "x" * 64, "up to 63"),
        ("amqp_address", "5672", "host:port"),
        ("amqp_address", "127.0.0.1:", "port from 0 to 65535"),
        ("amqp_address", "127.0.0.1:65536", "port from 0 to 65535"),
        ("amqp_address", "::1:5672", "in brackets"),
        ("http_address", "a b:5672", "host:port"),
        ("advertised_peer_address", "nowhere", "host:port"),
        ("seeds", "127.0.0.1:25672,", None),
        ("seeds", "127.0.0.1:25672,127.0.0.1:25672", "every address at most once"),
        ("seeds", "127.0.0.1", "host:port"),
        ("failure_domain", "rack 1", "no spaces"),
        ("shards", "0", "from 1 to 1024"),
        ("shards", "sixteen", "a whole number"),
        ("shards", "1.5", "a whole number"),
        ("replication_factor", "-1", "from 1"),
        ("tick_ms", "4", "milliseconds from 5 to 400"),
        ("cache_bytes", "12 parsecs", "64 MiB"),
        ("cache_bytes", "1 KiB", "from 1 MiB to 1 TiB"),
        ("cache_bytes", "-1", "a size"),
        ("aiomonitor", "maybe", "true or false"),
        ("aiomonitor_port", "65534", "from 1 to 65533"),
        ("log_level", "loud", "one of debug, info, warning, error"),
        ("default_user", "", "1 to 255 characters"),
        ("peer_tls_cert", "/no/such/file", "a file that is there"),
        ("peer_tls_cert", "/" + 300 * "x", "a path that this user can look at (File name too long)"),
        ("peer_tls_cert", "~nobody-of-this-name/cert.pem", "a user that there is"),
        ("data_dir", "", "the path of a folder"),
        ("data_dir", "/tmp/\0", "without zero octets"),
        ("data_dir", "/" + 300 * "x", "a path that this user can look at (File name too long)"),
    ],
)
def test_a_bad_value_is_named_with_what_would_be_right(key: str, text: str, expected: str | None) -> None:
    if expected is None:
        load_settings(options={key: text})
        return
    for problem in (
        problems_of(options={key: text}),
        problems_of(environment={variable_of(key): text}),
    ):
        assert problem.startswith(f"{key} = {text!r} (")
        assert expected in problem
    assert option_of(key) in problems_of(options={key: text})
    assert variable_of(key) in problems_of(environment={variable_of(key): text})


def test_a_file_that_this_user_may_not_look_at_is_refused(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        problem = problems_of(options={"peer_tls_cert": str(closed / "cert.pem")})
    finally:
        os.seteuid(user)
    assert "a path that this user can look at (Permission denied)" in problem


def test_a_file_where_the_data_folder_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "expected a folder" in problems_of(options={"data_dir": str(tmp_path / "file")})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("shards = true", "a whole number"),
        ("shards = '16'", "a whole number"),
        ("shards = 16.0", "a whole number"),
        ("aiomonitor = 1", "true or false"),
        ("aiomonitor = 'true'", "true or false"),
        ("name = 1", "a string"),
        ("amqp_address = 5672", "a string: host:port"),
        ("seeds = '127.0.0.1:25672'", "a list of addresses"),
        ("seeds = [1]", "a list of addresses"),
        ("cache_bytes = 1.5", "a size"),
        ("cache_bytes = true", "a size"),
        ("log_level = 1", "one of debug"),
        ("[amqp_address]\nhost = 'x'", "a string"),
    ],
)
def test_a_toml_value_of_the_wrong_type_is_refused(toml: Any, line: str, expected: str) -> None:
    file = toml(line)
    problem = problems_of(file)
    assert expected in problem
    assert str(file) in problem


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1048576", 1048576),
        ("64 MiB", 64 << 20),
        ("64MB", 64_000_000),
        ("2g", 2_000_000_000),
        ("1 tib", 1 << 40),
    ],
)
def test_sizes_have_units(toml: Any, text: str, size_bytes: int) -> None:
    assert load_settings(options={"cache_bytes": text}).cache_bytes == size_bytes
    assert load_settings(toml(f"cache_bytes = '{text}'")).cache_bytes == size_bytes


def test_unknown_keys_are_refused_with_a_suggestion(toml: Any) -> None:
    assert 'unknown setting "shard". Did you mean "shards"?' in problems_of(toml("shard = 3"))
    variable = problems_of(environment={"MAYFLY_ELECTION_TIMEOUT": "3"})
    assert 'unknown setting "MAYFLY_ELECTION_TIMEOUT". Did you mean "MAYFLY_ELECTION_TIMEOUT_MS"?' in variable
    assert problems_of(toml("zzz = 3")).endswith('unknown setting "zzz".')


def test_variables_that_others_set_are_no_settings() -> None:
    load_settings(
        environment={
            "PATH": "/bin",
            "MAYFLY_PURE": "1",
            "MAYFLY_CONFIG": "x",
            "MAYFLY_SERVICE_HOST": "10.0.0.1",
            "MAYFLY_SERVICE_PORT_AMQP": "5672",
            "MAYFLY_PORT": "tcp://10.0.0.1:5672",
            "MAYFLY_PORT_5672_TCP_ADDR": "10.0.0.1",
            "MAYFLY_HEADLESS_PORT_5672_TCP": "tcp://10.0.0.1:5672",
        }
    )


def test_all_problems_are_told_at_once(toml: Any) -> None:
    text = problems_of(toml("shards = 0\nsharks = 1"), {"MAYFLY_TICK_MS": "x"}, {"log_level": "loud"})
    assert len(text.splitlines()) == 4


def test_unreadable_files_are_refused(toml: Any, tmp_path: Path) -> None:
    assert "cannot be read: No such file" in problems_of(tmp_path / "none.toml")
    assert "not a TOML file" in problems_of(toml("shards ="))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"tick_ms": "200"},
            "heartbeat_ms = '100' (with the other settings): expected at least tick_ms (200)",
        ),
        ({"heartbeat_ms": "300"}, "expected at least 900, 3 x heartbeat_ms"),
        ({"election_timeout_ms": "6000"}, "expected at least election_timeout_ms (6000)"),
        ({"replica_move_bytes_per_second": "1000000"}, "expected 0 or at least 1MiB"),
        ({"seeds": "127.0.0.1:1,127.0.0.1:2"}, "this node's own address among them (127.0.0.1:25672)"),
        ({"seeds": "0.0.0.0:1,127.0.0.1:2", "peer_address": "0.0.0.0:1"}, "advertised_peer_address = ''"),
        ({"http_address": "127.0.0.1:5672"}, "an address other than that of amqp_address"),
        ({"frames_address": "127.0.0.1:25672"}, "an address other than that of peer_address"),
        ({"amqp_address": "127.0.0.1:30672"}, "an address other than that of amqp_address"),
        ({"peer_tls_cert": __file__}, "peer_tls_ca = '' (with the other settings): expected a file"),
        ({"amqp_tls_address": "127.0.0.1:5671"}, "amqp_tls_cert = '' (with the other settings): expected a file"),
        ({"http_tls_address": "127.0.0.1:15671"}, "http_tls_cert = '' (with the other settings): expected a file"),
        ({"http_tls_address": "127.0.0.1:15672"}, "an address other than that of http_address"),
        ({"http_cors_origins": "example.org"}, "*, or origins such as https://example.org"),
        ({"amqp_tls_address": "127.0.0.1:5672"}, "an address other than that of amqp_address"),
        (
            {"amqp_address": "0.0.0.0:5671", "amqp_tls_address": "127.0.0.1:5671"},
            "amqp_tls_address = '127.0.0.1:5671' (with the other settings): expected a port other than that of "
            "amqp_address (0.0.0.0:5671): one of the two is for all hosts",
        ),
        (
            {"amqp_address": "10.0.0.1:15672", "http_address": "[::]:15672"},
            "a port other than that of amqp_address (10.0.0.1:15672): one of the two is for all hosts",
        ),
        ({"amqp_tls_ca": __file__}, "amqp_tls_cert = '' (with the other settings): expected a file"),
        ({"auth_backends": "oauth2"}, "oauth2_resource_server_id = '' (with the other settings): expected a name"),
        ({"auth_backends": "internal,oauth2"}, "oauth2_key_file = '' (with the other settings): expected either this"),
        (
            {"auth_backends": "oauth2", "oauth2_key_file": __file__, "oauth2_jwks_url": "https://id.example.org/keys"},
            "expected either this or oauth2_jwks_url",
        ),
        ({"auth_backends": "ldap"}, "expected one of internal, oauth2"),
        ({"oauth2_jwks_url": "http://id.example.org/keys"}, "expected an https:// address, or an http:// one of this"),
        ({"oauth2_jwks_url": "http://localhost.example.org/"}, "expected an https:// address"),
        ({"oauth2_jwks_url": "https://user:secret@id.example.org/"}, "expected an https:// address"),
        ({"oauth2_algorithms": "RS256,HS256"}, "expected some of RS256,"),
        ({"oauth2_scope_aliases": "admin"}, "expected such as admin=rabbitmq.tag:administrator"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(options: Any, expected: str) -> None:
    assert expected in problems_of(options=options)


def test_frames_have_an_address_of_their_own_beside_that_of_peers() -> None:
    for peer, frames in (
        ("10.0.0.1:7000", "10.0.0.1:12000"), ("[::]:60535", "[::]:65535"), ("x:60536", "x:55536"), ("x:0", "x:0"),
    ):
        assert str(load_settings(options={"peer_address": peer}).frames_listen_address) == frames
    given = load_settings(options={"peer_address": "10.0.0.1:7000", "frames_address": "10.0.0.2:0"})
    assert str(given.frames_listen_address) == "10.0.0.2:0"
    for wrong in ("10.0.0.1", "10.0.0.1:65536", "10.0.0.1:x"):
        expected = f"frames_address = '{wrong}' (option --frames-address): expected host:port"
        assert expected in problems_of(options={"frames_address": wrong})


def test_ports_chosen_by_the_system_do_not_collide() -> None:
    zero = "127.0.0.1:0"
    load_settings(options={"amqp_address": zero, "http_address": zero, "peer_address": zero})


def test_one_port_at_two_hosts_is_two_addresses() -> None:
    settings = load_settings(options={"amqp_address": "127.0.0.1:5672", "http_address": "127.0.0.2:5672"})
    assert settings.amqp_address.port == settings.http_address.port


def test_secrets_are_shown_nowhere(toml: Any) -> None:
    settings = load_settings(options={"default_pass": "xyzzy-plugh"})
    assert settings.default_pass == "xyzzy-plugh"
    assert "xyzzy" not in repr(settings)
    assert "xyzzy" not in str(settings.describe())
    assert "xyzzy" not in problems_of(options={"default_pass": "xyzzy" * 1000})
    assert "xyzzy" not in problems_of(toml("default_pass = ['xyzzy']"))


def test_every_setting_has_a_kind_and_a_help_text() -> None:
    for key in setting_keys():
        assert setting_kind(key).hint()
        assert setting_help(key)
    assert "[default: 64 GiB]" in setting_help("disk_map_bytes")


def test_sizes_read_back_as_they_are_shown() -> None:
    for size_bytes in (0, 1, 1000, 1 << 20, 5 << 30, 3 << 40):
        shown = describe_size(size_bytes)
        assert shown.endswith(("bytes", "MiB", "GiB", "TiB"))


def test_joining(toml: Any) -> None:
    """A node that joins has no name of its own yet, is not among the seeds, and has an address that others can use."""
    joining = load_settings(options={"join": "10.0.0.1:25672", "peer_address": "10.0.0.4:25672"})
    variables = {"MAYFLY_JOIN": "10.0.0.1:25672", "MAYFLY_PEER_ADDRESS": "10.0.0.4:25672"}
    assert joining == load_settings(environment=variables)
    assert joining == load_settings(toml("join = '10.0.0.1:25672'\npeer_address = '10.0.0.4:25672'"))
    assert joining.name == ""
    assert joining.joins and joining.node_id == 0
    for wrong in ({"peer_address": "0.0.0.0:25672"}, {"peer_address": "10.0.0.1:25672"}):
        with pytest.raises(SettingsError):
            load_settings(options={"join": "10.0.0.1:25672", "peer_address": "10.0.0.4:25672", **wrong})


def test_one_command_for_founders_and_those_that_come_later() -> None:
    """As in a stateful set: whoever is among the seeds founds the cluster, the others join."""
    options = {"seeds": "pod-{0..2}.mayfly:25672", "join": "mayfly:25672", "peer_address": "0.0.0.0:25672"}
    founder, later = (
        load_settings(options=options | {"advertised_peer_address": f"pod-{number}.mayfly:25672"}) for number in (2, 3)
    )
    assert [str(seed) for seed in founder.seeds] == [f"pod-{number}.mayfly:25672" for number in range(3)]
    assert (founder.node_id, founder.joins, founder.name) == (3, False, "node3")
    assert (later.node_id, later.joins, later.name) == (0, True, "")


@pytest.mark.parametrize("seeds", ["a-{2..0}:1", "a-{0..5000}:1", "a-{0..1}:x", "a-{0..1}:1,a-0:1"])
def test_ranges_that_are_none(seeds: str) -> None:
    with pytest.raises(SettingsError, match="seeds"):
        load_settings(options={"seeds": seeds})


def test_only_sizes_are_shown_as_sizes() -> None:
    """A great number of another kind is passed on to other processes as it is."""
    assert NodeSettings().describe()["consumer_timeout_ms"] == "1800000"
    assert NodeSettings().describe()["cache_bytes"] == "32 MiB"
