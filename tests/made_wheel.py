"""What spares tests compiling everything once more: the wheel that `make` has made and installed, and sources of which
little is compiled."""

import re
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


def made_wheel() -> Path | None:
    """The compiled wheel of these sources for this Python; None where there is none, or one of other sources."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for wheel in Path(sys.prefix, "wheels").glob(f"mayflymq-*-{python}-{python}-{platform}.whl"):
        # What says how it is built is not in the wheel: it was made of what is older, as it is for make.
        made_by = max((ROOT / name).stat().st_mtime for name in ("setup.py", "pyproject.toml"))
        if made_by <= wheel.stat().st_mtime and _is_of_these(wheel):
            return wheel
    return None


def _is_of_these(wheel: Path) -> bool:
    with zipfile.ZipFile(wheel) as content:
        modules = {name: content.read(name) for name in content.namelist() if name.endswith(".py")}
    paths = [*ROOT.glob("mayfly/*.py"), *ROOT.glob("cluster/**/*.py"), *ROOT.glob("node/**/*.py")]
    names = [path.relative_to(ROOT).as_posix() for path in paths]
    return modules == {
        name if name.startswith("mayfly/") else f"mayfly/{name}": path.read_bytes()
        for name, path in zip(names, paths, strict=True)
    }


def compile_one_group(source: Path) -> None:
    """Change sources so that a build compiles Raft alone."""
    project = source / "pyproject.toml"
    section = re.compile(r"^\[tool\.mayfly\.compiled\]\n.*?(?=^\[)", re.MULTILINE | re.DOTALL)
    text, found = section.subn('[tool.mayfly.compiled]\nraft = ["mayfly/cluster/raft/*.py"]\n\n', project.read_text())
    assert found == 1
    project.write_text(text)
