"""The tokens of one server: with a store on disk, and a provider that is scripted over HTTP."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from isthmus.app.config.login_settings import ClientCredentials, OAuth
from isthmus.app.config.settings import Upstream
from isthmus.app.logins.records import key_of
from isthmus.app.logins.store import CredentialStore
from isthmus.app.logins.tokens import ClientTokens, PersonTokens, ask_for_command
from isthmus.core.logins.credentials import Record, decode_record, encode_record
from isthmus.core.logins.requests import Registration
from token_provider import PATIENCE_S, Provider

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

KEY = {"ISTHMUS_STORE_KEY": "00" * 32}


@pytest.fixture(autouse=True)
async def patience(anyio_backend: str) -> AsyncIterator[None]:
    with anyio.fail_after(PATIENCE_S):
        yield


@pytest.fixture
def store(tmp_path: Path) -> CredentialStore:
    return CredentialStore(str(tmp_path / "credentials"), KEY)


def record_of(provider: Provider, **changes: Any) -> Record:
    now = time.time()
    found = Record(
        Registration(provider.url, "client"),
        f"{provider.url}/mcp",
        f"{provider.url}/token",
        f"{provider.url}/mcp",
        ("read",),
        ("read",),
        "access-0",
        "refresh-0",
        now,
        now + 3600,
    )
    return msgspec.structs.replace(found, **changes)


def stale(provider: Provider, **changes: Any) -> Record:
    """A record whose token has expired."""
    now = time.time()
    return record_of(provider, issued_at=now - 3600, expires_at=now - 1, **changes)


async def keep(store: CredentialStore, record: Record) -> None:
    async with store.lock(key_of(record, "")) as held:
        await held.write(encode_record(record))


async def kept(store: CredentialStore, provider: Provider) -> Record | None:
    data = await store.read(key_of(record_of(provider), ""))
    return None if data is None else decode_record(data)


def tokens_of(provider: Provider, store: CredentialStore) -> PersonTokens:
    upstream = Upstream(url=f"{provider.url}/mcp", auth=OAuth())
    return PersonTokens("notion", upstream, store, ask_for_command("notion", ("isthmus", "login", "notion")))


def wanted(tokens: PersonTokens | ClientTokens) -> tuple[str, dict[str, Any]]:
    found = tokens.login_wanted()
    assert found is not None
    return found.message, msgspec.json.decode(found.login)


# --- A person's login -----------------------------------------------------------------------------------------------


async def test_without_a_login_the_error_names_the_command(provider: Provider, store: CredentialStore) -> None:
    tokens = tokens_of(provider, store)
    assert tokens.current() is None
    assert await tokens.header() is None
    assert wanted(tokens) == (
        "notion wants you to log in: isthmus login notion",
        {"command": "isthmus login notion"},
    )
    await keep(store, record_of(provider))
    assert await tokens.header() == b"Bearer access-0", "another process has logged in meanwhile"
    assert tokens.current() == b"Bearer access-0"
    assert tokens.login_wanted() is None
    assert provider.forms == []


async def test_requests_share_one_refresh(provider: Provider, store: CredentialStore) -> None:
    await keep(store, stale(provider))
    tokens, found = tokens_of(provider, store), []

    async def ask() -> None:
        found.append(await tokens.header())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert found == [b"Bearer access-1"] * 5
    assert [form["refresh_token"] for form in provider.forms] == ["refresh-0"]
    record = await kept(store, provider)
    assert record is not None
    assert (record.access_token, record.refresh_token) == ("access-1", "refresh-1")


async def test_a_refresh_goes_on_though_its_request_is_cancelled(provider: Provider, store: CredentialStore) -> None:
    """A refresh token that was sent is used up, no matter which caller wanted it."""
    await keep(store, stale(provider))
    tokens = tokens_of(provider, store)
    provider.goes_on.clear()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tokens.header)
        assert await anyio.to_thread.run_sync(provider.came.wait, PATIENCE_S)
        tasks.cancel_scope.cancel()
        provider.goes_on.set()
    record = await kept(store, provider)
    assert record is not None
    assert record.refresh_token == "refresh-1"
    assert tokens.current() == b"Bearer access-1"


async def test_what_another_process_renewed_is_taken(provider: Provider, store: CredentialStore) -> None:
    await keep(store, stale(provider))
    mine, other = tokens_of(provider, store), tokens_of(provider, store)
    await mine.header()
    assert await other.header() == b"Bearer access-1"
    assert len(provider.forms) == 1


async def test_a_401_renews_once_and_is_sent_again(provider: Provider, store: CredentialStore) -> None:
    await keep(store, record_of(provider))
    tokens = tokens_of(provider, store)
    value = await tokens.header()
    assert value == b"Bearer access-0"
    assert await tokens.refused(value, "Bearer", 401)
    assert await tokens.header() == b"Bearer access-1"
    assert await tokens.refused(value, "Bearer", 401), "the older token says nothing of the newer one"
    assert len(provider.forms) == 1
    assert not await tokens.refused(b"Bearer access-1", "Bearer", 401)
    assert "does not take the token" in wanted(tokens)[0]
    assert len(provider.forms) == 1


async def test_a_login_that_was_taken_back(provider: Provider, store: CredentialStore) -> None:
    await keep(store, stale(provider))
    provider.answer = lambda _: (400, {"error": "invalid_grant"})
    tokens = tokens_of(provider, store)
    assert await tokens.header() is None
    message, login = wanted(tokens)
    assert message.startswith("notion wants you to log in (the login was taken back (invalid_grant, ")
    assert login == {"command": "isthmus login notion"}
    record = await kept(store, provider)
    assert record is not None
    assert (record.access_token, record.refresh_token) == ("", "")
    assert record.registration == record_of(provider).registration


async def test_a_provider_that_is_down_costs_nobody_a_login(provider: Provider, store: CredentialStore) -> None:
    before = stale(provider)
    await keep(store, before)
    provider.answer = lambda _: (503, {})
    tokens = tokens_of(provider, store)
    assert await tokens.header() is None
    assert "HTTP status 503" in wanted(tokens)[0]
    assert await kept(store, provider) == before
    assert len(provider.forms) == 2, "once more, and then not at each request"
    assert await tokens.header() is None
    assert len(provider.forms) == 2


async def test_a_request_for_more_scopes_names_the_command(provider: Provider, store: CredentialStore) -> None:
    await keep(store, record_of(provider))
    tokens = tokens_of(provider, store)
    value = await tokens.header()
    assert value is not None
    challenge = 'Bearer error="insufficient_scope", scope="write $(x)"'
    assert not await tokens.refused(value, challenge, 403)
    assert wanted(tokens) == (
        "notion needs the scope write $(x): isthmus login notion --scope read --scope write --scope '$(x)'",
        {
            "command": "isthmus login notion --scope read --scope write --scope '$(x)'",
            "scope": ["read", "write", "$(x)"],
        },
    )
    await keep(store, record_of(provider, access_token="wider", granted=("read", "write", "$(x)")))
    assert await tokens.refused(value, challenge, 403), "another process has logged in with them"
    assert await tokens.header() == b"Bearer wider"


@pytest.mark.parametrize("challenge", ['Bearer error="insufficient_scope", scope="read"', "Bearer", ""])
async def test_a_403_that_no_login_would_end_names_no_command(
    challenge: str, provider: Provider, store: CredentialStore
) -> None:
    await keep(store, record_of(provider))
    tokens = tokens_of(provider, store)
    value = await tokens.header()
    assert value is not None
    assert not await tokens.refused(value, challenge, 403)
    assert tokens.login_wanted() is None


async def test_a_step_up_is_named_twice(provider: Provider, store: CredentialStore) -> None:
    """A server that never has enough gets no third login."""
    await keep(store, record_of(provider))
    tokens = tokens_of(provider, store)
    value = await tokens.header()
    assert value is not None
    named = []
    for _ in range(3):
        assert not await tokens.refused(value, 'Bearer error="insufficient_scope", scope="more"', 403)
        named.append(tokens.login_wanted() is not None)
    assert named == [True, True, False]


async def test_a_login_at_another_issuer_is_not_used(provider: Provider, store: CredentialStore) -> None:
    """The records of other issuers count for nothing if the configuration names one, and stay."""
    await keep(store, record_of(provider))
    upstream = Upstream(url=f"{provider.url}/mcp", auth=OAuth(issuer="https://new.example"))
    tokens = PersonTokens("notion", upstream, store, ask_for_command("notion", ("isthmus", "login", "notion")))
    assert await tokens.header() is None
    assert await kept(store, provider) is not None


async def test_a_store_that_cannot_be_used_says_why(provider: Provider, tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    store = CredentialStore(str(folder), KEY)
    (folder / "a.credential").write_bytes(b"x")
    tokens = tokens_of(provider, store)
    assert await tokens.header() is None
    assert f"chmod 700 {folder}" in wanted(tokens)[0]


async def test_tokens_that_are_old_when_they_come_are_used(provider: Provider, store: CredentialStore) -> None:
    """A lifetime of nothing must not become a loop of refreshes."""
    await keep(store, stale(provider))
    provider.answer = lambda form: (200, {**provider.granted(form)[1], "expires_in": 0})
    tokens, found = tokens_of(provider, store), []

    async def ask() -> None:
        found.append(await tokens.header())

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(ask)
    assert found == [b"Bearer access-1"] * 3
    assert len(provider.forms) == 1
    assert await tokens.header() == b"Bearer access-2"


async def test_the_latest_login_counts_and_not_the_latest_refresh(provider: Provider, store: CredentialStore) -> None:
    """The server has a new authorization server, and a person has logged in there. The login at the old one is renewed
    once more before the server rejects it."""
    now = time.time()
    await keep(store, record_of(provider, logged_in_at=now - 100, issued_at=now))
    new = Registration("https://new.example", "client")
    await keep(
        store, record_of(provider, registration=new, logged_in_at=now - 10, issued_at=now - 10, access_token="new")
    )
    assert await tokens_of(provider, store).header() == b"Bearer new"
    assert await kept(store, provider) is not None, "the login at the old one is untouched"


async def test_a_login_that_cannot_be_written_goes_on_in_this_process(
    provider: Provider, store: CredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: the stored refresh token is used up, and must not be sent again."""
    await keep(store, stale(provider))
    provider.answer = lambda form: (200, {**provider.granted(form)[1], "expires_in": 0})
    tokens = tokens_of(provider, store)

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(store, "write", fails)
        assert await tokens.header() == b"Bearer access-1"
        assert await tokens.header() == b"Bearer access-2"
    assert await tokens.header() == b"Bearer access-3"
    assert [form["refresh_token"] for form in provider.forms] == ["refresh-0", "refresh-1", "refresh-2"]
    record = await kept(store, provider)
    assert record is not None
    assert record.refresh_token == "refresh-3"


# --- The proxy's own login ------------------------------------------------------------------------------------------


def client_tokens(provider: Provider) -> ClientTokens:
    auth = ClientCredentials(client_id="service", client_secret="of-the-service")
    return ClientTokens("files", Upstream(url=f"{provider.url}/mcp", auth=auth))


async def test_the_proxy_logs_in_once_for_all_requests(provider: Provider) -> None:
    tokens, found = client_tokens(provider), []

    async def ask() -> None:
        found.append(await tokens.header())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert found == [b"Bearer access-1"] * 5
    assert provider.forms == [{"grant_type": "client_credentials", "scope": "read", "resource": f"{provider.url}/mcp"}]


async def test_the_proxy_logs_in_again_after_a_401(provider: Provider) -> None:
    tokens = client_tokens(provider)
    value = await tokens.header()
    assert value is not None
    assert await tokens.refused(value, "Bearer", 401)
    assert await tokens.header() == b"Bearer access-2"


async def test_the_proxy_asks_for_more_scopes_twice(provider: Provider) -> None:
    tokens = client_tokens(provider)
    challenge = 'Bearer error="insufficient_scope", scope="write"'
    sent = []
    for _ in range(3):
        value = await tokens.header()
        assert value is not None
        sent.append(await tokens.refused(value, challenge, 403))
    assert sent == [True, True, False]
    assert [form["scope"] for form in provider.forms] == ["read", "read write", "read write"]


async def test_a_refused_client_says_why(provider: Provider) -> None:
    provider.answer = lambda _: (401, {"error": "invalid_client"})
    tokens = client_tokens(provider)
    assert await tokens.header() is None
    message, login = wanted(tokens)
    assert "invalid_client" in message
    assert message.startswith("files: ")
    assert login == {"server": "files"}
    assert await tokens.header() is None
    assert len(provider.forms) == 1, "it is not asked again at each request"


@pytest.mark.parametrize("content", [None, b"x"])
async def test_a_key_that_cannot_be_used_says_so(content: bytes | None, provider: Provider, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    if content is not None:
        path.write_bytes(content)
    auth = ClientCredentials(client_id="service", private_key=str(path))
    tokens = ClientTokens("files", Upstream(url=f"{provider.url}/mcp", auth=auth))
    assert await tokens.header() is None
    assert str(path) in wanted(tokens)[0]
