"""Tests of the metrics of several workers on one page."""

from __future__ import annotations

from isthmus.app.admin.metrics import exposition
from isthmus.app.telemetry.counters import Counters
from isthmus.app.telemetry.histogram import STEPS_S, Histogram
from isthmus.app.telemetry.measurements import Measurements
from isthmus.app.telemetry.store_times import StoreTimes
from isthmus.app.workers.metrics import merged_metrics
from isthmus.core.base.plan import Profile
from isthmus.core.base.storage import Forget
from prometheus_client.parser import text_string_to_metric_families


def test_each_sample_has_the_label_of_its_worker() -> None:
    """A parser of Prometheus reads of the page what it reads of each worker, with a label."""
    measurements = Measurements(Counters((), (Profile("all", ()),)), StoreTimes(), Histogram(STEPS_S))
    measurements.stores.note(Forget("k"), 0.002, False)
    own = exposition("1", (), (), 0.0, measurements=measurements)
    assert b"isthmus_store_duration_seconds_bucket" in own and b"process_cpu_seconds_total" in own
    tricky = b'# HELP a_total A { brace.\n# TYPE a_total counter\na_total{b="}\\"{"} 1.0\na_total 2\n'
    parts = {"w1": own, "w2": own + tricky, "w3": None}
    found = list(text_string_to_metric_families(merged_metrics(parts).decode()))
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
