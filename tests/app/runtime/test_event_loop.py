"""Tests of the choice of the event loop: the one that the environment names, or the best one available."""

from __future__ import annotations

import importlib.util

import pytest
from isthmus.app.base.errors import ConfigError, StartError
from isthmus.app.config.settings import Core
from isthmus.app.runtime.event_loop import drive_of, loop_of
from isthmus.transports.base.driver import Drive


def test_protocols_move_bytes_unless_somebody_says_otherwise() -> None:
    assert drive_of(Core(), {}) == Drive(protocols=True, only_h11=False)
    assert drive_of(Core(driver="anyio", http="h11"), {}) == Drive(protocols=False, only_h11=True)
    assert drive_of(Core(driver="anyio"), {"ISTHMUS_DRIVER": "protocols"}).protocols
    assert not drive_of(Core(), {"ISTHMUS_DRIVER": "anyio"}).protocols


def test_the_event_loop_is_the_fastest_that_is_there_or_the_one_named() -> None:
    has_uvloop = importlib.util.find_spec("uvloop") is not None
    assert loop_of({}) == {"backend": "asyncio", "backend_options": {"use_uvloop": has_uvloop}}
    assert loop_of({"ISTHMUS_LOOP": "asyncio"})["backend_options"] == {"use_uvloop": False}
    assert loop_of({"ISTHMUS_LOOP": "trio"}) == {"backend": "trio"}


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("ISTHMUS_LOOP", "ISTHMUS_LOOP is 'gevent', expected asyncio, uvloop or trio"),
        ("ISTHMUS_DRIVER", "ISTHMUS_DRIVER is 'gevent', expected protocols or anyio"),
    ],
)
def test_an_unknown_driver_or_loop_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loop_of({name: "gevent"})
        drive_of(Core(), {name: "gevent"})
    assert str(raised.value) == complaint


def test_a_missing_event_loop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isthmus.app.runtime.event_loop.find_spec", lambda name: None)
    with pytest.raises(
        StartError, match=r"ISTHMUS_LOOP is trio, which is not installed: pip install 'isthmus\[trio\]'"
    ):
        loop_of({"ISTHMUS_LOOP": "trio"})
    assert loop_of({})["backend_options"] == {"use_uvloop": False}
