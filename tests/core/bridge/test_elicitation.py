"""Forms of elicitation for clients of 2025-06-18, field by field: how a field is shown, and how its answer is put
together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_row import each_row
from isthmus.core.base.errors import INVALID_PARAMS, RemoteProtocolError
from isthmus.core.bridge.elicitation import full_content, plain_form

TITLED = [{"const": "x", "title": "The X"}, {"const": "y"}]
MANY = {"type": "array", "items": {"enum": ["x", "y"]}}


def form(fields: dict[str, Any], **rest: Any) -> bytes:
    return json.dumps({"type": "object", "properties": fields, **rest}).encode()


def flag(title: str, about: str, **rest: Any) -> dict[str, Any]:
    return {"type": "boolean", "title": title, "description": about, **rest}


@pytest.mark.parametrize(
    ("field", "shown"),
    [
        ({"type": "string"}, {"type": "string"}),
        ({"type": "string", "default": "x", "title": "T"}, {"type": "string", "title": "T"}),
        ({"type": "number", "default": 1}, {"type": "number"}),
        ({"default": True}, {}),
        ({"type": "boolean", "default": True}, {"type": "boolean", "default": True}),
        ({"type": "string", "enum": ["x"], "default": "x"}, {"type": "string", "enum": ["x"]}),
        (
            {"type": "string", "oneOf": TITLED, "default": "x"},
            {"type": "string", "enum": ["x", "y"], "enumNames": ["The X", "y"]},
        ),
        ({"oneOf": TITLED, "enum": ["z"]}, {"enum": ["x", "y"], "enumNames": ["The X", "y"]}),
        ({"oneOf": [{"title": "No const"}]}, {"enum": [""], "enumNames": ["No const"]}),
        ({"oneOf": [{}]}, {"enum": [""], "enumNames": [""]}),
        ({"oneOf": []}, {"oneOf": []}),
        (5, 5),
        ({"type": "array", "items": {}}, {"type": "array", "items": {}}),
        ({"type": "array"}, {"type": "array"}),
        ({"type": "string", "items": {"enum": ["x"]}}, {"type": "string", "items": {"enum": ["x"]}}),
    ],
)
def test_a_field_that_stays_one_field(field: Any, shown: Any) -> None:
    """Defaults are kept for booleans only, titled choices become an `enum` with names, and the rest stays as it was."""
    found = plain_form(form({"f": field, "g": {"type": "string"}}, required=["f"]))
    assert json.loads(found) == json.loads(form({"f": shown, "g": {"type": "string"}}, required=["f"]))


@pytest.mark.parametrize(
    ("field", "flags"),
    [
        (MANY, {"f.1": flag("x", "f"), "f.2": flag("y", "f")}),
        ({**MANY, "title": "T"}, {"f.1": flag("x", "T"), "f.2": flag("y", "T")}),
        ({**MANY, "title": "T", "description": "D"}, {"f.1": flag("x", "D"), "f.2": flag("y", "D")}),
        ({**MANY, "default": ["y"]}, {"f.1": flag("x", "f"), "f.2": flag("y", "f", default=True)}),
        ({**MANY, "default": []}, {"f.1": flag("x", "f"), "f.2": flag("y", "f")}),
        ({"type": "array", "items": {"anyOf": TITLED}}, {"f.1": flag("The X", "f"), "f.2": flag("y", "f")}),
        (
            {"type": "array", "items": {"anyOf": TITLED, "enum": ["z"]}, "default": ["x"]},
            {"f.1": flag("The X", "f", default=True), "f.2": flag("y", "f")},
        ),
    ],
)
def test_a_choice_of_many_is_a_yes_or_no_for_each(field: dict[str, Any], flags: dict[str, Any]) -> None:
    """The flags stand in the place of the field, and none of them is required."""
    before, after = {"type": "string"}, {"type": "number"}
    raw = form({"e": before, "f": field, "g": after}, required=["e", "f", "g"])
    found = json.loads(plain_form(raw))
    assert found == {
        "type": "object",
        "properties": {"e": before, **flags, "g": after},
        "required": ["e", "g"],
    }
    assert list(found["properties"]) == ["e", *flags, "g"]


def test_a_key_that_is_taken_is_not_given_twice() -> None:
    fields = {"f": MANY, "f.1": {"type": "string"}, "f.2_": {"type": "string"}, "f.2": {"type": "string"}}
    shown = json.loads(plain_form(form(fields)))["properties"]
    assert list(shown) == ["f.1_", "f.2__", "f.1", "f.2_", "f.2"]
    content = {"f.1_": False, "f.2__": True, "f.1": "a", "f.2": "b", "f.2_": "c"}
    found = json.loads(full_content(form(fields), json.dumps(content).encode()))
    assert found == {"f": ["y"], "f.1": "a", "f.2": "b", "f.2_": "c"}


@pytest.mark.parametrize("raw", [b"{}", b'{"properties":5}', b'{"properties":null}', b'{ "properties": [] }'])
def test_a_form_without_fields_is_left_alone(raw: bytes) -> None:
    assert plain_form(raw) == raw
    assert full_content(raw, b'{ "a":1 }') == b'{ "a":1 }'


def test_content_without_choices_is_left_alone() -> None:
    assert full_content(form({"a": {"type": "string"}}), b'{ "a":"x","b":1 }') == b'{ "a":"x","b":1 }'


@pytest.mark.parametrize("is_required", [True, False])
@pytest.mark.parametrize(
    ("marks", "chosen"),
    [
        ({"f.1": True, "f.2": True}, ["x", "y"]),
        ({"f.1": True, "f.2": False}, ["x"]),
        ({"f.2": True}, ["y"]),
        ({"f.1": None, "f.2": True}, ["y"]),
        ({"f.1": False, "f.2": False}, []),
        ({"f.1": False}, []),
        ({}, None),
        ({"f.1": None}, None),
        ({"f": ["z"]}, None),
    ],
)
def test_the_chosen_options_are_put_together(
    marks: dict[str, Any], chosen: list[str] | None, is_required: bool
) -> None:
    """No chosen option is an empty choice if the client sent a flag or the field is required; otherwise the field is
    left out. A value under the field's own name is no answer to the shown form."""
    raw = form({"e": {"type": "string"}, "f": MANY}, **({"required": ["f"]} if is_required else {}))
    found = json.loads(full_content(raw, json.dumps({"e": "a", **marks}).encode()))
    if chosen is None and is_required:
        chosen = []
    assert found == {"e": "a"} | ({} if chosen is None else {"f": chosen})


@pytest.mark.parametrize("mark", [1, "true", [], {}])
def test_an_option_is_yes_or_no(mark: Any) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        full_content(form({"f": MANY}), json.dumps({"f.1": True, "f.2": mark}).encode())
    assert caught.value.message == "got an option of 'f' that is no boolean, expected one"
    assert caught.value.rpc_code == INVALID_PARAMS


@each_row("is_required", [True, False])
@each_row("least", [None, 0, 1, 2, 1.0, "1"])
@each_row("most", [None, 0, 1, 2])
@each_row("count", [0, 1, 2, 3])
def test_the_number_of_chosen_options_is_bounded(least: Any, most: int | None, count: int, is_required: bool) -> None:
    """The bounds are inclusive. An optional field with a least number above zero is left out if none is chosen."""
    options = ["x", "y", "z"]
    field = {"type": "array", "items": {"enum": options}}
    field |= {} if least is None else {"minItems": least}
    field |= {} if most is None else {"maxItems": most}
    raw = form({"f": field}, **({"required": ["f"]} if is_required else {}))
    content = json.dumps({f"f.{n + 1}": n < count for n in range(3)}).encode()
    bound = int(least) if isinstance(least, int | float) else 0
    if not count and bound and not is_required:
        assert json.loads(full_content(raw, content)) == {}
    elif count < bound or (most is not None and count > most):
        with pytest.raises(RemoteProtocolError) as caught:
            full_content(raw, content)
        wanted = f"from {bound} to {'any number' if most is None else most}"
        assert caught.value.message == f"got {count} options of 'f' chosen, expected {wanted}"
        assert caught.value.rpc_code == INVALID_PARAMS
    else:
        assert json.loads(full_content(raw, content)) == {"f": options[:count]}


def test_an_option_may_be_any_value() -> None:
    field = {"type": "array", "items": {"anyOf": [{"const": 1, "title": "One"}, {"title": "Nothing"}, {"const": None}]}}
    shown = json.loads(plain_form(form({"f": field})))["properties"]
    assert [flag["title"] for flag in shown.values()] == ["One", "Nothing", None]
    found = full_content(form({"f": field}), b'{"f.1":true,"f.2":true,"f.3":true}')
    assert json.loads(found) == {"f": [1, "", None]}
