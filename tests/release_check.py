"""Builds the wheel and the sdist, looks into them, and tries them as a user would: installed by pip, uv and pipx in an
environment with nothing in it, for each Python.

`make release-check` runs it: PYTHONS='python3.12 /opt/python3.13' for some, else for each from 3.11 to 3.14 that is on
PATH. It needs the standard library alone: `python release_check.py --files DIR` tries built files anywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
MINORS: Final = range(11, 15)
TIMEOUT_S: Final = 300

IN_WHEEL: Final = (
    *("isthmus/core/py.typed", "isthmus/transports/py.typed", "isthmus/storage/py.typed", "isthmus/app/py.typed"),
    *("isthmus/core/LICENSE", "isthmus/app/conform/schemas/LICENSE", "isthmus-*.dist-info/licenses/LICENSE"),
    *("isthmus/app/conform/schemas/2024-11-05.json", "isthmus/app/conform/schemas/2026-07-28.json"),
    *(f"isthmus/app/watch/static/{name}" for name in ("index.html", "app.css", "app.js", "preact.js", "icon.svg")),
    *("isthmus/app/watch/static/LICENSE.htm", "isthmus/app/watch/static/LICENSE.preact"),
    *("isthmus/changes/0001-*.md", "isthmus/core/engine.py", "isthmus/app/main.py"),
    *(f"isthmus/app/cli/completions/isthmus.{shell}" for shell in ("bash", "zsh", "fish")),
    "isthmus-*.data/data/share/man/man1/isthmus.1",
)
IN_SDIST: Final = (
    "pyproject.toml",
    "setup.py",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "core/engine.py",
    "docs/isthmus.1",
)
IN_NEITHER: Final = (
    *("*/tests/*", "*/bench/*", "*/fuzz/*", "*/examples/*", "*/build/*", "*/.*", "*__pycache__*", "*.pyc", "*.jsonl"),
    *("isthmus/docs/*", "isthmus/setup.py"),
)


# --- Building -------------------------------------------------------------------------------------------------------


def build(source: Path, to: Path, *, is_isolated: bool = True) -> tuple[Path, Path]:
    """Builds the sdist of a folder, and of that the wheel. Returns the wheel and the sdist."""
    options = [] if is_isolated else ["--no-isolation"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # no wheel has compiled files, so none are made
    _run([sys.executable, "-m", "build", *options, "--outdir", to, source], env=environment)
    (wheel,), (sdist,) = to.glob("*.whl"), to.glob("*.tar.gz")
    return wheel, sdist


def problems(wheel: Path, sdist: Path) -> Iterator[str]:
    """Yields what is missing in the files, and what should not be in them."""
    in_wheel = list(_texts(wheel))
    with tarfile.open(sdist) as archive:
        in_sdist = [member.name.partition("/")[2] for member in archive.getmembers()]
    for kind, names, wanted in (("wheel", in_wheel, IN_WHEEL), ("sdist", in_sdist, IN_SDIST)):
        yield from (f"the {kind} lacks {pattern}" for pattern in wanted if not fnmatch.filter(names, pattern))
        for name in names:
            if any(fnmatch.fnmatch(f"/{name}", pattern) or fnmatch.fnmatch(name, pattern) for pattern in IN_NEITHER):
                yield f"the {kind} has {name}"


def differences(one: Path, other: Path) -> list[str]:
    """Returns the names of files that differ between two wheels."""
    texts, others = _texts(one), _texts(other)
    return sorted(name for name in texts.keys() | others.keys() if texts.get(name) != others.get(name))


def _texts(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _copy_tree(to: Path) -> None:
    """Copies what git has, or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).exists():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def _built(to: Path) -> Path:
    source = to / "source"
    _copy_tree(source)
    wheel, sdist = build(source, to / "files")
    if found := list(problems(wheel, sdist)):
        sys.exit("\n".join(found))
    _run([sys.executable, "-m", "build", "--wheel", "--outdir", to / "direct", source], env=os.environ)
    if found := differences(wheel, next((to / "direct").glob("*.whl"))):
        sys.exit(f"the wheel of the tree is not that of the sdist: {', '.join(found)}")
    kept = ROOT / "build" / "release"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(to / "files", kept)
    print(f"built {', '.join(sorted(path.name for path in kept.iterdir()))} in {kept.relative_to(ROOT)}/")
    return kept


# --- Installing -----------------------------------------------------------------------------------------------------


def _by_pip(file: Path, python: str, home: Path) -> Path:
    _run([python, "-m", "venv", home / "venv"], env=_environment(home))
    _run([home / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", file], env=_environment(home))
    return home / "venv" / "bin" / "isthmus"


def _by_uv(file: Path, python: str, home: Path) -> Path:
    _run([_program("uv"), "tool", "install", "--quiet", "--python", python, file], env=_environment(home))
    return home / ".local" / "bin" / "isthmus"


def _by_pipx(file: Path, python: str, home: Path) -> Path:
    _run([_program("pipx"), "install", "--python", python, file], env=_environment(home))
    return home / ".local" / "bin" / "isthmus"


WAYS: Final[dict[str, Callable[[Path, str, Path], Path]]] = {"pip": _by_pip, "uv": _by_uv, "pipx": _by_pipx}


def _program(name: str) -> str:
    """Returns the path of a program itself: what stands on PATH may be a script that asks for HOME."""
    pyenv = shutil.which("pyenv")
    found = subprocess.run([pyenv, "which", name], capture_output=True, text=True, check=False) if pyenv else None
    if found is not None and found.returncode == 0:
        return found.stdout.strip()
    return shutil.which(name) or name


def _environment(home: Path) -> dict[str, str]:
    """Returns an environment with nothing of this user but what says where packages come from."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_INDEX", "SSL_CERT"))}
    return {**kept, "HOME": str(home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


# --- Trying ---------------------------------------------------------------------------------------------------------


def try_out(isthmus: Path, version: str, home: Path) -> None:
    """Runs an installed isthmus as its user would. Raises if something is not as it should be."""
    python = str(isthmus.resolve().parent / "python")
    environment = _environment(home)

    def run(*arguments: str | Path, code: int = 0) -> str:
        return _run([isthmus, *arguments], env=environment, cwd=home, code=code)

    shown = run("--version").splitlines()
    expect(shown[0] == f"isthmus {version}" and shown[1].startswith("Python 3."), f"--version said {shown}")
    expect(shown[2] == "extras installed: none", f"more than the wheel needs is there: {shown}")
    expect("COMMAND" in run("--help"), "--help shows no commands")
    expect("done: the client uploaded a file" in run("demo"), "the demo did not end well")
    server = [python, "-m", "isthmus.app.commands.demo_server"]
    (home / "isthmus.json").write_text(json.dumps({"servers": [{"id": "demo", "upstream": {"command": server}}]}))
    expect("all checks passed" in run("check"), "check does not reach the server of the demo")
    _try_wrap(isthmus, server, environment, home)
    expect("complete -c isthmus" in run("completion", "fish"), "there is no completion")
    expect('"servers"' in run("schema"), "there is no schema of the configuration")
    run("vendor", home / "mcp_core")
    alone = "import sys, isthmus.core as it; it.Engine; print({'anyio', 'h11', 'yaml'} & {*sys.modules})"
    expect(_run([python, "-I", "-c", alone], env=environment, cwd=home) == "set()\n", "core is not imported alone")
    lacking = run("conform", "--", *server, code=1) + run("replay", os.devnull, "http://127.0.0.1", code=1)
    expect(lacking.count("pip install 'isthmus[conform]'") == 2, f"what the extra brings is missed: {lacking}")


def _try_wrap(isthmus: Path, server: list[str], environment: dict[str, str], home: Path) -> None:
    command = [isthmus, "wrap", "--listen", "127.0.0.1:0", "--", *server]
    with subprocess.Popen(command, env=environment, cwd=home, stdout=subprocess.PIPE, text=True) as wrapped:
        try:
            assert wrapped.stdout is not None
            url = next(match[1] for line in wrapped.stdout if (match := re.search(r"at +(http://\S+/mcp)", line)))
            call = {
                "jsonrpc": "2.0", "id": 1, "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "check", "version": "1"}
                },
            }  # fmt: skip
            headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
            request = urllib.request.Request(url, json.dumps(call).encode(), headers)
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                expect(b"demo-server" in response.read(), "the wrapped server did not say who it is")
        finally:
            wrapped.send_signal(signal.SIGTERM)
    expect(wrapped.returncode == 0, f"wrap ended with {wrapped.returncode}")


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(otherwise)


def _run(command: Iterable[str | Path], *, env: Mapping[str, str], cwd: Path | None = None, code: int = 0) -> str:
    """Runs a command that ends with this exit code. Returns its stdout, and its stderr if the code is not 0."""
    words = [str(word) for word in command]
    done = subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    said = f"{done.stdout}{done.stderr}"
    expect(done.returncode == code, f"{' '.join(words)}: exit code {done.returncode}\n{said}")
    return said if code else done.stdout


# --- The command ----------------------------------------------------------------------------------------------------


def _pythons() -> Iterator[str]:
    for name in (f"python3.{minor}" for minor in MINORS):
        with contextlib.suppress(SystemExit, FileNotFoundError):
            yield _executable(name)


def _executable(python: str) -> str:
    return _run([python, "-c", "import sys; print(sys.executable)"], env=os.environ).strip()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=Path, metavar="DIR", help="the built files, instead of building them")
    options.add_argument("pythons", nargs="*", metavar="PYTHON")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        files = given.files.resolve() if given.files else _built(Path(folder))
        (wheel,), (sdist,) = files.glob("*.whl"), files.glob("*.tar.gz")
        version = wheel.name.split("-")[1]
        ways = [way for way in WAYS if way == "pip" or shutil.which(way)]
        for python in map(_executable, given.pythons) if given.pythons else _pythons():
            number = _run([python, "-c", "import platform; print(platform.python_version())"], env=os.environ).strip()
            for way, file in (*((way, wheel) for way in ways), ("pip", sdist)):
                home = Path(tempfile.mkdtemp(dir=folder))
                try_out(WAYS[way](file, python, home), version, home)
                print(f"Python {number}, {way} install {file.name}: works", flush=True)


if __name__ == "__main__":
    main()
