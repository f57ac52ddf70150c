"""Reads YAML documents. A module of its own, so that the parser is imported only if one is read."""

from __future__ import annotations

from typing import Any, Final

import yaml

_WORDS: Final = (
    ("found character '\\t'", "got a tab, expected spaces; write spaces before the key: YAML takes no tab there"),
    (
        "mapping values are not allowed here",
        "got a second colon in one line; write what follows the first on a line of its own, further in, or in quotes",
    ),
    ("could not find expected ':'", "got a line without a colon, expected KEY: VALUE"),
    (
        "expected <block end>",
        "got a line that is indented otherwise than those before it; begin keys of one section in one column",
    ),
    ("expected ',' or ']'", "got a list without its end; write a comma between its entries, and ] after them"),
    ("expected ',' or '}'", "got a { without its end; write a comma between its keys, and } after them"),
    ("expected the node content, but found '<stream end>'", "got the end of the file, expected the end of a [ or {"),
    ("found unexpected end of stream", "got a text without its closing quote; write a quote after it"),
    ("found undefined alias", "got *NAME without a &NAME before it; write a text that begins with * in quotes"),
    ("found character '@'", "got @ before a text; write the text in quotes"),
    ("found character '`'", "got ` before a text; write the text in quotes"),
    ("found character '%'", "got % before a text; write the text in quotes"),
)
"""The words for what was seen, what is right and what mends it, by the beginning of what the parser says."""


class MalformedYaml(ValueError):
    """A text that is no YAML.

    Attributes:
        line: the line, counted from 1; None if the parser gives none.
    """

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def read_yaml(text: str) -> object:
    """Parses `text` into plain mappings, lists and scalars.

    Raises:
        MalformedYaml: `text` is no YAML, or a key appears twice in one mapping.
    """
    try:
        return _UniqueKeyLoader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        said = error.problem or error.context or ""
        mark = error.problem_mark
        message = next((words for beginning, words in _WORDS if said.startswith(beginning)), said)
        raise MalformedYaml(message, None if mark is None else mark.line + 1) from error
    except yaml.YAMLError as error:
        raise MalformedYaml(str(error), None) from error


def yaml_lines(text: str) -> dict[str, int]:
    """Returns the line of each dotted key of a document that `read_yaml` takes."""
    lines: dict[str, int] = {}
    _add_lines(_UniqueKeyLoader(text).get_single_node(), "", lines, [])
    return lines


def _add_lines(node: yaml.Node | None, key: str, lines: dict[str, int], above: list[yaml.Node | None]) -> None:
    if any(one is node for one in above):  # a document may hold itself
        return
    inside = []
    if isinstance(node, yaml.MappingNode):
        named = ((name, value) for name, value in node.value if isinstance(name, yaml.ScalarNode))
        inside = [(f"{key}.{name.value}" if key else name.value, name, value) for name, value in named]
    elif isinstance(node, yaml.SequenceNode):
        inside = [(f"{key}[{i}]", value, value) for i, value in enumerate(node.value)]
    for at, first, value in inside:
        lines.setdefault(at, first.start_mark.line + 1)
        _add_lines(value, at, lines, [*above, node])


class _UniqueKeyLoader(yaml.SafeLoader):
    """A loader that refuses equal keys in a mapping. YAML forbids them; the parser would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge" or not isinstance(key_node, yaml.ScalarNode):
                continue
            if (key_node.tag, key_node.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key_node.value!r} appears twice; remove one of them", key_node.start_mark
                )
            seen.add((key_node.tag, key_node.value))
        return super().construct_mapping(node, deep)
