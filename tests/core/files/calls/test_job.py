"""Tests of the output rules of a call: the defaults."""

from __future__ import annotations

from isthmus.core.base.plan import AutoFiles, LocatorMode, OutputLocator
from isthmus.core.files.calls.job import OutputRule


def test_an_output_rule_does_nothing_by_default() -> None:
    """An output is neither required nor moved, rewritten nor put into the result. The modes are those of its
    locator."""
    rule = OutputRule(AutoFiles(), True)
    assert (rule.output_path_argument, rule.inline_text_bytes, rule.modes) == (None, 0, None)
    assert not (rule.allow_raw_output or rule.required or rule.moves or rule.rewrite_text)
    assert (
        OutputRule(OutputLocator(mode=(LocatorMode.CHANGED,)), False).modes
        == OutputLocator(mode=(LocatorMode.CHANGED,)).modes
    )
