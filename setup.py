"""Compiles the hot modules with mypyc where that is possible; the install goes on in pure Python where not.

Why it did is written beside the modules (`node/shell/uncompiled.txt`): `mayfly --version` says it, and a node at its
start if it was not meant. pip shows what a build prints only with --verbose.
All static metadata is in pyproject.toml, and so is the list of modules (`[tool.mayfly.compiled]`).
`MAYFLY_PURE=1` leaves the compilation out.
"""

import contextlib
import io
import os
import shutil
import sys
import sysconfig
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
GENERATED_C = "build/mypyc"


def say(text: str) -> None:
    print(f"mayfly: {text}", file=sys.stderr)


def module_groups() -> list[tuple[list[str], str | None]]:
    """The modules to compile that exist, by group: (paths from the root, name of the shared library)."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        listed: dict[str, list[str]] = tomllib.load(file)["tool"]["mayfly"]["compiled"]
    groups: list[tuple[list[str], str | None]] = []
    for name, patterns in listed.items():
        found = {path for pattern in patterns for path in ROOT.glob(pattern)}
        # A package's __init__ only re-exports: there is nothing in it to speed up.
        modules = sorted(path.relative_to(ROOT).as_posix() for path in found if path.name != "__init__.py")
        if modules:
            groups.append((modules, f"mayfly_{name}"))
    return groups


uncompiled = ""
"""Why nothing is compiled; it begins with FAILED if there was a C compiler and it was to be used."""
FAILED = "compiling failed: "


def goes_on_without(reason: str) -> None:
    global uncompiled
    uncompiled = " ".join(reason.split())
    line = "=" * 78
    say(f"\n{line}\nNothing is compiled: this build is three times as slow as it can be.\n{reason}\n{line}")


def reason_against_compiling() -> str | None:
    if os.environ.get("MAYFLY_PURE", "") not in ("", "0"):
        return "MAYFLY_PURE was set"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there was no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return f"{FAILED}the C headers of this Python (Python.h) are not installed"
    return None


def extensions() -> list[Extension]:
    """The C extensions that mypyc makes of the hot modules; none, and a text says why, if it cannot."""
    if not {"bdist_wheel", "build", "build_ext"} & set(sys.argv):
        return []
    reason = reason_against_compiling()
    if reason is None:
        told = io.StringIO()
        try:
            from mypyc.build import mypycify

            groups = module_groups()
            paths = [path for modules, _ in groups for path in modules]
            with contextlib.redirect_stdout(told):
                made: list[Extension] = mypycify(
                    ["--ignore-missing-imports", *paths],
                    only_compile_paths=paths,
                    separate=groups,
                    opt_level="2",
                    debug_level="0",
                    target_dir=GENERATED_C,
                )
            return made
        except (Exception, SystemExit) as error:
            print(told.getvalue(), file=sys.stderr)
            faults = [line for line in told.getvalue().splitlines() if "error:" in line] or [repr(error)]
            reason = f"{FAILED}mypyc did not translate the modules ({faults[0][:200]})"
    goes_on_without(reason)
    return []


class OptionalBuild(build_ext):  # type: ignore[misc]  # setuptools has no types for it
    """Compiles on all cores; a failure leaves a pure Python build behind instead of ending the install."""

    extensions: list[Extension]
    parallel: int | None

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        # The largest takes as long as all others together: it is not to begin when those are done.
        self.extensions.sort(key=lambda extension: -sum(map(os.path.getsize, extension.sources)))
        try:
            super().run()
        except Exception as error:
            goes_on_without(f"{FAILED}the C compiler did not do it ({str(error)[:100]} ...)")
            # A module beside a missing library of its group could not be imported: all or nothing.
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []
            self.distribution.ext_modules = []


class TellingBuild(build):  # type: ignore[misc]  # setuptools has no types for it
    """Leaves a note beside the modules, if they are not compiled, that says why."""

    build_lib: str

    def run(self) -> None:
        super().run()
        note = Path(self.build_lib, "mayfly", "node", "shell", "uncompiled.txt")
        note.unlink(missing_ok=True)
        if uncompiled:
            note.write_text(f"{uncompiled}\n")


class HonestWheel(bdist_wheel):  # type: ignore[misc]  # setuptools has no types for it
    """Names a wheel after what is in it: one whose compilation failed fits every Python, too."""

    def run(self) -> None:
        self.run_command("build")
        self.skip_build = True
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()


COMMANDS = {"build": TellingBuild, "build_ext": OptionalBuild, "bdist_wheel": HonestWheel}

setup(ext_modules=extensions(), cmdclass=COMMANDS)
