"""A tool returns any result: rewriting its paths changes strings only, is complete after one pass, and keeps it valid.

The input is an output schema, a newline, and a result. Accepted outcomes: the unchanged result, if it cannot be read;
or a result of the same shape, in which only strings differ. Its structured content is as valid under the schema
as before, according to the jsonschema package, and rewriting it again changes nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
from isthmus.core.files.calls.path_rewriter import KnownPath, reword_result, reword_text

KNOWN = (
    KnownPath(("/w/s/out/a.png", "/w/s/b.png"), "artifact://sessions/1/2/a.png"),
    KnownPath(("/w/s/c d.txt",), "artifact://sessions/1/3/c%20d.txt", has_name=False),
)
CWD, FOLDERS = "/w/s", ("/w/s",)


def shape(value: Any) -> Any:
    """Returns the value with each string replaced by an empty one, and each object by the values of its members."""
    if isinstance(value, dict):
        return [{}, *map(shape, value.values())]
    if isinstance(value, list):
        return [shape(below) for below in value]
    return "" if isinstance(value, str) else value


def is_valid(schema: Any, value: Any) -> bool | None:
    """True if the value is valid under the schema; None if that is undefined."""
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        return jsonschema.Draft202012Validator(schema).is_valid(value)
    except Exception:  # an invalid schema, an unknown reference, a pattern of another dialect
        return None


def test_one_input(data: bytes) -> None:
    schema, _, result = data.decode(errors="replace").encode().partition(b"\n")
    after = reword_result(result, KNOWN, CWD, FOLDERS, schema or None)
    text = result.decode(errors="replace")
    reworded = reword_text(text, KNOWN, CWD, FOLDERS)
    assert reword_text(reworded, KNOWN, CWD, FOLDERS) == reworded
    if after == result:
        return
    old, new = json.loads(result, parse_float=str), json.loads(after, parse_float=str)
    assert shape(new) == shape(old)
    assert reword_result(after, KNOWN, CWD, FOLDERS, schema or None) == after
    if schema and "structuredContent" in old and not re.search(rb"format|pattern|\$", schema):
        try:
            loaded = json.loads(schema)
        except ValueError:
            assert new["structuredContent"] == old["structuredContent"]
            return
        verdicts = [is_valid(loaded, each["structuredContent"]) for each in (old, new)]
        assert verdicts[0] == verdicts[1]
