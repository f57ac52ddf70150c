"""Tests of the settings for pins, cleaning and other names and texts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from isthmus.app.base.errors import ConfigError
from isthmus.app.config.load import loads
from isthmus.app.config.lock_file import pin_rules, read_lock, write_lock
from isthmus.app.config.plan import to_plan
from isthmus.app.config.settings import Settings
from isthmus.core.base.governance import Cleaning, Override, Pinned, PinRules, Shown

A = "servers: [{id: a, upstream: {command: [x]}%s}]\n"


def read(text: str) -> Settings:
    return loads(text, "yaml", "/etc", {"MODE": "block", "COUNT": "300"})


def test_the_lock_is_beside_the_configuration() -> None:
    assert read(A % "").pins.file == "/etc/isthmus.lock"
    assert read(A % "" + "pins: {file: locks/a.toml, mode: '${MODE}'}").pins.file == "/etc/locks/a.toml"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("", Shown()),
        ("descriptions: keep", Shown()),
        ("descriptions: first-sentence", Shown(first_sentence=True)),
        ("descriptions: 300", Shown(description_max_chars=300)),
        ("descriptions: '${COUNT}'", Shown(description_max_chars=300)),
        (
            "overrides: {t: {rename: u, title: T, description: D}, v: {title: V}}",
            Shown(
                overrides=(
                    Override(tool="t", rename="u", title="T", description="D"),
                    Override(tool="v", title="V"),
                )
            ),
        ),
    ],
)
def test_tools_are_shown_as_the_settings_say(given: str, shown: Shown) -> None:
    settings = read(A % f", tools: {{exclude: [x], {given}}}" + "clean: {mode: clean}")
    [server] = to_plan(settings, b"k" * 16, "/", "").servers
    assert server.shown == shown
    assert server.clean is Cleaning.CLEAN
    assert server.tools.exclude == ("x",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (A % ", tools: {descriptions: short}", 'got "short", expected one of keep, first-sentence, or a whole number'),
        (A % ", tools: {descriptions: 0}", "got 0, expected one of keep, first-sentence, or a whole number"),
        (A % ", tools: {descriptions: '${NONE}'}", "the environment variable NONE is not set; set it"),
        (A % ", tools: {overrides: {t: {rename: a b}}}", 'tools.overrides.t.rename: got "a b", expected 1 to 128 lett'),
        (A % ", tools: {overrides: {t: {rename: u}, v: {rename: u}}}", 'overrides.v.rename: got "u", expected a name'),
        (A % ", tools: {overrides: {'': {title: u}}}", "expected the name of a tool, whole"),
        (A % ", tools: {overrides: {t: {hide: true}}}", "unknown key, expected one of rename, title, description"),
        (A % ", prompts: {overrides: {}}", "servers[0].prompts.overrides: unknown key"),
        (A % "" + "pins: {ignore: [icons]}", 'pins.ignore[0]: got "icons", expected one of title, description'),
        (A % "" + "pins: {ignore: [b/title]}", "expected the id of a server before the slash: a"),
        (A % "" + "pins: {file: ~/x}", 'pins.file: got "~/x", expected an absolute path'),
        (A % "" + "pins: {mode: strict}", "expected one of off, warn, block"),
        (A % "" + "clean: {mode: on}", "expected one of off, clean, block"),
        (
            "servers: [{id: a, inspect: false, upstream: {url: 'http://h'}, tools: {descriptions: 5}}]",
            "servers[0].tools: got overrides or descriptions, expected none: with inspect: false",
        ),
    ],
)
def test_a_wrong_setting_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert said in caught.value.message


LOCK = {"a": (Pinned("tools", "t", (("title", '"T"'),)),), "gone": ()}


def settings_in(folder: Path, **pins: object) -> Settings:
    settings = read(A % "")
    return msgspec.structs.replace(
        settings, pins=msgspec.structs.replace(settings.pins, file=str(folder / "isthmus.lock"), **pins)
    )


@pytest.mark.parametrize("mode", [None, "warn", "block", "off"])
def test_a_lock_is_read_unless_pins_are_off(tmp_path: Path, mode: str | None) -> None:
    write_lock(str(tmp_path / "isthmus.lock"), LOCK)
    found = pin_rules(settings_in(tmp_path, mode=mode, new="hide", ignore=("title", "b/description", "a/arguments")))
    rules = PinRules(blocks=mode == "block", hides_new=True, entries=LOCK["a"], ignore=("title", "arguments"))
    assert found == ({} if mode == "off" else {"a": rules})


def test_there_are_no_pins_without_a_lock(tmp_path: Path) -> None:
    assert pin_rules(settings_in(tmp_path)) == pin_rules(settings_in(tmp_path, mode="warn")) == {}
    for pins in ({"mode": "block"}, {"mode": "warn", "new": "hide"}):
        with pytest.raises(ConfigError, match="run `isthmus pin`"):
            pin_rules(settings_in(tmp_path, **pins))


def test_a_lock_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "isthmus.lock"
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="Nothing is served by a lock that cannot be read"):
        read_lock(str(path))
    path.unlink()
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot be read: "):
        read_lock(str(path))
    with pytest.raises(ConfigError, match="cannot be written: "):
        write_lock(str(path), LOCK)
    assert list(tmp_path.iterdir()) == [path]
