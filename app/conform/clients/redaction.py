"""Takes credentials out of what a server says: it may repeat the headers that it got, and reports are passed around."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, quote_plus

import msgspec

from ....core.oracle.observations import AnyObservation, Said
from ..script.steps import Conversation
from ..script.survey import Play, Played

SECRET_MIN_CHARS: Final = 8
"""Shorter values are no secrets, and stand in texts by chance."""
_CREDENTIAL: Final = re.compile("auth|key|token|secret|password|cookie", re.IGNORECASE)
"""The names of headers with credentials. A server repeats others in its answers for good reasons."""
_SHOWN: Final = b"***"


class Redacted:
    """A scripted client without the credentials in its headers in what it observes."""

    def __init__(self, play: Play, headers: Mapping[str, str]) -> None:
        self._play = play
        values = [value for name, value in headers.items() if _CREDENTIAL.search(name)]
        words = {word for value in values for word in (value, value.rpartition(" ")[2])}
        secrets = sorted((word for word in words if len(word) >= SECRET_MIN_CHARS), key=len, reverse=True)
        self._forms = tuple(dict.fromkeys(form for secret in secrets for form in _forms_of(secret)))

    def __call__(self, conversation: Conversation) -> Played:
        played = self._play(conversation)
        return msgspec.structs.replace(played, seen=[(wire, self._without(seen)) for wire, seen in played.seen])

    def _without(self, seen: AnyObservation) -> AnyObservation:
        if not isinstance(seen, Said):
            return seen
        message = seen.message
        for form in self._forms:
            message = message.replace(form, _SHOWN)
        return seen if message == seen.message else msgspec.structs.replace(seen, message=message)


def _forms_of(secret: str) -> tuple[bytes, ...]:
    texts = (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), quote_plus(secret))
    return tuple(text.encode() for text in texts)
