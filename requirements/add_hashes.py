"""Writes the hashes of all files that an index has of each version into the requirements here: `make lock`.

A file names exact versions, one to a line; hashes that it has already are written anew. The index is the one that `uv`
is set up for. pip then takes nothing else under those names and versions, whatever a mirror gives it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
OLDEST_PYTHON = "3.11"


def is_version(line: str) -> bool:
    return "==" in line and not line.lstrip().startswith(("#", "--"))


def hashed(versions: list[str], uv: str) -> list[str]:
    """The same lines, with hashes."""
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "given.txt"), Path(folder, "made.txt")
        given.write_text("\n".join(versions) + "\n")
        subprocess.run(
            [uv, "pip", "compile", "--quiet", "--no-deps", "--generate-hashes", "--no-annotate", "--no-header",
             "--universal", "--python-version", OLDEST_PYTHON, given, "--output-file", made],
            check=True,
        )  # fmt: skip
        return made.read_text().splitlines()


def main() -> None:
    """Every file in this folder."""
    uv = sys.argv[1]
    for file in sorted(HERE.glob("*.txt")):
        lines = file.read_text().splitlines()
        head = [line for line in lines if line.startswith(("#", "--requirement"))]
        versions = [line.removesuffix("\\").rstrip() for line in lines if is_version(line)]
        file.write_text("\n".join([*head, *hashed(versions, uv)]) + "\n")


if __name__ == "__main__":
    main()
