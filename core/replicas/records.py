"""The record of a lease, as replicas write it and read that of others."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from ..base.replica import LEASE_PREFIX, is_tag

ADDRESS_MAX_CHARS: Final = 512
"""Characters of an address: a URL of a host, or a path of a socket. At it: the lease cannot be read, and is kept."""

_RUN: Final = re.compile(r"[0-9a-f]{32}")
_ADDRESS: Final = re.compile(r"(?:http://|unix:/)[!-~]+")


class Lease(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a record `replica/<tag>`, in JSON.

    Attributes:
        run: the random name of the start that holds it, 32 hexadecimal digits.
        address: where other replicas reach it: `http://HOST:PORT`, or `unix:` and a path; "": nowhere.
        renewed: the number of its renewals, so that each one changes the value, for people who look at it.
        place: names the listening socket that its process has bound, on its machine, which only one process can have at
            a time; "": none.
    """

    run: str
    address: Annotated[str, msgspec.Meta(max_length=ADDRESS_MAX_CHARS)] = ""
    renewed: int = 0
    place: Annotated[str, msgspec.Meta(max_length=ADDRESS_MAX_CHARS)] = ""


_decoder: Final = msgspec.json.Decoder(Lease)


def encode(lease: Lease) -> bytes:
    return msgspec.json.encode(lease)


def decode(value: bytes) -> Lease | None:
    """Returns a lease; None if it cannot be read, as that of a later version of Isthmus may be."""
    try:
        lease = _decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    is_good = _RUN.fullmatch(lease.run) and (not lease.address or _ADDRESS.fullmatch(lease.address))
    return lease if is_good else None


def key_of(tag: str) -> str:
    return LEASE_PREFIX + tag


def tag_in(key: str) -> str:
    """Returns the tag in the key of a lease; "" if it is no such key."""
    tag = key.removeprefix(LEASE_PREFIX)
    return tag if key.startswith(LEASE_PREFIX) and is_tag(tag) else ""
