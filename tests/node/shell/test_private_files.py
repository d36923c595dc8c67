"""What a node keeps is for its own user alone, whatever the umask, and also what an earlier version left."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from mayfly.node.command_line import main
from mayfly.node.shell.private_files import make_private, open_private, write_private
from tests.integration.nodes import Nodes


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    """Of a folder and all that is in it, by path from it."""
    return {
        str(path.relative_to(folder)): oct(stat.S_IMODE(path.lstat().st_mode)) for path in (folder, *folder.rglob("*"))
    }


def not_private(folder: Path) -> dict[str, str]:
    """What others can come to, or has a mode that nobody meant."""
    return {
        name: mode for name, mode in modes(folder).items()
        if mode != (oct(0o700) if (folder / name).is_dir() else oct(0o600))
    }  # fmt: skip


@pytest.mark.processes
def test_a_node_that_ran_leaves_nothing_that_others_can_read(tmp_path: Path) -> None:
    """Under the umask that gives most: all data, the log of `mayfly up`, and a copy of the data. Then everything is
    made open, as an earlier version left it, and the next start mends that."""
    with umask(0), Nodes(tmp_path / "nodes", count=1) as nodes:
        nodes.serve()
        plan = nodes.plan(1)
        copy, definitions = tmp_path / "copy", tmp_path / "definitions.json"
        definitions.touch(mode=0o666)
        for words in (["snapshot", str(copy)], ["export", str(definitions)]):
            result = CliRunner().invoke(main, [*words, "--node", str(plan.http)])
            assert result.exit_code == 0, result.output
        for name in ("log/data.mdb", "log/ahead-1", "own-token", "clock", "snapshots"):
            assert (plan.data_dir / name).exists(), modes(plan.data_dir)
        assert not_private(plan.data_dir) == not_private(copy) == {}
        for file in (plan.log_file, definitions):
            assert oct(stat.S_IMODE(file.stat().st_mode)) == "0o600"
        nodes.stop()
        for path in (plan.data_dir, *plan.data_dir.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        plan.log_file.chmod(0o666)
        nodes.serve()
        assert not_private(plan.data_dir) == {}
        assert oct(stat.S_IMODE(plan.log_file.stat().st_mode)) == "0o600"


def earlier(folder: Path) -> None:
    """A data folder as an earlier version made it under umask 022."""
    for name in ("log", "snapshots"):
        (folder / name).mkdir(parents=True)
    for name in ("log/data.mdb", "log/in-use", "snapshots/1", "clock"):
        (folder / name).touch()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_the_folder_is_left_alone_where_somebody_else_has_something_in_it(tmp_path: Path) -> None:
    earlier(tmp_path)
    (tmp_path / "lost+found").mkdir(mode=0o755)
    (tmp_path / "notes").touch(mode=0o644)
    tmp_path.chmod(0o755)
    assert make_private(tmp_path) == []
    assert not_private(tmp_path) == {".": "0o755", "lost+found": "0o755", "notes": "0o644"}


def test_a_group_that_somebody_chose_keeps_its_access(tmp_path: Path) -> None:
    """As Kubernetes leaves a volume of a pod with an fsGroup."""
    earlier(tmp_path)
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o2775 if path.is_dir() else 0o664)
    assert make_private(tmp_path) == []
    assert set(modes(tmp_path).values()) == {"0o2770", "0o660"}


def test_a_link_leads_nowhere_that_is_not_the_node_s(tmp_path: Path) -> None:
    earlier(tmp_path / "data")
    theirs = tmp_path / "theirs"
    theirs.touch(mode=0o644)
    theirs.chmod(0o644)
    (tmp_path / "data" / "log" / "link").symlink_to(theirs)
    assert make_private(tmp_path / "data") == []
    assert oct(stat.S_IMODE(theirs.stat().st_mode)) == "0o644"
    assert make_private(tmp_path / "nothing") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_what_is_another_user_s_is_told(tmp_path: Path) -> None:
    earlier(tmp_path)
    os.chown(tmp_path / "log" / "data.mdb", 12345, 12345)
    assert make_private(tmp_path) == [str(tmp_path / "log" / "data.mdb")]


def test_files_that_are_written_for_their_owner(tmp_path: Path) -> None:
    with umask(0):
        file = tmp_path / "file"
        file.touch(mode=0o666)
        write_private(file, "one")
        assert (file.read_text(), oct(stat.S_IMODE(file.stat().st_mode))) == ("one", "0o600")
        write_private(tmp_path / "new", "two")
        with open(open_private(tmp_path / "log"), "ab") as log:
            log.write(b"a")
        with open(open_private(tmp_path / "log"), "ab") as log:
            log.write(b"b")
        assert (tmp_path / "log").read_bytes() == b"ab"
        assert set(modes(tmp_path).values()) - {modes(tmp_path)["."]} == {"0o600"}
        # A pipe is written to, not replaced.
        os.mkfifo(pipe := tmp_path / "pipe")
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        write_private(pipe, "three")
        assert os.read(reader, 10) == b"three"
        os.close(reader)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path / "folder", "x")
    shutil.rmtree(tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "log", "new", "pipe"]
