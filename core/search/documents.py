"""A tool as a document: which stems it has, and how much each says about it.

BM25F gives each stem of the fields of a tool one number, its impact, which depends on the document alone: the length
of a field is compared with a usual one, and not with the average of the catalogue.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from .words import STOP_WORDS, split_words, stem

TERMS_MAX: Final = 96
"""The stems of a tool that are kept, of the greatest impact: most real tools have 20 to 60. At it: the tool is not
found by the others."""
TEXT_MAX_CHARS: Final = 4096
"""The characters of a name, a title and a description that are indexed. At it: the rest is left out."""
PARAMETERS_MAX: Final = 64
"""The parameters of a tool that are indexed; real tools have up to thirty. At it: further ones are left out."""
PARAMETER_MAX_CHARS: Final = 512
"""The characters of a parameter's name, and of its description, that are indexed. At it: the rest is left out."""

# The weight of each field, and its usual number of words.
_NAME: Final = (3.0, 3.0)
_ALIAS: Final = (1.5, 1.0)
_TITLE: Final = (1.0, 3.0)
_SENTENCE: Final = (1.5, 10.0)
_DESCRIPTION: Final = (0.6, 40.0)
_PARAMETERS: Final = (0.4, 5.0)
_PARAMETER_TEXTS: Final = (0.2, 30.0)

_SATURATION: Final = 1.2  # k1 of BM25: how soon a further mention adds nothing
_LENGTH: Final = 0.5  # b of BM25: how much less a mention in a long field weighs
_IMPACT_MAX: Final = 127


class Definition(msgspec.Struct, gc=False):
    """The members of an entry of `tools/list` that are indexed, of any type where a server may have got them wrong."""

    name: str
    title: object = None
    description: object = None
    inputSchema: object = None

    @property
    def sentence_and_rest(self) -> tuple[str, str]:
        """The first sentence of the description, and what follows it."""
        text = clip(self.description, TEXT_MAX_CHARS).strip()
        ends = [at for at in (text.find(". "), text.find("\n")) if at >= 0]
        return (text[: min(ends)], text[min(ends) :]) if ends else (text, "")


_decoder: Final = msgspec.json.Decoder(Definition)


def read_definition(data: bytes) -> Definition | None:
    """Returns what is read of an entry of `tools/list`; None if it is no JSON in UTF-8, or has no name."""
    try:
        return _decoder.decode(str(data, "utf-8"))  # members that are passed over are checked, too
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def clip(value: object, chars_max: int) -> str:
    """Returns the beginning of a text; nothing of any other value."""
    return value[:chars_max] if isinstance(value, str) else ""


def name_words(server: str, name: str) -> list[str]:
    """Returns the words of an exposed name without the alias of its server."""
    return split_words(name.removeprefix(f"{server}__")[:TEXT_MAX_CHARS], is_name=True)


def impacts_of(server: str, tool: Definition) -> dict[str, int]:
    """Returns the impact of each stem of a tool: doubled, and one more if the stem is in the name."""
    properties = tool.inputSchema.get("properties") if isinstance(tool.inputSchema, dict) else None
    parameters: list[str] = []
    texts: list[str] = []
    for key, value in list(properties.items())[:PARAMETERS_MAX] if isinstance(properties, dict) else ():
        parameters += split_words(key[:PARAMETER_MAX_CHARS], is_name=True)
        texts += split_words(clip(value.get("description"), PARAMETER_MAX_CHARS) if isinstance(value, dict) else "")
    name, alias = name_words(server, tool.name), split_words(server, is_name=True)
    sentence, rest = tool.sentence_and_rest
    fields = (
        (_NAME, name),
        (_ALIAS, [*alias, "".join(alias)] if len(alias) > 1 else alias),
        (_TITLE, split_words(clip(tool.title, TEXT_MAX_CHARS), is_name=True)),
        (_SENTENCE, split_words(sentence)),
        (_DESCRIPTION, split_words(rest)),
        (_PARAMETERS, parameters),
        (_PARAMETER_TEXTS, texts),
    )
    mentions: dict[str, float] = {}
    for (weight, usual), words in fields:
        each = weight / (1 - _LENGTH + _LENGTH * len(words) / usual)
        for word, count in Counter(words).items():
            if words is name or word not in STOP_WORDS:
                mentions[stem(word)] = mentions.get(stem(word), 0.0) + each * count
    in_name = set(map(stem, name))
    kept = sorted(mentions.items(), key=lambda item: (-item[1], item[0]))[:TERMS_MAX]
    return {
        term: 2 * max(1, round(_IMPACT_MAX * value / (_SATURATION + value))) + (term in in_name) for term, value in kept
    }
