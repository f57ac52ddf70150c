"""Tokens of npm oidc-provider while it rotates its keys, beside those of another one, and such as are no JWTs."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from filing import artifacts_of, complaint, fetch, session, texts
from providers import GATEWAY, Provider, guarded_files, provider
from rig import until

pytestmark = pytest.mark.real

CALLERS: Final = 3
CALLS: Final = 2
"""Calls that a caller makes with each token."""
ROTATIONS: Final = 2


def shown(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_rotation_of_keys_costs_no_call(tmp_path: Path) -> None:
    """Callers go on calling in their sessions, with one new token after the other, while the provider takes new keys.
    A token is signed with a key that the provider publishes as long as the token is used: it is never refused."""
    with provider(tmp_path) as issuer, guarded_files(tmp_path, [{"url": issuer.issuer}]) as proxy:
        tokens = [0] * CALLERS
        is_over = threading.Event()

        def call(number: int) -> None:
            with session(proxy.url, shown(issuer.token(proxy.url))) as client:
                while not is_over.is_set():
                    client.headers = shown(issuer.token(proxy.url))
                    for _ in range(CALLS):
                        client.call("plain")
                    tokens[number] += 1

        with ThreadPoolExecutor(CALLERS) as pool:
            calling = [pool.submit(call, number) for number in range(CALLERS)]

            def has_used_new_tokens() -> bool:
                return all(now > then + 1 for now, then in zip(tokens, before, strict=True))

            try:
                for number in range(ROTATIONS + 1):
                    before = list(tokens)
                    until(lambda: has_used_new_tokens() or any(each.done() for each in calling), "new tokens")
                    if number < ROTATIONS:
                        issuer.rotate()
            finally:
                is_over.set()
            for each in calling:
                each.result()


@pytest.mark.parametrize("is_opaque", [False, True], ids=["jwt", "opaque"])
def test_one_subject_of_two_issuers_is_two_callers(is_opaque: bool, tmp_path: Path) -> None:
    with provider(tmp_path) as one, provider(tmp_path, **({"OPAQUE": 1} if is_opaque else {})) as two:
        issuers: list[dict[str, Any]] = [{"url": each.issuer, "principal": "client_id"} for each in (one, two)]
        if is_opaque:
            issuers[1]["introspect"] = GATEWAY
        with guarded_files(tmp_path, issuers) as proxy:
            check_are_apart(proxy.url, one, two)
            metadata = fetch(f"{proxy.base_url}/.well-known/oauth-protected-resource/mcp").json
            assert metadata["authorization_servers"] == [one.issuer, two.issuer]


def check_are_apart(url: str, one: Provider, two: Provider) -> None:
    with session(url, shown(one.token(url))) as alice, session(url, shown(two.token(url))) as other:
        (handle,) = alice.upload(("one.txt", b"handed in"))
        (artifact,) = artifacts_of(alice.call("by_argument", {"output": "made.txt", "text": "made"}))
        uri = {"uri": artifact["artifact_uri"]}
        taken = json.loads(texts(alice.call("take_one", {"file": handle}))[0])
        assert list(taken["files"].values()) == ["handed in"]
        assert alice.request("resources/read", uri)["contents"][0]["text"] == "made"
        assert complaint(other.call("take_one", {"file": handle}))
        assert "error" in other.exchange("resources/read", uri)
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {
            **shown(two.token(url)),
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        for client, status in ((alice, 404), (other, 200)):
            headers["Mcp-Session-Id"] = client.session_id
            assert fetch(url, method="POST", headers=headers, body=json.dumps(message).encode()).status == status
