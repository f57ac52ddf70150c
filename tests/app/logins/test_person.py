"""The login of a person: with a store on disk that several share, and a provider that is scripted over HTTP."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.to_thread
import pytest
from isthmus.app.config.settings import Upstream
from isthmus.app.logins import person as person_module
from isthmus.app.logins.person import LOGIN_TIMEOUT_S, How, latest_login, log_in_person, progress_key
from isthmus.app.logins.store import CredentialStore
from isthmus.core.logins.credentials import Record
from isthmus.core.logins.requests import LoginFailed
from token_provider import PATIENCE_S, Provider

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

KEY = {"ISTHMUS_STORE_KEY": "00" * 32}


@pytest.fixture(autouse=True)
async def patience(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(person_module, "PORT", 0)  # tests that run at the same time take no port of each other
    with anyio.fail_after(PATIENCE_S):
        yield


@pytest.fixture
def store(tmp_path: Path) -> CredentialStore:
    return CredentialStore(str(tmp_path / "credentials"), KEY)


class Person:
    """A process that logs in, and the person who reads what it says. `pages` are those that were to be opened."""

    def __init__(self, provider: Provider, store: CredentialStore, **how: object) -> None:
        self.upstream = Upstream(url=f"{provider.url}/mcp")
        self.store = store
        self.how = How(**{"opens": False, "survives": True, **how})  # type: ignore[arg-type]
        self.said: list[str] = []
        self.came = anyio.Event()
        self.record: Record | None = None
        self.scope = anyio.CancelScope()

    def say(self, text: str) -> None:
        self.said.append(text)
        self.came.set()

    async def run(self, before: Record | None = None) -> None:
        with self.scope:
            self.record = await log_in_person(self.upstream, self.how, self.store, self.say, before=before)

    async def page(self) -> str:
        """Returns the page that was said."""
        await self.came.wait()
        return self.said[0].split("\n")[1]

    async def visit(self, page: str, **changes: str) -> None:
        """Logs in at a page: the browser comes to the redirect URI."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(page).query).items()}
        back = f"{asked['redirect_uri']}?state={changes.get('state', asked['state'])}&code=the-code"
        await anyio.to_thread.run_sync(partial(urllib.request.urlopen, back, timeout=PATIENCE_S))


async def test_a_login_ends_and_leaves_nothing_in_progress(provider: Provider, store: CredentialStore) -> None:
    person = Person(provider, store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(person.run)
        page = await person.page()
        assert await store.is_locked(progress_key(person.upstream))
        assert await store.read(progress_key(person.upstream)) is not None
        await person.visit(page)
    assert person.record is not None
    assert person.record == await latest_login(store, person.upstream)
    assert not await store.is_locked(progress_key(person.upstream))
    assert await store.read(progress_key(person.upstream)) is None
    assert b"the-code" not in b"".join(path.read_bytes() for path in Path(store.folder).iterdir())


async def test_the_next_process_takes_over_the_page_and_the_port(provider: Provider, store: CredentialStore) -> None:
    """The first one is killed while the person types a password. The page that is open leads to the second one."""
    first, second = Person(provider, store), Person(provider, store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        page = await first.page()
        first.scope.cancel()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(second.run)
        assert await second.page() == page
        assert "goes on, with this page" in second.said[0]
        await second.visit(page)
    assert second.record is not None
    assert len(second.said) == 1, "it opens no page"
    assert provider.registrations == 1


async def test_a_process_waits_for_the_login_of_another(provider: Provider, store: CredentialStore) -> None:
    first, second = Person(provider, store), Person(provider, store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        page = await first.page()
        tasks.start_soon(second.run)
        assert await second.page() == page, "it says where"
        assert "another isthmus is logging in" in second.said[0]
        await first.visit(page)
    assert first.record == second.record
    assert first.record is not None
    assert len(provider.forms) == 1


async def test_a_process_that_waits_takes_over_if_the_other_ends(provider: Provider, store: CredentialStore) -> None:
    first, second = Person(provider, store), Person(provider, store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        page = await first.page()
        tasks.start_soon(second.run)
        await second.page()
        second.came = anyio.Event()
        first.scope.cancel()
        await second.came.wait()
        assert "goes on" in second.said[1]
        await second.visit(page)
    assert second.record is not None


async def test_a_person_who_stops_a_login_begins_anew(provider: Provider, store: CredentialStore) -> None:
    """`isthmus login` that is interrupted leaves nothing, as the person may have closed the page."""
    first, second = Person(provider, store, survives=False), Person(provider, store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        page = await first.page()
        first.scope.cancel()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(second.run)
        again = await second.page()
        assert again != page
        await second.visit(again)
    assert second.record is not None


@pytest.mark.parametrize("reason", ["age", "clock", "port", "scope", "damage"])
async def test_a_login_that_cannot_be_taken_over(reason: str, provider: Provider, store: CredentialStore) -> None:
    first, second = Person(provider, store), Person(provider, store, scope=("more",) if reason == "scope" else ())
    key = progress_key(first.upstream)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        page = await first.page()
        first.scope.cancel()
    port = urlsplit(parse_qs(urlsplit(page).query)["redirect_uri"][0]).port
    taken = socket.socket()
    with taken:
        if reason == "port":
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", port))
            taken.listen()
        elif reason != "scope":
            async with store.lock(key) as held:
                data = await held.read()
                assert data is not None
                left = json.loads(data)
                left["began_at"] += {"age": -LOGIN_TIMEOUT_S, "clock": 1000, "damage": 0}[reason]
                await held.write(b"{}" if reason == "damage" else json.dumps(left).encode())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(second.run)
            again = await second.page()
            assert again != page
            await second.visit(again)
    assert second.record is not None
    assert await store.read(key) is None


async def test_a_login_that_fails_is_not_taken_over(provider: Provider, store: CredentialStore) -> None:
    provider.answer = lambda _: (400, {"error": "invalid_grant"})
    first = Person(provider, store)
    with pytest.raises(LoginFailed, match="invalid_grant"):
        await fails(first)
    assert await store.read(progress_key(first.upstream)) is None
    assert not await store.is_locked(progress_key(first.upstream))


async def fails(person: Person) -> None:
    """Has a person log in. Raises the failure of the login itself, and no group."""
    failures = []

    async def run() -> None:
        try:
            await person.run()
        except LoginFailed as error:
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await person.visit(await person.page())
    raise failures[0]


async def test_a_visit_with_another_state_ends_nothing(provider: Provider, store: CredentialStore) -> None:
    person = Person(provider, store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(person.run)
        page = await person.page()
        await person.visit(page, state="of-somebody-else")
        await person.visit(page)
    assert person.record is not None
    assert len(provider.forms) == 1


async def test_a_login_of_before_is_not_the_one_that_is_wanted(provider: Provider, store: CredentialStore) -> None:
    """`isthmus login` logs in again. A request that wants any login takes the one that there is."""
    first, again, any_one = Person(provider, store), Person(provider, store), Person(provider, store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.run)
        await first.visit(await first.page())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(again.run, first.record)
        await again.visit(await again.page())
    assert again.record not in (None, first.record)
    await any_one.run()
    assert any_one.record == again.record
    assert any_one.said == []
