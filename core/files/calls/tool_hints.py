"""Hints of a server on how to hand files to its tools: which arguments want a URI, what may be repeated, what a
structured result must look like.

Servers give them in schemas, in names and in prose, so they may be wrong. A wrong hint costs a refusal, which
`says_uri` recognises, and another try.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from ...base.lazy_regex import Pattern
from ...jsonrpc.append import readable_elements, readable_members, readable_text
from ...jsonrpc.splice import take
from ...state.tool_hints import Hints
from .mentions import LABEL_MAX_CHARS

NODES_MAX: Final = 1000
"""Subschemas of one tool that are looked at. The largest of real tools have about a hundred. At it: further ones give
no hints."""

DEPTH_MAX: Final = 8
"""Levels of subschemas that are looked at. The bound also ends circular references."""

TEXT_MAX_CHARS: Final = 16 * 1024
"""Characters of an error or a description that are read. What matters stands at the beginning."""

_FORMATS: Final = frozenset(("uri", "uri-reference", "iri", "iri-reference", "url"))
_URI_WORD: Final = Pattern(r"(?<![\w-])(?:URI|IRI|URL)s?(?![\w-])", re.IGNORECASE)
_PATH_WORD: Final = Pattern(r"(?<![A-Za-z])(?:file)?paths?(?![A-Za-z])", re.IGNORECASE)
_FILE_URI: Final = Pattern(r"(?<![\w-])file:/|(?<![\w-])file:(?=[^.\n]{0,80}\bUR[IL])")
_SCHEME: Final = Pattern(r"(?<![\w-])(?:schemes?|URIs?|IRIs?|URLs?)(?![\w-])|(?<![\w-])file:(?!/+\w)", re.IGNORECASE)
_REFUSAL: Final = Pattern(r"unsupported|not supported|unknown url type|without a base", re.IGNORECASE)


def read_hints(result: bytes) -> dict[str, Hints]:
    """Returns the hints of each tool on a page of `tools/list`, by name. What cannot be read gives no hint."""
    found = {}
    for tool in readable_elements(take(result, readable_members(result).get("tools"))):
        spans = readable_members(tool)
        name = readable_text(take(tool, spans.get("name")))
        if name is None:
            continue
        notes = decoded_object(take(tool, spans.get("annotations")))
        output = take(tool, spans.get("outputSchema"))
        about = (readable_text(take(tool, spans.get("description"))) or "")[:TEXT_MAX_CHARS]
        found[name] = Hints(
            is_read_only=notes.get("readOnlyHint") is True,
            is_harmless=notes.get("readOnlyHint") is True or notes.get("idempotentHint") is True,
            output_schema=output if output is not None and output.startswith(b"{") else None,
            verdicts=_uri_hints(decoded_object(take(tool, spans.get("inputSchema"))), about),
        )
    return found


def says_uri(result: bytes, paths: Sequence[str]) -> bool:
    """True if the result of a call is an error because the tool wanted a URI where it was given one of `paths`."""
    spans = readable_members(result)
    if take(result, spans.get("isError")) != b"true" or not paths:
        return False
    texts = []
    for block in readable_elements(take(result, spans.get("content")))[:16]:
        texts.append((readable_text(take(block, readable_members(block).get("text"))) or "")[:TEXT_MAX_CHARS])
    text = "\n".join(texts)
    own_words = text  # a path may contain such words itself
    for path in paths:
        own_words = own_words.replace(path, " ") if path else own_words
    return _SCHEME.search(own_words) is not None and (own_words != text or _REFUSAL.search(own_words) is not None)


# --- Schemas --------------------------------------------------------------------------------------------------------


def _uri_hints(schema: dict[str, Any], about: str) -> dict[str, bool]:
    """Returns for each argument whether it wants a URI, where its schema or the tool's description decides that."""
    by_label: dict[str, bool] = {}
    strings = set()
    for label, part in argument_schemas(schema):
        wants_uri = _uri_hint(part)
        if wants_uri is not None and not by_label.get(label):  # of several subschemas, one that wants a URI wins
            by_label[label] = wants_uri
        if _is_string(part):
            strings.add(label)
    if len(strings) == 1 and _FILE_URI.search(about):
        by_label.setdefault(strings.pop(), True)
    return by_label


def argument_schemas(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields every subschema of an argument within `schema`, with its label. A list's items have the label of the
    list."""
    pending: list[tuple[str, object, int]] = [("", schema, 0)]
    for _ in range(NODES_MAX):
        if not pending:
            return
        label, part, depth = pending.pop()
        if not isinstance(part, dict) or depth > DEPTH_MAX:
            continue
        if label:
            yield label, part
        below = [part.get("items"), _referred(schema, part.get("$ref"))]
        for name in ("anyOf", "oneOf", "allOf"):
            choices = part.get(name)
            below += choices[:NODES_MAX] if isinstance(choices, list) else []
        named = [(label, inner) for inner in below if inner is not None]
        properties = part.get("properties")
        if isinstance(properties, dict):
            for name in list(properties)[:NODES_MAX]:
                below_label = f"{label}.{name}" if label else name
                if name and len(below_label) <= LABEL_MAX_CHARS:
                    named.append((below_label, properties[name]))
        pending += [(name, inner, depth + 1) for name, inner in named[: NODES_MAX - len(pending)]]


def _referred(schema: dict[str, Any], reference: object) -> object:
    if not isinstance(reference, str):
        return None
    for table in ("$defs", "definitions"):
        defined = schema.get(table)
        if isinstance(defined, dict) and reference.startswith(f"#/{table}/"):
            return defined.get(reference.removeprefix(f"#/{table}/"))
    return None


def _uri_hint(part: dict[str, Any]) -> bool | None:
    """Returns whether a schema wants a URI; None if it says nothing of it."""
    if _text(part.get("format")) in _FORMATS or "file:" in _text(part.get("pattern")):
        return True
    about = _text(part.get("description"))
    if _FILE_URI.search(about):
        return True
    if _PATH_WORD.search(about):
        return False
    return True if _URI_WORD.search(about) else None


def _is_string(part: dict[str, Any]) -> bool:
    types = part.get("type")
    return types == "string" or (isinstance(types, list) and "string" in types)


def _text(value: object) -> str:
    return value[:TEXT_MAX_CHARS] if isinstance(value, str) else ""


def decoded_object(raw: bytes | None) -> dict[str, Any]:
    """Returns a JSON object as a dict; an empty one for anything else."""
    if raw is None or not raw.startswith(b"{"):
        return {}
    try:
        decoded = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
