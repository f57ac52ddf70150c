"""The tokens of a wrapped server: without a login, with one that is made later, and while one is in progress."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest
from isthmus.app.config.settings import Upstream
from isthmus.app.logins import wrapped
from isthmus.app.logins.person import How, progress_key
from isthmus.app.logins.records import key_of
from isthmus.app.logins.store import CredentialStore
from isthmus.app.logins.wrapped import Opener, WrapTokens
from isthmus.core.logins.credentials import Record, encode_record
from isthmus.core.logins.requests import LoginFailed, Registration
from token_provider import PATIENCE_S, Provider

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

KEY = {"ISTHMUS_STORE_KEY": "00" * 32}
LINE = "files wants credentials: give them with --header, or log in: isthmus login URL"


@pytest.fixture(autouse=True)
async def patience(anyio_backend: str) -> AsyncIterator[None]:
    with anyio.fail_after(PATIENCE_S):
        yield


@pytest.fixture
def store(tmp_path: Path) -> CredentialStore:
    return CredentialStore(str(tmp_path / "credentials"), KEY)


class Wrap:
    """A wrapped server. `said` has the lines for the person."""

    def __init__(
        self, provider: Provider, store: CredentialStore, *, holds_s: float = 0, opener: Opener | None = None
    ) -> None:
        self.said: list[str] = []
        self.came = anyio.Event()
        self.upstream = Upstream(url=f"{provider.url}/mcp")
        self.record = Record(
            Registration(provider.url, "client"),
            f"{provider.url}/mcp",
            f"{provider.url}/token",
            access_token="access-0",
            refresh_token="refresh-0",
        )
        self.store = store
        self.tokens = WrapTokens(
            "files", self.upstream, store, ("isthmus", "login", "URL"), holds_s=holds_s, say=self.say, opener=opener
        )

    def say(self, text: str) -> None:
        self.said.append(text)
        self.came.set()

    async def log_in(self) -> None:
        async with self.store.lock(key_of(self.record, "")) as held:
            await held.write(encode_record(self.record))

    async def log_out(self) -> None:
        async with self.store.lock(key_of(self.record, "")) as held:
            await held.remove(encode_record(self.record))


async def test_a_server_without_logins_is_asked_without_a_token(provider: Provider, store: CredentialStore) -> None:
    wrap = Wrap(provider, store)
    assert wrap.tokens.current() is None, "the store was not looked into yet"
    assert await wrap.tokens.header() == b""
    assert wrap.tokens.current() == b""
    assert wrap.tokens.login_wanted() is None
    assert not Path(store.folder).exists()


async def test_a_login_is_used_whenever_it_was_made(provider: Provider, store: CredentialStore) -> None:
    wrap = Wrap(provider, store)
    await wrap.tokens.header()
    for _ in range(2):
        assert not await wrap.tokens.refused(b"", "Bearer", 401)
        wanted = wrap.tokens.login_wanted()
        assert wanted is not None
        assert (wanted.message, msgspec.json.decode(wanted.login)) == (LINE, {"command": "isthmus login URL"})
    assert wrap.said == [LINE], "once"
    await wrap.log_in()
    assert await wrap.tokens.refused(b"", "Bearer", 401)
    assert await wrap.tokens.header() == wrap.tokens.current() == b"Bearer access-0"
    assert wrap.tokens.login_wanted() is None


async def test_the_next_request_looks_for_a_login(provider: Provider, store: CredentialStore) -> None:
    """A request need not be refused again."""
    wrap = Wrap(provider, store)
    assert await wrap.tokens.header() == b""
    await wrap.tokens.refused(b"", "", 401)
    await wrap.log_in()
    assert wrap.tokens.current() is None
    assert await wrap.tokens.header() == b"Bearer access-0"


async def test_a_login_that_is_removed(provider: Provider, store: CredentialStore) -> None:
    wrap = Wrap(provider, store)
    await wrap.log_in()
    assert await wrap.tokens.header() == b"Bearer access-0"
    await wrap.log_out()
    provider.answer = lambda _: (400, {"error": "invalid_grant"})
    assert not await wrap.tokens.refused(b"Bearer access-0", "Bearer", 401)
    assert wrap.tokens.login_wanted() is not None
    assert wrap.said == [LINE]
    assert await wrap.tokens.header() == b"", "there is none now"


@pytest.mark.parametrize("challenge", ["Basic realm=x", 'ApiKey realm="x"'])
async def test_a_server_that_wants_no_bearer_token(challenge: str, provider: Provider, store: CredentialStore) -> None:
    """The usual error names the options for credentials."""
    wrap = Wrap(provider, store)
    await wrap.tokens.header()
    assert not await wrap.tokens.refused(b"", challenge, 401)
    assert wrap.tokens.login_wanted() is None
    assert wrap.said == []


async def test_requests_wait_for_a_login_in_progress(provider: Provider, store: CredentialStore) -> None:
    wrap, found = Wrap(provider, store, holds_s=PATIENCE_S), []

    async def ask() -> None:
        found.append(await wrap.tokens.refused(b"", "Bearer", 401))

    await wrap.tokens.header()
    async with anyio.create_task_group() as tasks:
        async with store.lock(progress_key(wrap.upstream)):  # as `isthmus login` does
            tasks.start_soon(ask)
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert found == []
            await wrap.log_in()
    assert found == [True, True]
    assert wrap.said == []


async def test_requests_wait_no_longer_than_the_login(provider: Provider, store: CredentialStore) -> None:
    """The person closes the page: it is told how to log in."""
    wrap, found = Wrap(provider, store, holds_s=PATIENCE_S), []

    async def ask() -> None:
        found.append(await wrap.tokens.refused(b"", "Bearer", 401))

    await wrap.tokens.header()
    async with anyio.create_task_group() as tasks:
        async with store.lock(progress_key(wrap.upstream)):
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
    assert found == [False]
    assert wrap.said == [LINE]


@pytest.mark.parametrize("holds_s", [0, 0.001])
async def test_requests_wait_for_so_long(holds_s: float, provider: Provider, store: CredentialStore) -> None:
    """Requests on HTTP do not wait at all. On stdio the time is that of all requests together."""
    wrap = Wrap(provider, store, holds_s=holds_s)
    await wrap.tokens.header()
    async with store.lock(progress_key(wrap.upstream)):
        for _ in range(3):
            assert not await wrap.tokens.refused(b"", "Bearer", 401)
    assert wrap.said == [LINE]


async def test_a_browser_is_asked_for_once_a_request_is_refused(
    provider: Provider, store: CredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No browser is opened before, nor for a second request while that login goes on."""
    asked: list[How] = []
    goes_on = anyio.Event()

    async def log_in(upstream: Upstream, how: How, *_: object) -> Record:
        asked.append(how)
        await goes_on.wait()
        await wrap.log_in()
        return wrap.record

    monkeypatch.setattr(wrapped, "log_in_person", log_in)
    said: list[str] = []
    opener = Opener(Upstream(url=f"{provider.url}/mcp"), store, said.append)
    wrap, found = Wrap(provider, store, holds_s=PATIENCE_S, opener=opener), []

    async def ask() -> None:
        found.append(await wrap.tokens.refused(b"", "Bearer", 401))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opener.run)
        await wrap.tokens.header()
        await anyio.wait_all_tasks_blocked()
        assert asked == []
        async with anyio.create_task_group() as asking:
            asking.start_soon(ask)
            asking.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert asked == [How(survives=True)]
            goes_on.set()
        tasks.cancel_scope.cancel()
    assert found == [True, True]
    assert said == [f"logged in at {provider.url} for {provider.url}/mcp"]


async def test_after_a_login_that_failed_no_page_is_opened_any_more(
    provider: Provider, store: CredentialStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def log_in(*_: object) -> Record:
        asked.append(time.monotonic())
        raise LoginFailed("nobody came")

    monkeypatch.setattr(wrapped, "log_in_person", log_in)
    asked: list[float] = []
    said: list[str] = []
    opener = Opener(Upstream(url=f"{provider.url}/mcp"), store, said.append)
    wrap = Wrap(provider, store, holds_s=PATIENCE_S, opener=opener)
    await wrap.tokens.header()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opener.run)
        for _ in range(3):
            assert not await wrap.tokens.refused(b"", "Bearer", 401)
    assert len(asked) == 1
    assert said == ["nobody came"]
    assert wrap.said == [LINE]
