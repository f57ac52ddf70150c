"""What is known of one tool's ways with files."""

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
    """What is known of one tool; nothing, by default.

    Attributes:
        is_harmless: it says that calling it twice is as calling it once.
        output_schema: the JSON of its `outputSchema`.
        verdicts: which arguments the schema says to want a URI, and which a path, by labels without indices.
    """

    is_harmless: bool = False
    output_schema: bytes | None = None
    verdicts: Mapping[str, bool] = {}

    def wants_uri(self, label: str, key: str) -> bool:
        """Whether the argument (as in `mentions.Mention`) takes URIs, as far as its schema, or else its name, says."""
        verdict = self.verdicts.get(_INDEX.sub("", label))
        return _URI_NAME.search(key) is not None if verdict is None else verdict
