"""Tests of the metrics of several workers on one page."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from isthmus.app.admin.metrics import exposition
from isthmus.app.workers.metrics import ENDING, gathered, merged, tell_metrics
from prometheus_client.parser import text_string_to_metric_families


def test_each_sample_has_the_label_of_its_worker() -> None:
    """A parser of Prometheus reads of the page what it reads of each worker, with a label."""
    own = exposition("1", (), (), 0.0)
    tricky = b'# HELP a_total A { brace.\n# TYPE a_total counter\na_total{b="}\\"{"} 1.0\na_total 2\n'
    parts = {"w1": own, "w2": own + tricky, "w3": None}
    found = list(text_string_to_metric_families(merged(parts).decode()))
    assert len({family.name for family in found}) == len(found), "each family stands once"
    for tag, part in parts.items():
        alone = list(text_string_to_metric_families((part or b"").decode()))
        expected = {(s.name, frozenset({**s.labels, "worker": tag}.items()), s.value) for f in alone for s in f.samples}
        seen = {
            (s.name, frozenset(s.labels.items()), s.value)
            for f in found
            for s in f.samples
            if s.labels["worker"] == tag and f.name != "isthmus_worker_answers"
        }
        assert seen == expected
    (answers,) = [family for family in found if family.name == "isthmus_worker_answers"]
    assert {sample.labels["worker"]: sample.value for sample in answers.samples} == {"w1": 1, "w2": 1, "w3": 0}


@pytest.mark.anyio
async def test_a_worker_that_is_gone_is_missing(tmp_path: Path) -> None:
    async def expose() -> bytes:
        return b"# HELP a A.\n# TYPE a gauge\na 1\n"

    gone = await anyio.create_unix_listener(tmp_path / f"w3{ENDING}")
    await gone.aclose()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            await tasks.start(tell_metrics, str(tmp_path), "w2", expose)
            page = await gathered(str(tmp_path), "w1", b"")
            tasks.cancel_scope.cancel()
    assert page.decode().splitlines()[2:] == [
        'a{worker="w2"} 1',
        "# HELP isthmus_worker_answers 1: the metrics of this worker are on the page; 0: they are missing.",
        "# TYPE isthmus_worker_answers gauge",
        'isthmus_worker_answers{worker="w1"} 1',
        'isthmus_worker_answers{worker="w2"} 1',
        'isthmus_worker_answers{worker="w3"} 0',
    ]
