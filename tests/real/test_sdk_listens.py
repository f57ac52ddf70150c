"""Tests of subscriptions of the official Python SDK 2.x, client and server, through Isthmus: a client learns of the end
of its subscription, of a refusal and of the acknowledged filter as it does without a proxy."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from rig import PEERS, PYTHON_2, run_client, serve, start_server, stdio_wrap, wrap

pytestmark = pytest.mark.real

SERVER: Final = (PYTHON_2, PEERS / "listened_python2.py")
CHANGED: Final = ["done", "ToolsListChanged"]
SEEN: Final = {
    "honored": {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]},
    "kept": [False, False, False],
    "change": CHANGED,
    "second": [-32603, "Subscription limit reached"],
    "end": ["done", "ended"],
    "again": CHANGED,
}


@contextlib.contextmanager
def reached(way: str, folder: Path) -> Iterator[str | Sequence[str]]:
    """Starts what has to run. Yields the URL or the command that a client needs."""
    command = [str(part) for part in (*SERVER, "stdio")]
    with contextlib.ExitStack() as stack:
        if way.endswith("stdio"):
            yield command if way == "direct stdio" else stdio_wrap(*command)
        elif way == "http to a process":
            yield stack.enter_context(wrap(*command, folder=folder)).url
        else:
            process, url = start_server([*SERVER, "http"], "mcp", folder=folder)
            stack.callback(process.clean_up)
            if way == "direct http":
                yield url
                return
            server = {"id": "listened", "upstream": {"url": url}, "cache": way == "http, kept"}
            (folder / "one.json").write_text(json.dumps({"core": {"port": 0}, "servers": [server]}))
            yield stack.enter_context(serve(folder / "one.json", folder=folder)).url_of("listened")


DIRECT: Final = ("direct stdio", "direct http") if os.environ.get("THOROUGH") else ()
"""The ways without the proxy, which show what the client and the server do by themselves. Only with THOROUGH set."""


@pytest.mark.parametrize("way", [*DIRECT, "stdio", "http, kept", "http to a process"])
def test_a_client_sees_the_servers_own_subscription(way: str, tmp_path: Path) -> None:
    """A process that dies is started again by Isthmus. The client listens anew. A list of tools is given again where
    the proxy may keep it, unless it has changed."""
    dies = way in ("stdio", "http to a process")
    seen: dict[str, Any] = SEEN | ({"die": ["failed", "lost"], "anew": CHANGED} if dies else {})
    if way == "http, kept":
        seen["kept"] = [True, False, True]
    with reached(way, tmp_path) as target:
        assert run_client("listen-python-2", target, [{"dies": dies}], folder=tmp_path) == [seen]
