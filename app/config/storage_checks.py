"""Checks of the stores that several replicas share, and the way in which their addresses are shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from ..base.problem import Problem
from .settings import Settings, Storage
from .value_checks import check_path

POSTGRES: Final = ("postgresql", "postgres")
REDIS: Final = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
"""Schemes of Redis and Valkey, each with the one that the client knows."""

_ADDRESS: Final = re.compile(
    r"(?P<scheme>[a-z0-9]+)://(?:[^/?#@]*@)?(?P<hosts>[A-Za-z0-9._:,%\[\]-]*)(?P<path>(?:/[A-Za-z0-9._%~-]*)*)"
    r"(?:\?[^#@]*)?"
)
"""An address of a store. A password with a character that would end it does not match, so none is taken for a host."""
_EXAMPLES: Final = {
    "storage.records": "records: postgresql://isthmus@db/isthmus",
    "storage.blobs": "blobs: s3://my-bucket/isthmus",
    "core.link_keys": 'link_keys: ["${LINK_KEY}"]',
    "sessions.request_state_keys": 'request_state_keys: ["${STATE_KEY}"]',
}


def check_storage(settings: Settings, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    """Checks `storage`, and what else shared stores need."""
    if not is_sound("storage"):
        return
    storage = settings.storage
    yield from check_path("storage.root", storage.root)
    if storage.records is not None:
        yield from _records("storage.records", storage.records)
    if storage.blobs is not None:
        yield from _blobs("storage.blobs", storage.blobs)
    for key, missing, given in (
        ("storage.blobs", storage.blobs, storage.records),
        ("storage.records", storage.records, storage.blobs),
    ):
        if missing is None and given is not None:
            other = "storage.records" if key == "storage.blobs" else "storage.blobs"
            yield _missing(key, f"it beside {other}: records and files are shared together, or not at all")
    if storage.is_shared:
        yield from _keys(settings, is_sound)


def shown_store(address: str) -> str:
    """Returns the part of an address of a store that may be shown: no user, password or options."""
    found = _ADDRESS.match(address)
    if found is None:
        return "an address that cannot be read"
    return f"{found['scheme']}://{found['hosts']}{found['path']}"


def client_url(storage: Storage) -> str:
    """Returns the address of shared records as the client of the store reads it."""
    assert storage.records is not None
    scheme, _, rest = storage.records.partition("://")
    return f"{REDIS.get(scheme, scheme)}://{rest}"


def is_postgres(storage: Storage) -> bool:
    assert storage.records is not None
    return storage.records.partition("://")[0] in POSTGRES


def _records(key: str, address: str) -> Iterator[Problem]:
    scheme = address.partition("://")[0] if "://" in address else ""
    if scheme not in (*POSTGRES, *REDIS):
        seen = f"got a {scheme}:// URL" if re.fullmatch(r"[a-z][a-z0-9+]{0,15}", scheme) else "got no URL"
        yield Problem(key, "a postgresql://, redis:// or rediss:// URL", seen, f"for example {_EXAMPLES[key]}")
    elif _ADDRESS.fullmatch(address) is None:
        right = f"{scheme}://USER:PASSWORD@HOST:PORT/NAME"
        fix = "in a user or password, write % as %25, @ as %40, / as %2F, ? as %3F and # as %23"
        yield Problem(key, right, "got a URL that cannot be read", fix)


def _blobs(key: str, address: str) -> Iterator[Problem]:
    from ...storage.s3_location import parse_location  # late: few configurations have a bucket

    try:
        parse_location(address)
    except ValueError as error:
        seen, _, expected = str(error).partition(", expected ")
        yield Problem(key, expected, seen)


def _keys(settings: Settings, is_sound: Callable[[str], bool]) -> Iterator[Problem]:
    """Requires the keys that are in `storage.root` otherwise, where each replica would have another one."""
    for key, keys in (
        ("core.link_keys", settings.core and settings.core.link_keys),
        ("sessions.request_state_keys", settings.sessions and settings.sessions.request_state_keys),
    ):
        if is_sound(key) and not keys:
            yield _missing(key, "a secret beside storage.records, the same for all replicas", " (openssl rand -hex 32)")


def _missing(key: str, right: str, how: str = "") -> Problem:
    return Problem(key, right, "missing", f"for example {_EXAMPLES[key]}{how}")
