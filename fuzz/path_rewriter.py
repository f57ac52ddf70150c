"""Whatever a tool says, rewording its paths changes strings only, is done in one go, and keeps results valid.

The input is an output schema, a newline, and a result. Accepted outcomes: the result as it came, where it cannot be
read; or one of the same shape, in which only values that are strings differ, each reworded; its structured content is
as valid under the schema as it was, by the jsonschema package; and rewording it again changes nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
from isthmus.core.files.calls.path_rewriter import Known, reword_result, reword_text

KNOWN = (
    Known(("/w/s/out/a.png", "/w/s/b.png"), "artifact://sessions/1/2/a.png"),
    Known(("/w/s/c d.txt",), "artifact://sessions/1/3/c%20d.txt", has_name=False),
)
CWD, FOLDERS = "/w/s", ("/w/s",)


def shape(value: Any) -> Any:
    """The value with its strings left out, but for keys."""
    if isinstance(value, dict):
        return {key: shape(below) for key, below in value.items()}
    if isinstance(value, list):
        return [shape(below) for below in value]
    return "" if isinstance(value, str) else value


def is_valid(schema: Any, value: Any) -> bool | None:
    """None where nobody can say."""
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
        return jsonschema.Draft202012Validator(schema).is_valid(value)
    except Exception:  # a schema that is none, a reference to nowhere, a pattern of another dialect
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
