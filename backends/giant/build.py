"""Builds the native backend at its first use, once for a machine and a version of everything it needs.

torch is not imported here: `giantdsl train` builds before it starts its ranks.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from giantdsl.errors import GiantError
from giantdsl.resources import folder

MODULE = "giantdsl_giant"
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-pthread", "-fvisibility=hidden", "-DNDEBUG")
_LIBRARIES = ("-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10", "-lrt")
_SHOWN_LINES = 12


class BuildError(GiantError):
    """The backend cannot be built here. Says why, and where the log lies."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides what is built. `key` names it in the cache."""

    compiler: Path
    root: Path
    sources: tuple[Path, ...]
    torch: Path
    python: Path
    key: str

    @property
    def library(self) -> Path:
        """Where the built module lies, or will."""
        return cache() / f"giant-{self.key}" / f"{MODULE}.so"

    @property
    def log(self) -> Path:
        """Where a failed build leaves what the compiler said."""
        return cache() / f"giant-{self.key}.log"


def cache() -> Path:
    """`$GIANTDSL_CACHE`, or `giantdsl` in the user's cache."""
    given = os.environ.get("GIANTDSL_CACHE")
    if given:
        return Path(given) / "backends"
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "giantdsl" / "backends"


def find_compiler() -> Path | None:
    """`$CXX`, else the first C++ compiler of the usual names."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "c++", "clang++"]
    return next((Path(path) for name in names if (path := shutil.which(name))), None)


def recipe() -> Recipe:
    """What would be built. Raises BuildError where something needed is missing."""
    if not sys.platform.startswith("linux"):
        raise BuildError("the giant backend needs Linux (shared memory, eventfd, pidfd)")
    compiler = find_compiler()
    if compiler is None:
        raise BuildError("the giant backend needs a C++20 compiler to be built: install g++")
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildError("the giant backend needs torch: pip install torch")
    python = Path(sysconfig.get_path("include"))
    if not (python / "Python.h").is_file():
        raise BuildError(f"the giant backend needs Python's headers: there is no {python}/Python.h")
    root = folder("csrc")
    sources = sorted([*(root / "core").rglob("*.cpp"), *(root / "c10d").glob("*.cpp")])
    return Recipe(
        compiler, root, tuple(sources), Path(spec.origin).parent, python, _key(compiler, root)
    )


def _key(compiler: Path, root: Path) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    facts = [importlib.metadata.version("torch"), sys.version, platform.machine()]
    facts += [str(compiler), version.stdout, *_FLAGS, *_LIBRARIES]
    digest = hashlib.sha256("\0".join(facts).encode())
    for part in ("core", "c10d"):
        for path in sorted((root / part).rglob("*")):
            if path.suffix in (".h", ".cpp"):
                digest.update(f"\0{path.relative_to(root)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def build(*, again: bool = True) -> Path:
    """The module's file, built if it is not there. Raises BuildError.

    Of several processes one builds and the others wait for it. `again` False: what failed to
    build before, from the same sources, compiler and torch, is not tried again.
    """
    wanted = recipe()
    if wanted.library.is_file():
        return wanted.library
    started = time.time() if again else 0.0
    try:
        cache().mkdir(parents=True, exist_ok=True)
        with _lock(cache() / f"giant-{wanted.key}.lock"):
            if not wanted.library.is_file():
                _fail_as_before(wanted, since=started)
                _compile_all(wanted)
    except OSError as error:
        raise BuildError(f"the giant backend cannot be built in {cache()}: {error}") from error
    return wanted.library


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("waiting for another process that builds the giant backend")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fail_as_before(wanted: Recipe, since: float) -> None:
    """What failed since then is not tried again: not by who waited for it, for one."""
    if wanted.log.is_file() and wanted.log.stat().st_mtime >= since:
        raise _failure(wanted, wanted.log.read_text("utf-8", "replace"))


def _compile_all(wanted: Recipe) -> None:
    _say("building the giant backend (once, about a minute)")
    with tempfile.TemporaryDirectory(dir=cache(), prefix="building-") as place:
        work = Path(place) / "giant"
        work.mkdir()
        objects = [work / f"{number}.o" for number in range(len(wanted.sources))]
        jobs = int(os.environ.get("MAX_JOBS", 0)) or os.cpu_count() or 1
        with ThreadPoolExecutor(jobs) as pool:
            commands = [
                _compilation(wanted, source, target)
                for source, target in zip(wanted.sources, objects, strict=True)
            ]
            # The slowest first, which include torch.
            done = list(pool.map(_call, reversed(commands)))
        module = work / f"{MODULE}.so"
        if all(good for good, _ in done):
            done.append(_call(_linking(wanted, objects, module)))
        if not all(good for good, _ in done):
            text = "\n".join(text for good, text in done if not good)
            wanted.log.write_text(text, encoding="utf-8")
            raise _failure(wanted, text)
        for file in objects:
            file.unlink()
        work.rename(wanted.library.parent)
    wanted.log.unlink(missing_ok=True)


def _compilation(wanted: Recipe, source: Path, target: Path) -> list[str]:
    command = [str(wanted.compiler), *_FLAGS, f"-I{wanted.root / 'core'}"]
    if source.parent.name == "c10d":
        include = wanted.torch / "include"
        command += [f"-DTORCH_EXTENSION_NAME={MODULE}", f"-isystem{include}"]
        command += [f"-isystem{include / 'torch/csrc/api/include'}", f"-isystem{wanted.python}"]
    return [*command, "-c", str(source), "-o", str(target)]


def _linking(wanted: Recipe, objects: list[Path], module: Path) -> list[str]:
    command = [str(wanted.compiler), *_FLAGS, "-shared", *map(str, objects), "-o", str(module)]
    return [*command, f"-L{wanted.torch / 'lib'}", *_LIBRARIES]


def _call(command: list[str]) -> tuple[bool, str]:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        check=False,
    )  # fmt: skip
    return done.returncode == 0, f"$ {shlex.join(command)}\n{done.stdout}"


def _failure(wanted: Recipe, text: str) -> BuildError:
    lines = [line for line in text.splitlines() if "error" in line] or text.splitlines()
    shown = "\n  ".join(lines[-_SHOWN_LINES:])
    return BuildError(f"the giant backend does not build; the log is {wanted.log}\n  {shown}")


def _say(text: str) -> None:
    print(f"giantdsl: {text}", file=sys.stderr, flush=True)
