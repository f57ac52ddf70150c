"""Explanations of why a child process did not start, or how it ended: one line for people, with a hint where
possible."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Final

from ...core.base.events import HINT

LAST_LINES: Final = 5
LAST_LINE_MAX_CHARS: Final = 512
LAST_WORDS: Final = "last stderr: "


# Patterns in the stderr of children that exit at start, most specific first, and the hint for each.
HINTS: Final = (
    (r"npm (ERR!|error) (code )?E?404", "npm knows no such package: check its name and version"),
    (r"Not found in the package registry|No solution found", "no such Python package: check its name and version"),
    (
        r"\bENOTFOUND\b|EAI_AGAIN|name resolution|dns error",
        "a download failed: check network and proxy settings",
    ),
    (
        r"\bEADDRINUSE\b|address already in use",
        "its port is taken already: stop what listens there, or choose another port",
    ),
    (r"ModuleNotFoundError|No module named", "a Python module is missing: install it where this command runs"),
    (r"ERR_MODULE_NOT_FOUND|Cannot find module", "a Node.js module is missing: run its installation first"),
    (r"Unsupported engine|EBADENGINE", "it wants another version of Node.js"),
    (r"\bEACCES\b|\bEPERM\b|Permission denied", "it may not use a file or port: check owner and permissions"),
    (r"command not found", "it calls a command that is not on PATH: install it"),
    (
        r"\bENOENT\b|No such file or directory",
        "a file or folder it needs is missing: check the paths given to it",
    ),
    (r"unrecognized arguments?|unknown (option|argument|flag)", "it does not know one of its arguments"),
)

INSTALLERS: Final[Mapping[str, str]] = {
    "npx": "install Node.js",
    "npm": "install Node.js",
    "node": "install Node.js",
    "uvx": "install uv",
    "uv": "install uv",
    "docker": "install Docker",
}

_WINDOWS_PATH: Final = re.compile(r"[A-Za-z]:[\\/\s]|\\\\")
_ESCAPE_SEQUENCE: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def is_exhausted(error: BaseException | None) -> bool:
    """True if a start failed because this machine had no descriptor, memory or process left for it."""
    kinds = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN)
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in kinds)


def explain_start(program: str, cwd: str | None, path: str | None, error: Exception) -> str:
    """Explains why a child did not start, and what would help.

    Args:
        program: the first word of its command.
        path: the PATH it was looked up on.
    """
    if cwd is not None and not os.path.isdir(cwd):
        return f"working directory {cwd!r} is not a folder; create it, or name another one"
    if isinstance(error, FileNotFoundError):
        if _WINDOWS_PATH.match(program):
            # Not as `repr` has it, which doubles each backslash.
            return f"command '{_tidy(program)}' is a path of Windows; give the path of the program on this machine"
        words = program.split()
        if len(words) > 1:
            apart = json.dumps(words, ensure_ascii=False)
            return f"command {program!r} does not exist: it is read as one word; write its words apart, {apart}"
        if "/" in program:
            return f"command {program!r} does not exist, or what its #! line names; correct the path"
        if shutil.which(program, path=path) is not None:
            return f"command {program!r} is on PATH, but what its #! line names is not; reinstall it"
        fix = INSTALLERS.get(program, "install it")
        return f"command {program!r} not found on PATH; {fix} or give the full path"
    if isinstance(error, PermissionError):
        return f"command {program!r} is not executable; chmod +x it or name the interpreter that runs it"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return f"command {program!r} cannot be started: {error.strerror}; raise the limit of open files (ulimit -n)"
    if is_exhausted(error):
        return f"command {program!r} cannot be started: this machine has no memory or no room for another process"
    return f"command {program!r} cannot be started: {error}"


def describe_end(code: int | None, stderr: Sequence[str], *, has_spoken: bool, hint: str | None = None) -> str:
    """Describes how a child ended, with its last lines of stderr and a hint.

    Args:
        code: its exit code as `subprocess` has it; None: it went on running.
        stderr: its last lines.
        has_spoken: it wrote at least one message to its stdout.
        hint: what would help, if it is known; None: what `HINTS` say.
    """
    if code is None:
        how = "closed its stdin or stdout but went on running, so it was stopped"
    elif code >= 0:
        how = f"exited with code {code}"
    else:
        how = f"was killed by signal {-code}"
    parts = [how]
    if stderr:
        parts.append(last_words(stderr))
    if hint is None and not has_spoken:
        text = "\n".join(stderr)
        hint = next((found for pattern, found in HINTS if re.search(pattern, text, re.IGNORECASE)), None)
    return "; ".join(parts) + (HINT + hint if hint else "")


def last_words(stderr: Sequence[str]) -> str:
    """Joins the last `LAST_LINES` lines of stderr into one."""
    return LAST_WORDS + " | ".join(_tidy(line) for line in stderr[-LAST_LINES:])


def _tidy(line: str) -> str:
    """Strips escape sequences and unprintable characters from a line of stderr, and cuts it."""
    text = _ESCAPE_SEQUENCE.sub("", line)
    return "".join(c if c.isprintable() else " " for c in text).strip()[:LAST_LINE_MAX_CHARS]
