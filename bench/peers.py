"""Byte proxies and other MCP proxies to compare with, installed from their registries into `.peers`.

`python bench/peers.py calls` installs those of `make bench`, and `starts` instead those of `make bench-starts`.

Debian packages are unpacked there, not installed on the system, so no root rights are needed. A program that cannot be
installed is left out of the run, with the reason in the report.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

PEERS: Final = Path(__file__).resolve().parent.parent / ".peers"
INSTALL_TIMEOUT_S = 300.0
WORDS_SHOWN_MAX = 300

DEBIAN: Final = {
    "nginx": ["nginx"],
    "haproxy": ["haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1"],
}
"""Packages of each program. Those after the first are libraries, which a system may have already, or not need."""
NPM: Final = {
    "supergateway": ["supergateway@4.0.0"],
    "mcp-proxy-npm": ["mcp-proxy@6.7"],
    "mcp-hub": ["mcp-hub@4.2.1"],
    "servers-npm": [
        "@modelcontextprotocol/server-everything@2026.8.31",
        "@modelcontextprotocol/server-filesystem@2026.8.31",
        "@playwright/mcp@0.0.83",
    ],
}
PYPI: Final = {
    "fastmcp": ["fastmcp>=4.1.2,<4.2"],
    "mcp-proxy-pypi": ["mcp-proxy==0.13"],
    "context-forge": ["mcp-contextforge-gateway"],
    "servers-pypi": [
        "mcp-server-time==2026.10.19",
        "mcp-server-git==2026.10.19",
        "mcp-server-fetch==2026.10.24",
        "markitdown-mcp==0.0.1a7",
    ],
}
SERVERS: Final = ("servers-npm", "servers-pypi")
"""Real servers, which stand behind each proxy in `starts.py`."""
RUNS: Final = {
    "calls": tuple(name for name in DEBIAN | NPM | PYPI if name not in SERVERS),
    "starts": ("supergateway", "mcp-proxy-npm", "mcp-proxy-pypi", "fastmcp", *SERVERS),
}
"""The programs that `run.py` and `starts.py` need."""
SUBJECT_PACKAGES: Final = {
    "translate": "context-forge",
    **dict.fromkeys(
        ("fastmcp-reused", "fastmcp-5", "fastmcp-reused-5", "fastmcp-lists", "fastmcp-reused-lists"), "fastmcp"
    ),
    **dict.fromkeys(("mcp-hub-5", "mcp-hub-lists"), "mcp-hub"),
}


def is_there(subject: str) -> str | None:
    """Returns the reason why the program of a subject is missing; None if it is installed or not needed."""
    name = SUBJECT_PACKAGES.get(subject, subject)
    if name not in DEBIAN | NPM | PYPI or (PEERS / f"{name}.installed").exists():
        return None
    reason = PEERS / f"{name}.absent"
    return reason.read_text().strip() if reason.exists() else "not installed"


def install(run: str) -> None:
    """Installs the programs of a run that are missing, and notes the reason for each that cannot be installed.

    Args:
        run: a key of `RUNS`.
    """
    PEERS.mkdir(exist_ok=True)
    for name in RUNS[run]:
        if (PEERS / f"{name}.installed").exists():
            continue
        print(f"installing {name} …", file=sys.stderr, flush=True)
        (PEERS / f"{name}.absent").unlink(missing_ok=True)
        try:
            _install_one(name)
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", None) or str(error)
            reason = output.strip().replace("\n", " ")[-WORDS_SHOWN_MAX:]
            (PEERS / f"{name}.absent").write_text(reason)
            print(f"{name} is left out: {reason}", file=sys.stderr)
        else:
            (PEERS / f"{name}.installed").write_text(_version(name))


def versions() -> dict[str, str]:
    return {path.stem: path.read_text() for path in sorted(PEERS.glob("*.installed"))}


def _version(name: str) -> str:
    folder = PEERS / name
    if name in DEBIAN:
        return _run([str(folder / f"usr/sbin/{name}"), "-v"], folder).splitlines()[0].split(" - ")[0]
    packages = [name_of(package) for package in (NPM | PYPI)[name]]
    if name in NPM:
        described = [json.loads((folder / f"node_modules/{one}/package.json").read_text()) for one in packages]
        return ", ".join(f"{one['name']} {one['version']}" for one in described)
    asked = (
        f"from importlib.metadata import version; print(*(f'{{one}} {{version(one)}}' for one in {packages}), sep=', ')"
    )
    return _run([str(folder / "bin/python"), "-c", asked], folder).strip()


def name_of(package: str) -> str:
    """Returns the name in a package with a version, such as `@scope/name@1.2` or `name>=1,<2`."""
    return re.split("[=<>]|(?<!^)@", package)[0]


def _install_one(name: str) -> None:
    folder = PEERS / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if name in DEBIAN:
        needed, *libraries = DEBIAN[name]
        _run(["apt-get", "download", "-q", needed], folder)
        for library in libraries:
            subprocess.run(["apt-get", "download", "-q", library], cwd=folder, capture_output=True, check=False)
        for package in sorted(folder.glob("*.deb")):
            _run(["dpkg", "-x", str(package), str(folder)], folder)
            package.unlink()
    elif name in NPM:
        _run(["npm", "init", "-y"], folder)
        _run(["npm", "install", "--no-fund", "--no-audit", "--silent", *NPM[name]], folder)
    else:
        _run([sys.executable, "-m", "venv", str(folder)], folder)
        pip = [str(folder / "bin/pip"), "install", "-q", "--disable-pip-version-check", "--no-compile"]
        _run([*pip, *PYPI[name]], folder)


def _run(command: list[str], folder: Path) -> str:
    libraries = ":".join(map(str, folder.glob("usr/lib/*-linux-gnu*")))
    ran = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=INSTALL_TIMEOUT_S,
        env=os.environ | ({"LD_LIBRARY_PATH": libraries} if libraries else {}),
    )
    return ran.stdout or ran.stderr  # nginx prints its version to stderr


if __name__ == "__main__":
    install(sys.argv[1] if sys.argv[1:] else "calls")
