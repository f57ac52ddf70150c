"""`WWW-Authenticate`: what is a challenge, and that nothing else is one."""

from __future__ import annotations

from each_row import each_row
from hypothesis import given
from hypothesis import strategies as st
from isthmus.core.logins.challenges import (
    PARAMETERS_MAX,
    VALUE_MAX_CHARS,
    BearerChallenge,
    Challenge,
    find_bearer,
    format_challenge,
    parse_challenges,
    split_scope,
)

TOKEN_CHARS = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
TEXT_CHARS = "\t " + "".join(chr(code) for code in (*range(0x21, 0x7F), *range(0x80, 0x100)))

tokens = st.text(TOKEN_CHARS, min_size=1, max_size=10)
with_parameters = st.builds(Challenge, tokens, st.dictionaries(tokens, st.text(TEXT_CHARS, max_size=20), max_size=4))
with_token68 = st.builds(
    lambda scheme, text, end: Challenge(scheme, token68=text + end),
    tokens,
    st.text("abcXYZ012-._~+/", min_size=1, max_size=12),
    st.sampled_from(["", "=", "=="]),
)


@each_row(
    ("value", "expected"),
    [
        ("", []),
        ("Bearer", [Challenge("bearer")]),
        ('Bearer realm="a"', [Challenge("bearer", {"realm": "a"})]),
        ("BEARER Realm=a", [Challenge("bearer", {"realm": "a"})]),
        ('Bearer realm = "a" ,\t scope="b c"', [Challenge("bearer", {"realm": "a", "scope": "b c"})]),
        ('Bearer realm="say \\"a\\", b\\\\"', [Challenge("bearer", {"realm": 'say "a", b\\'})]),
        ('Bearer realm=""', [Challenge("bearer", {"realm": ""})]),
        ("Negotiate", [Challenge("negotiate")]),
        ("Negotiate YWJj==", [Challenge("negotiate", token68="YWJj==")]),
        ("Negotiate YWJj=, Basic", [Challenge("negotiate", token68="YWJj="), Challenge("basic")]),
        ("Basic, Bearer, ,", [Challenge("basic"), Challenge("bearer")]),
        (
            'Basic realm="a, Bearer", charset=UTF-8, Bearer scope="x", Digest a=1',
            [
                Challenge("basic", {"realm": "a, Bearer", "charset": "UTF-8"}),
                Challenge("bearer", {"scope": "x"}),
                Challenge("digest", {"a": "1"}),
            ],
        ),
        (
            "Bearer resource_metadata=https://a.example/x?y=z, error=invalid_token",
            [Challenge("bearer", {"resource_metadata": "https://a.example/x?y=z", "error": "invalid_token"})],
        ),
        # What cannot be told apart gives nothing.
        ('Bearer realm="a', []),
        ('Bearer realm="a"b', []),
        ('Bearer realm="a" scope="b"', []),
        ("Bearer realm=", [Challenge("bearer", token68="realm=")]),
        ("Bearer realm=,", [Challenge("bearer", token68="realm=")]),
        ("Bearer a=1, a=2", []),
        ("Bearer a=1, A=2", []),
        ("Bearer a b", []),
        ("Bearer a b=1", []),
        ('=, Bearer realm="a"', []),
        ('"Bearer"', []),
        ("Bearer realm=é", []),
        ("\x00", []),
    ],
)
def test_parse(value: str, expected: list[Challenge]) -> None:
    assert parse_challenges(value) == expected


@given(st.lists(with_parameters | with_token68, max_size=4))
def test_what_is_written_is_read(challenges: list[Challenge]) -> None:
    """The parser is the inverse of the writer, also for several challenges in one value."""
    assert parse_challenges(", ".join(map(format_challenge, challenges))) == challenges


@given(st.text() | st.text('Bearer=", \\\tax'))
def test_any_text_gives_challenges_or_none(value: str) -> None:
    """Any text is read without an error, and all that is read could have been written."""
    for challenge in parse_challenges(value):
        assert challenge.scheme == challenge.scheme.lower()
        assert not (challenge.token68 and challenge.parameters)
        assert parse_challenges(format_challenge(challenge)) == [challenge]


def test_at_the_longest_value_nothing_is_read() -> None:
    value = 'Bearer realm="' + "a" * (VALUE_MAX_CHARS - len('Bearer realm=""')) + '"'
    assert len(parse_challenges(value)) == 1
    assert parse_challenges(value + ",") == []


def test_at_the_most_parameters_nothing_is_read() -> None:
    pairs = [f"p{number}=1" for number in range(PARAMETERS_MAX)]
    assert len(parse_challenges("Bearer " + ", ".join(pairs))) == 1
    assert parse_challenges("Bearer " + ", ".join([*pairs, "more=1"])) == []


def test_the_bearer_challenge_is_found_among_others() -> None:
    values = ["Basic", 'Digest a="b", Bearer resource_metadata="https://a/b", scope="x y x", error="e"', "Bearer"]
    assert find_bearer(values) == BearerChallenge("https://a/b", ("x", "y"), "e")
    assert find_bearer(["Bearer"]) == BearerChallenge()
    assert find_bearer(['Bearer scope=""']) == BearerChallenge(scope=())
    assert find_bearer(["Basic", 'Bearer realm="']) is None
    assert find_bearer([]) is None


def test_scopes_are_split_at_spaces() -> None:
    assert split_scope(' a  b:c/d a "e" f\\g é ') == ("a", "b:c/d")
