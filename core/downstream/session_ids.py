"""Public names that last: of the sessions that are ours, for clients that have none."""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from ..base.ids import NAME_BYTES
from ..state.session import Affinities


def lasting_sid(key: bytes, affinity: Affinities) -> str:
    """The same name for the same affinity, as long as the key is the same; 128 bits that nobody can guess without."""
    whose = (affinity.server, affinity.principal, affinity.fingerprint, affinity.headers)
    said = b"isthmus session 1\n" + msgspec.json.encode(whose)
    return hmac.new(key, said, hashlib.sha256).hexdigest()[: 2 * NAME_BYTES]
