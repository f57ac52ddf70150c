"""The words of names, prose and queries, in the form in which the index keeps them."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from ..base.lazy_regex import Pattern

WORD_MAX_CHARS: Final = 40
"""The characters of a word that are read; the longest words of prose have thirty. At it: the rest of the word is left
out."""

_STOPPED: Final = (
    "a about above after again all also am an and any are as at back be because been before being below but by can "
    "could did do does doing done down each for from had has have having he her here him his how i if in into is it "
    "its just kind let like ll may me might more most much must my need no nor not now of off on one only onto or "
    "other our out over own please re s shall she should so some something such t tell than that the their them then "
    "there these they thing this those through to too until up use using ve very via want was we were what when where "
    "which while who whom whose why will with within without would you your"
)
STOP_WORDS: Final = frozenset(_STOPPED.split())
"""Words of English that say nothing on the choice of a tool. A query of nothing else is searched for as it is."""

_FORMS: Final = (
    "began begin begun begin bought buy broke break broken break brought bring built build children child chose choose "
    "chosen choose drawn draw drew draw found find gave give given give got get hidden hide indices index kept keep "
    "lost lose made make met meet paid pay people person ran run said say saw see seen see sent send shown show "
    "sold sell spent spend spoke speak spoken speak taken take thought think took take went go written write "
    "wrote write"
)
_IRREGULAR: Final = dict(zip(_FORMS.split()[::2], _FORMS.split()[1::2], strict=True))

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_RUN: Final = Pattern(r"[^\W_\u0e00-\U0010ffff]+|[^\W_\x00-\u0dff]+")
_FIRST_UNSPACED: Final = "\u0e00"


def split_words(text: str, *, is_name: bool = False) -> list[str]:
    """Returns the words of `text` in their order, folded: without case and accents, and without whole numbers.

    Scripts from Thai on, most of which put no spaces between words, give pairs of characters. In a name each hump is a
    word. In prose a word of two humps is a brand as a rule, and stays whole.
    """
    if not text.isascii():
        marks = unicodedata.normalize("NFKD", text)[: 4 * len(text)]  # most give three at most, and some eighteen
        text = unicodedata.normalize("NFC", "".join(each for each in marks if not unicodedata.combining(each)))
    words = []
    for run in (found[0] for found in _RUN.finditer(text)):
        if run >= _FIRST_UNSPACED:
            pairs = [run[at : at + 2] for at in range(max(1, len(run) - 1))]
            words += [pair for pair in pairs if not pair.isdigit()]
            continue
        parts = [run] if run.islower() else _HUMP.split(run)
        parts = [run] if len(parts) == 2 and not is_name else parts
        words += [part.casefold()[:WORD_MAX_CHARS] for part in parts if not part.isdigit()]
    return words


def stem(word: str) -> str:
    """Returns the stem of an English word: without the endings of plurals, of verbs, and `-ion`. A word of another
    language may lose such an ending, too, in the same way wherever it stands."""
    word = _IRREGULAR.get(word, word)
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) > 2 and rest[-1] != "e" and any(vowel in rest for vowel in "aeiouy"):
            is_doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "aeiousl"
            return rest[:-1] if is_doubled else rest
    if word.endswith(("tion", "sion")) and len(word) > 6:
        return word[:-3]
    return word[:-1] if word.endswith("e") and len(word) > 3 else word
