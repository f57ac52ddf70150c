"""How the output of a call is dealt with, where nothing more is said of it."""

from __future__ import annotations

from isthmus.core.base.plan import AutoFiles, LocatorMode, OutputLocator
from isthmus.core.files.calls.job import Way


def test_nothing_is_done_with_an_output_that_was_not_said() -> None:
    """It is neither required nor moved, rewritten nor put into the result; and all modes are those of its rules."""
    way = Way(AutoFiles(), True)
    assert (way.output_path_argument, way.inline_text_bytes, way.modes) == (None, 0, None)
    assert not (way.allow_raw_output or way.required or way.moves or way.rewrite_text)
    assert (
        Way(OutputLocator(mode=(LocatorMode.CHANGED,)), False).modes == OutputLocator(mode=(LocatorMode.CHANGED,)).modes
    )
