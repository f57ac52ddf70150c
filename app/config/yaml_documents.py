"""Documents in YAML, apart from the other formats: its parser is loaded only where one is to be read."""

from __future__ import annotations

from typing import Any

import yaml


def read_yaml(text: str) -> object:
    """The document as plain mappings, lists and scalars.

    Raises:
        ValueError: it is no YAML, or a key appears twice in one mapping. The message has line and column where the
            parser tells them.
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
    """YAML forbids equal keys in a mapping; the parser would keep the last and say nothing."""

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
