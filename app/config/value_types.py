"""Types of values in a configuration, with their bounds and their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from ..base import durations, sizes

REFERENCE: Final = r"\$\{"
"""A pattern for text with a variable in it. The schema accepts such text anywhere: its value is not known before it
is read."""

ID_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"

Id = Annotated[str, Meta(extra_json_schema={"pattern": rf"{REFERENCE}|^{ID_PATTERN}$"})]
Count = Annotated[int, Meta(gt=0, le=1_000_000_000)]
_DURATION_PATTERN: Final = {"pattern": rf"{REFERENCE}|{durations.PATTERN}"}
Seconds = Annotated[
    float, Meta(gt=0, le=10 * 366 * 86_400, extra={"unit": "seconds"}, extra_json_schema=_DURATION_PATTERN)
]
Delay = Annotated[float, Meta(ge=0, le=3600, extra={"unit": "seconds"}, extra_json_schema=_DURATION_PATTERN)]
"""Time of waiting. 0: none."""
_SIZE_PATTERN: Final = {"pattern": rf"{REFERENCE}|{sizes.PATTERN}"}
Size = Annotated[int, Meta(gt=0, le=1 << 60, extra={"unit": "bytes"}, extra_json_schema=_SIZE_PATTERN)]
InlineSize = Annotated[int, Meta(ge=0, le=sizes.MIB, extra={"unit": "bytes"}, extra_json_schema=_SIZE_PATTERN)]
"""Size of text that is put into a result for a model to read. 0: none."""
Port = Annotated[int, Meta(ge=0, le=65_535)]
Texts = tuple[str, ...]


def about(description: str) -> Meta:
    return Meta(description=description)
