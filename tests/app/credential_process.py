"""A process that uses a store of credentials, for tests of several of them.

python credential_process.py FOLDER count NUMBER   adds 1 to the record, NUMBER times, each time under its lock
python credential_process.py FOLDER refresh LOG    exchanges the token that it read before for the next, once
python credential_process.py FOLDER hold           locks the record, says so, and stays
python credential_process.py FOLDER write          writes records until it is killed
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import anyio
import anyio.lowlevel
from isthmus.app.logins.interface import LoginKey
from isthmus.app.logins.store import CredentialStore

KEY = LoginKey("https://idp.example", "client", "https://mcp.example/mcp")


async def count(store: CredentialStore, number: int) -> None:
    for _ in range(number):
        async with store.lock(KEY) as held:
            seen = int(await held.read() or b"0")
            await anyio.lowlevel.checkpoint()
            await held.write(b"%d" % (seen + 1))


async def refresh(store: CredentialStore, log: Path) -> None:
    """Uses a refresh token if the record still has the one that was seen. Each use is a line in the log."""
    seen = await store.read(KEY)
    print("ready", flush=True)
    await anyio.to_thread.run_sync(sys.stdin.readline)  # until all have seen the same
    async with store.lock(KEY) as held:
        token = await held.read()
        if token == seen:
            with log.open("ab", buffering=0) as file:
                file.write(b"%b\n" % (token or b""))
            await held.write(b"%d" % (int(token or b"0") + 1))
    print((await store.read(KEY) or b"").decode(), flush=True)


async def hold(store: CredentialStore) -> None:
    async with store.lock(KEY):
        print("held", flush=True)
        await anyio.sleep_forever()


async def write(store: CredentialStore) -> None:
    for number in itertools.count():
        async with store.lock(KEY) as held:
            await held.write(b"%d" % number * 2_000)
        if number == 3:
            print("writes", flush=True)


async def main(folder: str, action: str, *arguments: str) -> None:
    store = CredentialStore(folder, {})
    match action:
        case "count":
            await count(store, int(arguments[0]))
        case "refresh":
            await refresh(store, Path(arguments[0]))
        case "hold":
            await hold(store)
        case "write":
            await write(store)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
