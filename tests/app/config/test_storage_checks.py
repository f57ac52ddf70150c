"""The checks of shared stores: both or neither, with the keys that replicas share, and no secret in any message."""

from __future__ import annotations

import json
from typing import Any

import pytest
from isthmus.app.base.errors import ConfigError
from isthmus.app.config.load import loads
from isthmus.app.config.settings import Settings, Storage
from isthmus.app.config.storage_checks import client_url, is_postgres, shown_store

KEY = "k" * 16
SECRET = "hunter2-of-nobody"
BOTH = {"records": "${DATABASE}", "blobs": "s3://bucket/prefix"}
DATABASE = f"postgresql://isthmus:{SECRET}@db:5432/isthmus?sslmode=require"


def load(storage: dict[str, Any], *, has_keys: bool = True) -> Settings:
    keys: dict[str, Any] = {"core": {"link_keys": [KEY]}, "sessions": {"request_state_keys": [KEY]}} if has_keys else {}
    document = {"servers": [{"id": "a", "upstream": {"command": ["x"]}}], "storage": storage, **keys}
    return loads(json.dumps(document), "json", "/", {"DATABASE": DATABASE})


def fault(storage: dict[str, Any], *, has_keys: bool = True) -> str:
    with pytest.raises(ConfigError) as caught:
        load(storage, has_keys=has_keys)
    assert SECRET not in caught.value.message
    return caught.value.message


def test_shared_stores_are_read() -> None:
    settings = load(BOTH)
    assert settings.storage.is_shared and settings.storage.records == DATABASE
    assert SECRET not in repr(settings) and "bucket" not in repr(settings)
    assert not load({}).storage.is_shared


@pytest.mark.parametrize(
    "address, client",
    [
        ("postgresql:///db?host=/run/postgresql", None),
        ("postgres://u:p%40@h1:5432,h2:5433/db", None),
        ("redis://:p@[::1]:6379/0", None),
        ("rediss://h", None),
        ("valkey://h/1", "redis://h/1"),
        ("valkeys://u:p@h", "rediss://u:p@h"),
    ],
)
def test_addresses_of_records(address: str, client: str | None) -> None:
    storage = load({**BOTH, "records": address}).storage
    assert client_url(storage) == (client or address)
    assert is_postgres(storage) == address.startswith("postgres")


def test_one_store_alone_is_refused() -> None:
    assert fault({"records": "redis://h"}) == (
        "storage.blobs: missing, expected it beside storage.records: records and files are shared together, or not at "
        "all; for example blobs: s3://my-bucket/isthmus"
    )
    assert fault({"blobs": "s3://bucket"}).startswith("storage.records: missing, expected it beside storage.blobs: ")


def test_the_keys_of_all_replicas_are_required() -> None:
    assert fault(BOTH, has_keys=False).splitlines() == [
        "core.link_keys: missing, expected a secret beside storage.records, the same for all replicas; for example "
        'link_keys: ["${LINK_KEY}"] (openssl rand -hex 32)',
        "sessions.request_state_keys: missing, expected a secret beside storage.records, the same for all replicas; "
        'for example request_state_keys: ["${STATE_KEY}"] (openssl rand -hex 32)',
    ]


@pytest.mark.parametrize(
    "records",
    [
        f"mysql://u:{SECRET}@h/db",
        SECRET,
        f"host=h password={SECRET}",
        f"redis://:{SECRET}/x@h",
        f"redis://:{SECRET}#x@h",
        f"redis://:{SECRET}?x@h",
        f"postgresql://u:{SECRET}@x@h/db",
        f"postgresql://h/{SECRET} x",
    ],
)
def test_an_address_that_is_wrong_is_not_repeated(records: str) -> None:
    assert "storage.records: got " in fault({**BOTH, "records": records})


def test_a_wrong_bucket_is_not_repeated() -> None:
    text = fault({**BOTH, "blobs": f"s3://u:{SECRET}@bucket"})
    assert "storage.blobs: got credentials in the URL, expected s3://BUCKET/PREFIX" in text
    assert "storage.blobs: got text (not shown), expected text" not in text
    assert "got a list of 1" in fault({**BOTH, "blobs": [f"s3://{SECRET}"]})


@pytest.mark.parametrize(
    "address, shown",
    [
        (DATABASE, "postgresql://db:5432/isthmus"),
        ("redis://:p@h:1/0", "redis://h:1/0"),
        ("postgresql:///db?host=/run", "postgresql:///db"),
        ("s3://bucket/a/b?endpoint=http://h", "s3://bucket/a/b"),
    ],
)
def test_no_secret_of_an_address_is_shown(address: str, shown: str) -> None:
    assert shown_store(address) == shown


def test_a_store_hides_its_addresses() -> None:
    assert repr(Storage(records=DATABASE, blobs="s3://b")) == (
        "Storage(root='./data', max_size=None, records='…', blobs='…')"
    )
