"""Session ids that last over restarts, for sessions that the proxy opens for clients without sessions."""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from ..base.ids import NAME_BYTES
from ..state.session import Affinities


def derived_sid(key: bytes, affinity: Affinities) -> str:
    """Returns a session's public name: the same for the same affinity and key; 128 bits that cannot be guessed without
    it."""
    owner = (affinity.server, affinity.principal, affinity.fingerprint, affinity.headers)
    text = b"isthmus session 1\n" + msgspec.json.encode(owner)
    return hmac.new(key, text, hashlib.sha256).hexdigest()[: 2 * NAME_BYTES]
