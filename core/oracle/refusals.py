"""Checks that a server refuses, by its HTTP status, requests that no server may accept, whatever they ask."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..base.revisions import is_older
from .methods import HANDSHAKE
from .observations import Role
from .seen import Finding, Stream, shown
from .watch import Checker

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class RefusalChecker(Checker):
    """Checks requests whose head must be refused. Any status of refusal passes: there may be further reasons to
    refuse."""

    def headed(self, stream: Stream, index: int, session: str | None) -> Iterator[Finding]:
        if not 200 <= (stream.status or 0) < 300:
            return
        revision = stream.requests[0].revision if stream.requests else self.book.revision_of_head(stream)

        def found(rule: str, text: str) -> Finding:
            return Finding(rule, Role.SERVER, f"got {stream.status}, {text}", revision, (stream.index, index))

        is_initialize = any(request.method == "initialize" for request in stream.requests)
        if stream.revision is not None and _is_invalid(stream.revision) and not is_initialize:
            yield found("version-refused", f"and the version {shown(stream.revision)} is none")
        elif stream.contradicts:
            yield found("mismatch-refused", f"and the request {stream.contradicts}")


def _is_invalid(revision: str) -> bool:
    """True if the name is certainly no revision, known here or not."""
    if _DATE.fullmatch(revision):
        return is_older(revision, HANDSHAKE[0])
    return not revision.upper().startswith("DRAFT")
