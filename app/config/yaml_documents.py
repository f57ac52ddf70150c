"""Reads YAML documents. A module of its own, so that the parser is imported only if one is read."""

from __future__ import annotations

from typing import Any

import yaml


def read_yaml(text: str) -> object:
    """Parses `text` into plain mappings, lists and scalars.

    Raises:
        ValueError: `text` is no YAML, or a key appears twice in one mapping. The message has line and column if the
            parser gives them.
    """
    try:
        return _UniqueKeyLoader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise ValueError(f"{where}{error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


class _UniqueKeyLoader(yaml.SafeLoader):
    """A loader that refuses equal keys in a mapping. YAML forbids them; the parser would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge" or not isinstance(key_node, yaml.ScalarNode):
                continue
            if (key_node.tag, key_node.value) in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key_node.value!r} appears twice in one mapping", key_node.start_mark
                )
            seen.add((key_node.tag, key_node.value))
        return super().construct_mapping(node, deep)
