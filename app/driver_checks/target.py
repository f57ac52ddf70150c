"""The gateway that is checked, as its driver's authors start it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A gateway with one server behind it: one with a URL that runs, or a command that serves one client on stdio.

    Attributes:
        url: the MCP endpoint, at http.
        stop: asks the gateway at the URL to stop, and returns once it has.
        command: starts the gateway for one client on its stdin and stdout; empty where there is a `url`.
        env, cwd: for the command; as for `subprocess`.
        runs_processes: the driver starts the server as a process. False if it asks a server at a URL.
        answers_at_stop: the calls that are open at the stop get a response. False if the web server in front closes
            connections first.
        breaches: returns what a `WatchedEngine` in the gateway has reported, once it has stopped.
    """

    url: str = ""
    stop: Callable[[], object] = lambda: None
    command: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    runs_processes: bool = True
    answers_at_stop: bool = True
    breaches: Callable[[], Sequence[str]] = tuple


Start = Callable[[Sequence[str], Mapping[str, Any]], AbstractContextManager[Target]]
"""A function of the driver's authors that starts a gateway. Arguments: the command of the server, and the fields of
`Limits` that differ from their defaults. On leaving the context, the gateway ends at once, however it is."""
