"""Fuzzing that is led by coverage of `node.amqp`, for some minutes: `make fuzz-coverage MINUTES=5`. Takes atheris
(`pip install atheris`); without it, says so and does nothing. What fails is written to fuzz-failures/, and tried again
with `python tests/fuzz/run_atheris.py FILE`. Further words go to libFuzzer."""

import importlib
import importlib.util
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_FAILURES = _ROOT / "fuzz-failures"
_LONGEST_INPUT_BYTES = 4096


def main() -> None:
    """Fuzz, or try files again."""
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: no fuzzing by coverage (pip install atheris)")
        return
    sys.path.insert(0, str(_ROOT))
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["mayfly.node.amqp"]):
        from tests.fuzz.octet_targets import first_inputs, one_input
    logging.disable(logging.WARNING)
    _FAILURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        words = [sys.argv[0], f"-artifact_prefix={_FAILURES}/", *sys.argv[1:]]
        if not any(Path(word).is_file() for word in sys.argv[1:]):
            for number, octets in enumerate(first_inputs()):
                (Path(corpus) / str(number)).write_bytes(octets)
            words += [f"-max_len={_LONGEST_INPUT_BYTES}", corpus]
        atheris.Setup(words, one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
