"""`isthmus --version`: the version, that of Python, and the extras that are installed and that are not."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

from ..base import output
from ..base.version import VERSION

EXTRAS: Final[dict[str, tuple[str, ...]]] = {
    "auth": ("jwt", "cryptography"),
    "codings": ("brotli", "compression.zstd|backports.zstd"),
    "conform": ("hypothesis", "jsonschema"),
    "fast": ("uvloop",),
    "http2": ("h2",),
    "otel": ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"),
    "postgres": ("psycopg",),
    "redis": ("redis",),
    "regex": ("re2",),
    "s3": ("obstore",),
    "trio": ("trio",),
}
"""Extra → the modules that it brings; `|` stands between those of which one is enough."""


def describe() -> str:
    """Returns the lines of `isthmus --version`. No extra is imported for it, so a broken one counts as installed."""
    installed = [extra for extra, modules in EXTRAS.items() if all(map(_has_any, modules))]
    missing = [extra for extra in EXTRAS if extra not in installed]
    return "\n".join(
        (
            f"isthmus {VERSION}",
            f"Python {sys.version.split()[0]}",
            f"extras installed: {', '.join(installed) or 'none'}",
            f"extras not installed: {', '.join(missing) or 'none'}",
        )
    )


def _has_any(modules: str) -> bool:
    return any(map(_has, modules.split("|")))


def _has(module: str) -> bool:
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # the package that it is in is not there
        return False
    return found is not None and found.origin is not None  # a folder of that name has no origin


class ShowVersion(argparse.Action):
    """The option `--version` of the parser: prints the lines and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        _show()
        parser.exit()


def main() -> None:
    """Prints the lines, for arguments that ask for nothing else."""
    output.set_up()
    try:
        _show()
    finally:
        output.finish()


def _show() -> None:
    with contextlib.suppress(OSError):  # as with `--help`: nobody can read it
        print(describe(), flush=True)
