"""The facts about one tool's use of files, as far as its description gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from ..base.lazy_regex import Pattern

_INDEX: Final = Pattern(r"\[\d+\]")
_URI_NAME: Final = Pattern(
    r"(?:(?i:(?:^|[_\-.\s]|file|image|img|doc|document|source|src|media|video|audio|pdf|page|data)(?:uri|iri|url))"
    r"|(?<=[a-z0-9])(?:Uri|URI|Iri|IRI|Url|URL))[sS]?$"
)


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """The hints about one tool; empty by default.

    Attributes:
        is_harmless: the tool is declared idempotent or read-only, so that calling it twice is as calling it once.
        is_read_only: the tool is declared to change nothing.
        output_schema: the JSON of its `outputSchema`.
        verdicts: for arguments whose schema says so, True if they take a URI and False if they take a path, by labels
            without indices.
    """

    is_harmless: bool = False
    is_read_only: bool = False
    output_schema: bytes | None = None
    verdicts: Mapping[str, bool] = {}

    def wants_uri(self, label: str, key: str) -> bool:
        """True if the argument (named as in `mentions.Mention`) takes URIs, according to its schema, or else to its
        name."""
        verdict = self.verdicts.get(_INDEX.sub("", label))
        return _URI_NAME.search(key) is not None if verdict is None else verdict
