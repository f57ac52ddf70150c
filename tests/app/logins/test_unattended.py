"""The login with a token of the platform: with files on disk, and providers that are scripted over HTTP."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from isthmus.app.config.login_settings import ClientCredentials, Enterprise, Exchange, IdentityProvider
from isthmus.app.config.settings import Upstream
from isthmus.app.logins.tokens import ClientTokens
from isthmus.app.logins.unattended import SUBJECT_MAX_BYTES, signer_of, subject_of
from isthmus.core.logins.credentials import RETRY_AFTER_S
from isthmus.core.logins.requests import LoginFailed
from token_provider import Provider

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]


class Clock:
    """Unix seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def exchanging(path: Path, **changes: Any) -> Exchange:
    return Exchange(**{"client_id": "c", "client_secret": "s", "subject_token_file": str(path), **changes})


def tokens_of(provider: Provider, auth: Exchange | Enterprise, clock: Clock) -> ClientTokens:
    return ClientTokens("files", Upstream(url=f"{provider.url}/mcp", auth=auth), clock=clock)


async def test_requests_share_an_exchange_and_the_file_is_read_for_each(provider: Provider, tmp_path: Path) -> None:
    path, clock, found = tmp_path / "token", Clock(), []
    path.write_text("first\n")
    tokens = tokens_of(provider, exchanging(path, subject_token_type="jwt"), clock)

    async def ask() -> None:
        found.append(await tokens.header())

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
        path.write_text("second\n")
        clock.now += 3600
        found.append(await tokens.header())
    assert found == [b"Bearer access-1"] * 5 + [b"Bearer access-2"]
    assert [form["subject_token"] for form in provider.forms] == ["first", "second"]
    assert provider.forms[0] == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": "first",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "resource": f"{provider.url}/mcp",
        "scope": "read",
    }


async def test_a_token_that_was_not_taken_is_read_again_later(provider: Provider, tmp_path: Path) -> None:
    path, clock = tmp_path / "token", Clock()
    path.write_text("first")
    tokens = tokens_of(provider, exchanging(path), clock)
    with anyio.fail_after(60):
        assert await tokens.header() == b"Bearer access-1"
        provider.answer = lambda _: (400, {"error": "invalid_request"})
        clock.now += 3600
        assert await tokens.header() is None
        wanted = tokens.login_wanted()
        assert wanted is not None
        assert wanted.message.endswith(
            f"gave no token (invalid_request): it does not take the token in {path}, expected a valid one"
        )
        provider.answer = provider.granted
        clock.now += RETRY_AFTER_S
        assert await tokens.header() == b"Bearer access-3"


async def test_the_provider_of_an_enterprise_is_found_by_its_issuer(provider: Provider) -> None:
    enterprise = Provider()
    try:
        jag = "urn:ietf:params:oauth:token-type:id-jag"
        enterprise.answer = lambda _: (200, {"access_token": "jag", "issued_token_type": jag, "token_type": "N_A"})
        auth = Enterprise(
            client_id="c",
            client_secret="s",
            subject_token="of-alice",
            provider=IdentityProvider(issuer=enterprise.url, client_id="at-idp"),
        )
        with anyio.fail_after(60):
            assert await tokens_of(provider, auth, Clock()).header() == b"Bearer access-1"
        (asked,), (granted,) = enterprise.forms, provider.forms
        assert (asked["subject_token"], asked["audience"]) == ("of-alice", provider.url)
        assert asked["subject_token_type"] == "urn:ietf:params:oauth:token-type:id_token"
        assert granted["assertion"] == "jag"
    finally:
        enterprise.close()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot read subject_token_file"),
        ("", "is empty, expected one token"),
        ("\n", "is empty, expected one token"),
        ("two words", "is several words, expected one token"),
        ("x" * (SUBJECT_MAX_BYTES + 1), "is larger than a token"),
    ],
)
async def test_a_file_without_a_token_is_named(content: str | None, text: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(LoginFailed, match=text) as failed:
        await subject_of(exchanging(path))
    assert str(path) in str(failed.value)
    assert failed.value.is_unanswered


async def test_a_pipe_in_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "token"
    os.mkfifo(path)
    with pytest.raises(LoginFailed, match="is empty"), anyio.fail_after(60):
        await subject_of(exchanging(path))


async def test_a_key_without_the_package_that_signs_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(LoginFailed, match=r"isthmus\[auth\]"):
        await signer_of(ClientCredentials(client_id="a", private_key="key.pem"))
