"""Certificates that a node can't use: it does not start, leaves no data, and says which file of which setting it is."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mayfly.node.command_line import main
from mayfly.node.settings import NodeSettings
from mayfly.node.shell.process import NodeProcess


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    for arguments in (["init"], ["issue", "one", "other"]):
        result = CliRunner().invoke(main, ["tls", *arguments, "--folder", str(folder)])
        assert result.exit_code == 0, result.output
    (folder / "garbage.pem").write_text("no certificate")
    return folder


@pytest.mark.parametrize("whose", ["amqp", "peer"])
@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (
            {"cert": "garbage.pem"},
            "{whose}_tls_cert = {folder}/garbage.pem and {whose}_tls_key = {folder}/one.key are not a certificate and "
            "its key: ",
        ),
        (
            {"key": "other.key"},
            "{whose}_tls_cert = {folder}/one.pem and {whose}_tls_key = {folder}/other.key are not a certificate and "
            "its key: ",
        ),
        ({"ca": "garbage.pem"}, "{whose}_tls_ca = {folder}/garbage.pem is not a certificate: "),
        ({"key": "gone.key"}, "{whose}_tls_key = {folder}/gone.key can't be read: No such file or directory"),
    ],
)
def test_it_is_said_before_there_is_any_data(
    whose: str, broken: dict[str, str], text: str, folder: Path, tmp_path: Path
) -> None:
    names = {"cert": "one.pem", "key": "one.key", "ca": "ca.pem", **broken}
    files: dict[str, Any] = {f"{whose}_tls_{what}": folder / name for what, name in names.items()}
    process = NodeProcess(NodeSettings(data_dir=tmp_path / "data", **files))
    with pytest.raises(OSError, match=re.escape(text.format(whose=whose, folder=folder))):
        asyncio.run(process.start())
    assert not (tmp_path / "data").exists()
