"""Hints about variables that a server asks for, by the words of released servers."""

from __future__ import annotations

import pytest
import yaml
from isthmus.core.base.setting_names import KEYS, OPTIONS, OPTIONS_OF_SEVERAL, SettingNames
from isthmus.transports.stdio.missing_variables import hint_about

BRAVE = "Error: BRAVE_API_KEY environment variable is required"
SLACK = "Please set SLACK_BOT_TOKEN and SLACK_TEAM_ID environment variables"
ENV = {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("stderr", "ours", "expected"),
    [
        ([BRAVE], {"BRAVE_API_KEY": "s3cret"}, "BRAVE_API_KEY is set here, but not handed on: use --env BRAVE_API_KEY"),
        ([BRAVE], {}, "BRAVE_API_KEY is not set: set it, and hand it on: use --env BRAVE_API_KEY"),
        ([BRAVE], {"BRAVE_API_KEY": ""}, None),
        (
            [SLACK],
            {"SLACK_TEAM_ID": "s3cret", "SLACK_BOT_TOKEN": "s3cret"},
            "SLACK_BOT_TOKEN and SLACK_TEAM_ID are set here, but not handed on: use --env SLACK_BOT_TOKEN --env "
            "SLACK_TEAM_ID",
        ),
        (
            [SLACK],
            {},
            "SLACK_BOT_TOKEN and SLACK_TEAM_ID are not set: set them, and hand them on: use --env SLACK_BOT_TOKEN "
            "--env SLACK_TEAM_ID",
        ),
        (
            [SLACK],
            {"SLACK_TEAM_ID": "s3cret"},
            "SLACK_TEAM_ID is set here, but not handed on: use --env SLACK_TEAM_ID",
        ),
        (
            ["Error: A Brave API key is required via --brave-api-key, BRAVE_API_KEY, or --brave-api-key-file"],
            {},
            "BRAVE_API_KEY is not set: set it, and hand it on: use --env BRAVE_API_KEY",
        ),
        (
            ['  File "/srv/x.py", line 1, in <module>', '    key = os.environ["THING_URL"]', "KeyError: 'THING_URL'"],
            {},
            "THING_URL is not set: set it, and hand it on: use --env THING_URL",
        ),
        (  # pydantic-settings names its own field
            ["1 validation error for Settings", "openai_api_key", "  Field required [type=missing, input_value={}]"],
            {"OPENAI_API_KEY": "s3cret"},
            "OPENAI_API_KEY is set here, but not handed on: use --env OPENAI_API_KEY",
        ),
        (
            ["npm error code E401", "npm error Incorrect or missing password."],
            {"NPM_TOKEN": "s3cret", "UV_X": ""},
            "its registry may want what is in the environment; NPM_TOKEN is set here, but not handed on: use --env "
            "NPM_TOKEN",
        ),
        ([BRAVE + " and A_KEY, B_KEY, C_KEY"], {}, "BRAVE_API_KEY, A_KEY and B_KEY are not set: set them, and hand"),
        (["code: 'ERR_MODULE_NOT_FOUND'", "Error: required by environment ERR_X MODULE_NOT_FOUND"], {}, None),
        (["THING_KEY"], {"THING_KEY": "s3cret"}, None),
        (["listening", "please wait"], {"PLEASE_WAIT": "s3cret"}, None),
        ([], {}, None),
    ],
)
def test_a_variable_that_a_server_asked_for(stderr: list[str], ours: dict[str, str], expected: str | None) -> None:
    hint = hint_about(stderr, ENV | ours, ENV, OPTIONS)
    assert (hint or "").startswith(expected or "") and (hint is None) == (expected is None), hint
    assert "s3cret" not in (hint or "")


def test_a_variable_that_the_server_had_is_no_reason() -> None:
    assert hint_about([BRAVE], ENV | {"BRAVE_API_KEY": "wrong"}, ENV | {"BRAVE_API_KEY": ""}, OPTIONS) is None
    assert hint_about([BRAVE], ENV, ENV | {"BRAVE_API_KEY": "wrong"}, OPTIONS) is None


@pytest.mark.parametrize("names", [KEYS, OPTIONS_OF_SEVERAL])
def test_the_key_of_a_configuration_can_be_pasted(names: SettingNames) -> None:
    hint = hint_about([SLACK], {"SLACK_BOT_TOKEN": "1", "SLACK_TEAM_ID": "2"}, {}, names)
    pasted = yaml.safe_load((hint or "").partition("env: ")[2])
    assert pasted == {"SLACK_BOT_TOKEN": "${SLACK_BOT_TOKEN}", "SLACK_TEAM_ID": "${SLACK_TEAM_ID}"}
