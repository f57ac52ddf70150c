"""Tests of the command line where it says who may call."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from command import PATIENCE_S, Run, run
from isthmus.app.config.load import loads
from isthmus.core.access.static_tokens import digest_of
from screens import unwrapped

TOOLBOX = [sys.executable, str(Path(__file__).parents[1] / "peers" / "toolbox.py")]


def status_of(url: str, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE_S) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_token_is_made_with_the_lines_that_let_it_in() -> None:
    code, token, said = run("token", "new", "ci", "--group", "robots", "--scope", "read", "--expires", "2027-01-31")
    assert code == 0
    said, _, lines = said.partition("auth:\n")
    assert "it is shown only now" in said
    assert token not in lines
    settings = loads(f"servers: [{{id: a, upstream: {{command: [x]}}}}]\nauth:\n{lines}", "yaml", "/", {})
    [entry] = settings.auth.tokens
    assert (entry.name, entry.groups, entry.scopes, entry.expires) == ("ci", ("robots",), ("read",), "2027-01-31")
    assert bytes.fromhex(entry.sha256) == digest_of(token)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("token", "new"), "NAME"),
        (("token", "new", "a\nb"), "expected printable characters"),
        (("token", "new", "ci", "--expires", "soon"), "got --expires 'soon', expected a day such as 2027-01-31"),
    ],
)
def test_a_wrong_word_is_named(arguments: tuple[str, ...], said: str) -> None:
    code, _, error = run(*arguments)
    assert (code, said in error) == (2, True)


def test_serve_and_check_say_what_is_missing_before_other_machines_may_call(tmp_path: Path) -> None:
    path = tmp_path / "isthmus.json"
    servers = [{"id": "a", "upstream": {"command": TOOLBOX}}]
    path.write_text(json.dumps({"core": {"port": 0, "host": "0.0.0.0"}, "servers": servers}))
    said = "core.host 0.0.0.0 is open to other machines, and nothing says who may call: set auth.tokens"
    code, _, error = run("serve", str(path))
    assert (code, said in error) == (1, True)
    code, shown, _ = run("check", str(path))
    assert (code, f"WARNING {said}" in unwrapped(shown)) == (1, True)


def test_check_warns_of_anonymous_clients_that_share_the_address_of_a_proxy(tmp_path: Path) -> None:
    path = tmp_path / "isthmus.json"
    settings = {"auth": {"anonymous": "allow"}, "servers": [{"id": "a", "upstream": {"command": TOOLBOX}}]}
    for trusted in ([], ["127.0.0.1"]):
        core = {"port": 0, "public_base_url": "https://mcp.example.com", "trusted_proxies": trusted}
        path.write_text(json.dumps({"core": core, **settings}))
        code, shown, _ = run("check", str(path))
        assert (code, "name its address in core.trusted_proxies" in unwrapped(shown)) == (0, not trusted)


def test_wrap_makes_a_token_where_other_machines_may_call() -> None:
    with Run("wrap", "--listen", "0.0.0.0:0", "--", *TOOLBOX) as wrapped:
        token = wrapped.wait_line(r"each caller has to show this token: Authorization: Bearer (ist_\w+)$")[1]
        base_url = wrapped.wait_line(r"listens on (http://127\.0\.0\.1:\d+)$")[1]
        assert [status_of(f"{base_url}/servers", text) for text in ("", token[:-1], token)] == [401, 401, 200]
        assert "nobody is asked" not in wrapped.stdout


def test_wrap_asks_for_the_token_of_the_environment_there() -> None:
    with Run("wrap", "--listen", "0.0.0.0:0", "--", *TOOLBOX, env={"ISTHMUS_TOKEN": "known-here"}) as wrapped:
        base_url = wrapped.wait_line(r"listens on (http://127\.0\.0\.1:\d+)$")[1]
        assert [status_of(f"{base_url}/mcp/toolbox.py/tools", text) for text in ("", "known-here")] == [401, 200]
        wrapped.wait_line("each caller has to show its token: Authorization: Bearer TOKEN")
        assert "known-here" not in wrapped.stdout


def test_wrap_lets_everybody_in_where_that_is_said() -> None:
    with Run("wrap", "--allow-anonymous", "--listen", "0.0.0.0:0", "--", *TOOLBOX) as wrapped:
        base_url = wrapped.wait_line(r"listens on (http://127\.0\.0\.1:\d+)$")[1]
        wrapped.wait_line("^WARNING open to other machines, as 0.0.0.0, and nobody is asked who they are$")
        assert status_of(f"{base_url}/mcp/toolbox.py/tools") == 200


def test_wrap_does_not_pass_its_own_token_on() -> None:
    code, _, error = run("wrap", "--listen", "0.0.0.0:0", "--pass-header", "Authorization", "http://127.0.0.1:1/mcp")
    assert code == 2
    assert "got --pass-header Authorization with 0.0.0.0" in error
    assert "--allow-anonymous" in error
