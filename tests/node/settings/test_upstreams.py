"""The file with other clusters: what is in it, and what is wrong with it (RULES J4)."""

from pathlib import Path

import pytest

from mayfly.node.settings.upstreams import UpstreamAddress, read_upstreams

GOOD = """
[east]
addresses = ["amqps://one.east", "amqp://[::1]:5673/", "amqps://10.0.0.1:5699"]
user = "mirror"
password_file = "PASSWORD"
for_vhosts = ["/", "orders"]
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "upstreams.toml"
    file.write_text(text.replace("PASSWORD", str(folder / "password")))
    return file


def test_clusters_by_name(tmp_path: Path) -> None:
    east = read_upstreams(written(tmp_path, GOOD))["east"]
    assert east.addresses == (
        UpstreamAddress("one.east", 5671, True), UpstreamAddress("::1", 5673, False),
        UpstreamAddress("10.0.0.1", 5699, True),
    )  # fmt: skip
    assert (east.user, east.vhost, east.ca_file, east.for_vhosts) == ("mirror", "/", None, frozenset({"/", "orders"}))


def test_the_password_is_read_when_it_is_needed(tmp_path: Path) -> None:
    east = read_upstreams(written(tmp_path, GOOD))["east"]
    with pytest.raises(OSError, match="No such file"):
        east.password()
    file = tmp_path / "password"
    for text, password in (("one\n", "one"), ("two words\r\n", "two words"), (" blank ", " blank ")):
        file.write_text(text)
        assert east.password() == password
    for octets in (b"", b"\n", b"\xff\xfe", b"a\0b", b"x" * 5_000):
        file.write_bytes(octets)
        with pytest.raises(ValueError, match="has no password") as raised:
            east.password()
        assert "x" * 20 not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('addresses = []', "addresses: a list"),
        ('addresses = ["http://one"]', "amqps://HOST:PORT"),
        ('addresses = ["amqps://user:secret@one"]', "without user and password"),
        ('addresses = ["amqps://one:0"]', "a port of 1"),
        ('addresses = ["amqps://one:99999"]', "a port of 1"),
        ('user = ""', "user: some text"),
        ("user = 5", "user: some text"),
        (f'user = "{"u" * 1025}"', "user: 1025 octets, at most 1024 expected"),
        ('user = "one\\u0000two"', "user: a NUL"),
        (f'vhost = "{"ü" * 128}"', "vhost: 256 octets, at most 255 expected"),
        ('for_vhosts = "/"', "for_vhosts: a list"),
        ('password = "secret"', "unknown key 'password'"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, line: str, told: str) -> None:
    key = line.partition(" ")[0]
    lines = [each for each in GOOD.splitlines() if not each.startswith(f"{key} ")]
    file = written(tmp_path, "\n".join([*lines, line]))
    with pytest.raises(ValueError, match=r"upstreams\.toml: \[east\]: ") as raised:
        read_upstreams(file)
    assert told in str(raised.value)
    assert "secret" not in str(raised.value)


def test_no_toml_and_no_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a TOML file"):
        read_upstreams(written(tmp_path, "east"))
    with pytest.raises(ValueError, match="a table expected"):
        read_upstreams(written(tmp_path, "east = 5"))
