"""Tests of locations in S3, and of what stands in their way before any request."""

from __future__ import annotations

import sys

import pytest
from each_row import each_row
from isthmus.storage.interface import StorageError
from isthmus.storage.s3_location import PREFIX_SIZE_MAX, S3Location, parse_location
from isthmus.storage.s3_objects import S3Objects, _reason

GOOD = {
    "s3://bucket": S3Location("bucket", "", None, None),
    "s3://bucket/": S3Location("bucket", "", None, None),
    "s3://my.bucket-1/a/b.c/": S3Location("my.bucket-1", "a/b.c", None, None),
    "s3://bucket/p?region=eu-central-1": S3Location("bucket", "p", None, "eu-central-1"),
    "s3://bucket?endpoint=http://127.0.0.1:9000/&region=auto": S3Location(
        "bucket", "", "http://127.0.0.1:9000", "auto"
    ),
    "s3://bucket?endpoint=https%3A%2F%2Fhost%2Fs3": S3Location("bucket", "", "https://host/s3", None),
}
BAD = {
    "": "begins with ''",
    "https://bucket/p": "begins with 'https', expected s3://BUCKET/PREFIX",
    "s3:///p": "got the bucket ''",
    "s3://ab": "expected 3 to 63",
    "s3://Bucket": "got the bucket 'Bucket'",
    "s3://bucket:9000": "got a port after the bucket",
    "s3://bucket:port": "cannot be read",
    "s3://[": "cannot be read",
    "s3://key:hidden@bucket": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "s3://bucket--use1-az4--x-s3": "directory bucket",
    "s3://bucket/a//b": "got the prefix 'a//b'",
    "s3://bucket/../b": "got the prefix",
    "s3://bucket/a b": "got the prefix",
    "s3://bucket/" + "a" * (PREFIX_SIZE_MAX + 1): "expected at most 512 characters",
    "s3://bucket/p#f": "fragment",
    "s3://bucket/p?endpont=https://h": "got the option 'endpont', expected endpoint or region",
    "s3://bucket?region=a&region=b": "got the option region twice",
    "s3://bucket?region=": "got the region ''",
    "s3://bucket?endpoint=": "no URL",
    "s3://bucket?endpoint=host:9000": "no URL, expected https://HOST",
    "s3://bucket?endpoint=https://host:port": "no URL",
    "s3://bucket?endpoint=https://key:hidden@host": "credentials in the endpoint",
    "s3://bucket?endpoint=https://host%3Fa=hidden": "endpoint with ?",
}
ANSWERS = {
    "status code: 403 Forbidden: <Error><Code>AccessDenied</Code><Message>hidden</Message>": (
        "AccessDenied",
        "it answers AccessDenied; allow GetObject, PutObject, DeleteObject and ListBucket",
    ),
    "non-2xx status code: 507 Insufficient Storage: hidden": ("507", "it answers 507"),
    "Error performing PUT http://169.254.169.254/latest/api/token": (
        "",
        "it was asked without credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where the machine"
        " has a role",
    ),
    "HttpError { kind: Connect, https://hidden }": ("", "there is no connection to it"),
    "reqwest::Error { kind: Decode, source: TimedOut }": ("", "it did not answer in time"),
    "hidden": ("", "the request failed"),
}


@each_row("url", GOOD)
def test_a_location_is_read(url: str) -> None:
    assert parse_location(url) == GOOD[url]


@each_row("url", BAD)
def test_what_is_no_location_is_refused(url: str) -> None:
    """The message says what was seen and what is right, and no credentials."""
    with pytest.raises(ValueError) as raised:
        parse_location(url)
    assert BAD[url] in str(raised.value)
    assert "hidden" not in str(raised.value)


@each_row("text", ANSWERS)
def test_answers_are_named_without_their_text(text: str) -> None:
    assert _reason(text) == ANSWERS[text]


def test_the_endpoint_of_the_environment_counts_if_the_location_has_none() -> None:
    environment = {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b"}
    assert parse_location("s3://bucket").effective_endpoint(environment) == "http://b"
    assert parse_location("s3://bucket?endpoint=http://c").effective_endpoint(environment) == "http://c"
    assert parse_location("s3://bucket").effective_endpoint({}) is None


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(StorageError, match=r"pip install 'isthmus\[s3\]'"):
        S3Objects(parse_location("s3://bucket"))
