"""Reads the `inputs` of a file of VS Code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ....core.base.nearest import nearest
from .findings import Findings
from .surroundings import Input


def read_inputs(document: Mapping[str, object], given: Mapping[str, str], findings: Findings) -> dict[str, Input]:
    """Returns the inputs that the document describes, at its top or under `mcp`. Values for others are refused."""
    found: dict[str, Input] = {}
    mcp = document.get("mcp")
    inner = mcp.get("inputs") if isinstance(mcp, dict) else None
    for key, value in (("inputs", document.get("inputs")), ("mcp.inputs", inner)):
        if isinstance(value, list):
            found |= {one.id: one for one in _listed(key, value, findings)}
        elif value is not None:
            findings.refuse_type(key, "a list, each entry with an id", value)
    for id in given:
        if id not in found:
            near = nearest(id, found)
            known = f"{near} (the nearest input)" if near else f"one of {', '.join(found)}" if found else "none"
            findings.refuse("--input", f"{known}, as the file describes them", f"got a value for {id!r}")
    return found


def _listed(key: str, entries: list[object], findings: Findings) -> Iterator[Input]:
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str):
            findings.refuse(f"{key}[{i}]", "an entry with an id that is text", "got another value")
            continue
        options = entry.get("options")
        listed = [one.get("value") if isinstance(one, dict) else one for one in options or ()]
        default = entry.get("default")
        yield Input(
            id=entry["id"],
            description=entry["description"] if isinstance(entry.get("description"), str) else "",
            is_secret=entry.get("password") is True,
            options=tuple(str(one) for one in listed),
            default=default if isinstance(default, str) else None,
        )
