"""Tests of one server at several URLs, each a server-everything: sessions are spread over them, and go on at one when
the other is gone."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from rig import PATIENCE_S, Proxy, everything_over_http, isthmus, serve
from test_life import Session, call, check_works, echo_of, fetch

pytestmark = pytest.mark.real


def urls_of(proxy: Proxy) -> list[tuple[str, int]]:
    """Returns state and sessions of each URL, as the page of the server says."""
    reply = fetch(f"{proxy.base_url}/servers/files", "GET", None, {"Accept": "application/json", **proxy.operator})
    found: dict[str, Any] = reply.json()
    return [(url["state"], url["sessions"]) for url in found["urls"]]


def check(config: Path, folder: Path) -> tuple[int, str]:
    """Returns the status and the output of `isthmus check`."""
    process = isthmus(["check", config], folder=folder)
    try:
        return process.wait_exit(), "\n".join(process.lines)
    finally:
        process.clean_up()


def test_sessions_go_on_at_one_url_when_the_other_is_gone(tmp_path: Path) -> None:
    """New ones go to the URL that is left, also those of the stopped server's clients."""
    everything = everything_over_http
    with everything(folder=tmp_path) as (one, url_one), everything(folder=tmp_path) as (_, url_two):
        names = [url.removesuffix("/mcp") for url in (url_one, url_two)]
        config = tmp_path / "isthmus.json"
        servers = [{"id": "files", "upstream": {"urls": [url_one, url_two], "era": "handshake"}}]
        config.write_text(json.dumps({"core": {"port": 0}, "servers": servers}))
        with serve(config, folder=tmp_path) as proxy:
            status, text = check(config, tmp_path)
            assert status == 0, text
            assert [text.count(f"url     {name}\n") for name in names] == [1, 1], text
            sessions = [Session(proxy.url) for _ in range(4)]
            assert urls_of(proxy) == [("well", 2), ("well", 2)]
            first = {session.id: echo_of(session.answer(call(1, "echo", message="here"))) for session in sessions}
            assert set(first.values()) == {"Echo: here"}
            one.stop(code=None)
            lost = [session for session in sessions if "error" in session.answer(call(2, "echo", message="still"))]
            assert len(lost) == 2, "those at the other URL go on"
            for session in set(sessions) - set(lost):
                check_works(session)
            more = [Session(proxy.url) for _ in range(3)]
            for session in more:
                check_works(session)
            assert urls_of(proxy) == [("ill", 2), ("well", 5)]
            assert [session.delete() for session in more] == [204] * 3
            assert urls_of(proxy) == [("ill", 2), ("well", 2)]
            with urllib.request.urlopen(f"{proxy.base_url}/metrics", timeout=PATIENCE_S) as metrics:
                lines = metrics.read().decode().splitlines()
            for name, is_up in zip(names, (0, 1), strict=True):
                assert f'isthmus_server_url_up{{server="files",url="{name}"}} {is_up}.0' in lines
            status, text = check(config, tmp_path)
            assert status == 1, text
            assert f"url     {names[0]}: FAILED, " in text
            assert f"url     {names[1]}\n" in text
