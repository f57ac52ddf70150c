"""Clients of others log in through isthmus: it asks for tokens of npm oidc-provider, and nothing behind it does."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from filing import fetch, gateway
from providers import GATEWAY, LEEWAY_S, Provider, guarded_files, provider
from rig import CLIENTS, PEERS, PYTHON_1, PYTHON_2, REAL, launched, require

pytestmark = pytest.mark.real

LIFETIME_S: Final = 4
TIMEOUT_S: Final = 90.0
BROWSER: Final = shlex.join([sys.executable, str(CLIENTS / "browser.py"), "%s"]) + " &"


def run(command: list[str | Path], url: str, *more: str | Path, pause_s: int = LIFETIME_S + 1) -> dict[str, Any]:
    """Runs a client to its end, with a pause in which its token expires. Returns what it saw."""
    arguments = [*command, url, str(pause_s), *more]
    env = {"PATH": "/usr/bin:/bin", "BROWSER": BROWSER}
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=TIMEOUT_S, env=env, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check_visit(found: dict[str, Any]) -> None:
    """The second half of the visit, with another token, was in the same session and process, and had the same files."""
    first, second = found["taken"]
    assert (first["pid"], first["cwd"]) == (second["pid"], second["cwd"])
    assert list(first["files"].values()) == list(second["files"].values()) == ["handed in"]
    assert found["read"] == ["made", "made"]


def check_renewal(issuer: Provider) -> None:
    """The person logged in once, and the client renewed its token."""
    counts = issuer.counts()
    assert (counts["logins"], counts["authorization_code"], counts["refused"]) == (1, 1, 0)
    assert counts["refresh_token"] >= 1


CANAILLE: Final = REAL / "canaille/bin/python"
VISITORS: Final = {
    "python-1": [PYTHON_1, CLIENTS / "login_python.py"],
    "python-2": [PYTHON_2, CLIENTS / "login_python.py"],
    "typescript-1": ["node", CLIENTS / "login_typescript.mjs"],
    "typescript-2": ["node", CLIENTS / "login_typescript.mjs"],
    "typescript-2-legacy": ["node", CLIENTS / "login_typescript.mjs"],
    "fastmcp": [PYTHON_2, CLIENTS / "login_fastmcp.py"],
}
MORE: Final = {
    "typescript-1": [REAL / "node/node_modules"],
    "typescript-2": [REAL / "node2/node_modules", "auto"],
    "typescript-2-legacy": [REAL / "node2/node_modules", "legacy"],
}


@pytest.mark.parametrize("client", VISITORS if os.environ.get("THOROUGH") else ["typescript-2", "fastmcp"])
def test_a_client_logs_in_and_keeps_its_session_over_new_tokens(client: str, tmp_path: Path) -> None:
    """The client finds the provider by the challenge and the metadata. Its token expires and is renewed: the session,
    its process and its files stay, since the person does."""
    command = VISITORS[client]
    require(Path(command[1]))
    with provider(tmp_path, AT_TTL=LIFETIME_S, LATE_S=LEEWAY_S) as issuer:
        with guarded_files(tmp_path, [{"url": issuer.issuer}]) as proxy:
            found = run(command, proxy.url, *MORE.get(client, []))
        check_visit(found)
        check_renewal(issuer)


@pytest.mark.parametrize("client", ["typescript-1", *(["typescript-2-legacy"] if os.environ.get("THOROUGH") else [])])
def test_an_event_stream_ends_with_its_token_and_goes_on_with_another(client: str, tmp_path: Path) -> None:
    modules, mode = [*MORE[client], ""][:2]
    upstream = {"command": [str(require(PYTHON_1)), str(PEERS / "workshop_python1.py"), "stdio"]}
    server = {"id": "workshop", "upstream": upstream, "access": {"scope": ["mcp:read"]}}
    settings = {"core": {"keep_alive_seconds": 1}, "servers": [server]}
    with provider(tmp_path, AT_TTL=LIFETIME_S, LATE_S=LEEWAY_S) as issuer:
        with gateway(tmp_path, {**settings, "auth": {"issuers": [{"url": issuer.issuer}]}}) as proxy:
            found = run(VISITORS[client], proxy.url, modules, mode, "listen")
        assert found["streams"] >= 2
        check_renewal(issuer)


def test_a_task_goes_on_while_its_caller_gets_another_token(tmp_path: Path) -> None:
    """FastMCP in 2026-07-28, without a session: the task is found by the caller alone."""
    marks = tmp_path / "marks"
    marks.touch()
    upstream = {"command": [str(require(PYTHON_2)), str(PEERS / "tasks_fastmcp.py"), str(marks), "stdio"]}
    server = {"id": "tasks", "upstream": upstream, "access": {"scope": ["mcp:read"]}}
    with provider(tmp_path, AT_TTL=LIFETIME_S, LATE_S=LEEWAY_S) as issuer:
        with gateway(tmp_path, {"auth": {"issuers": [{"url": issuer.issuer}]}, "servers": [server]}) as proxy:
            found = run(VISITORS["fastmcp"], proxy.url, "task")
        assert found == {"statuses": ["working", "working", "cancelled"], "revision": "2026-07-28"}
        # FastMCP logs in anew instead of renewing, if its token expires between its own check and the gate's.
        counts = issuer.counts()
        assert counts["refused"] == 0
        assert counts["refresh_token"] + counts["authorization_code"] >= 2


@pytest.mark.parametrize("introspection", [None, GATEWAY], ids=["keys", "introspection"])
def test_the_tokens_of_another_provider(introspection: dict[str, str] | None, tmp_path: Path) -> None:
    """Canaille knows no resources: its tokens are for the gateway as one of its clients. They are signed with RS512,
    and it answers questions about them."""
    command = [require(CANAILLE), PEERS / "canaille_provider.py"]
    with launched(command, folder=tmp_path, env={"AUTHLIB_INSECURE_TRANSPORT": "1"}, code=None) as process:
        url = process.wait_line(r"listening on (\S+)")[1]
        issuer = {"url": url, "audience": ["gateway"], "introspect": introspection}
        with guarded_files(tmp_path, [issuer], scope=()) as proxy:
            check_visit(run(VISITORS["python-2"], proxy.url, "person", pause_s=0))
            assert fetch(proxy.url).status == 401
