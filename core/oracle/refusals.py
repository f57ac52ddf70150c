"""What a server has to refuse by its status, whatever the request asks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..base.revisions import is_older
from .methods import HANDSHAKE
from .observations import Role
from .seen import Breach, Stream, shown
from .watch import Watch

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Refusals(Watch):
    """Requests whose head nobody may accept. With another refusal nothing is found: there may be more to refuse."""

    def headed(self, stream: Stream, index: int, session: str | None) -> Iterator[Breach]:
        if not 200 <= (stream.status or 0) < 300:
            return
        revision = stream.asks[0].revision if stream.asks else self.book.revision_of_head(stream)

        def found(rule: str, text: str) -> Breach:
            return Breach(rule, Role.SERVER, f"got {stream.status}, {text}", revision, (stream.index, index))

        is_hello = any(ask.method == "initialize" for ask in stream.asks)
        if stream.revision is not None and _is_none(stream.revision) and not is_hello:
            yield found("version-refused", f"and the version {shown(stream.revision)} is none")
        elif stream.contradicts:
            yield found("mismatch-refused", f"and the request {stream.contradicts}")


def _is_none(revision: str) -> bool:
    """Whether that is certainly no revision, known here or not."""
    if _DATE.fullmatch(revision):
        return is_older(revision, HANDSHAKE[0])
    return not revision.upper().startswith("DRAFT")
