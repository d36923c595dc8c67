"""Generates the stubs in this folder: `python -m mayfly.cluster.rpc.generate`, from a checkout, with grpcio-tools.

With `--check` nothing is written; the exit code is 1 when the stubs are stale.
"""

import re
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

PACKAGE = "mayfly.cluster.rpc"
TARGET = Path(__file__).resolve().parent
PROTO = TARGET.parent.parent / "proto"


def generate() -> dict[str, str]:
    """Text of every generated file by its name."""
    with tempfile.TemporaryDirectory() as folder:
        names = sorted(path.name for path in PROTO.glob("*.proto"))
        arguments = ["protoc", f"-I{PROTO}", f"--python_out={folder}", f"--pyi_out={folder}", *names]
        if protoc.main(arguments) != 0:
            raise SystemExit("protoc failed")
        return {path.name: with_package(path.read_text()) for path in sorted(Path(folder).iterdir())}


def with_package(text: str) -> str:
    """protoc writes imports between generated modules as if they were at the top: put them into the package."""
    return re.sub(r"^import (\w+_pb2)", rf"from {PACKAGE} import \1", text, flags=re.MULTILINE)


def stale() -> list[str]:
    """Names of generated files that are not what they should be."""
    return [
        name
        for name, text in generate().items()
        if not (TARGET / name).exists() or without_versions((TARGET / name).read_text()) != without_versions(text)
    ]


def without_versions(text: str) -> str:
    """The text without the traces of the generator's version."""
    text = re.sub(r"^# Protobuf Python Version: .*$", "", text, flags=re.MULTILINE)
    return re.sub(r"ValidateProtobufRuntimeVersion\([^)]*\)", "", text)


def main() -> int:
    """Write the files, or check them."""
    if "--check" in sys.argv[1:]:
        names = stale()
        for name in names:
            print(f"{TARGET / name} is stale: python -m {PACKAGE}.generate", file=sys.stderr)
        return 1 if names else 0
    for name, text in generate().items():
        (TARGET / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
