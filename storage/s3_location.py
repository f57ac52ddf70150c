"""Locations in S3, as `s3://bucket/prefix?endpoint=https://host:9000&region=eu-central-1`.

Credentials do not stand in a location. They come from the environment, or from the machine's role.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

PREFIX_SIZE_MAX: Final = 512
"""Characters of a prefix. S3 allows names of 1,024 bytes, of which a key and what stands around it take up to 181."""

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX: Final = re.compile(r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]+(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]+)*")
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_DIRECTORY_BUCKET: Final = "--x-s3"
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


@dataclass(frozen=True, slots=True)
class S3Location:
    """A bucket, and the folder in it.

    Attributes:
        prefix: segments joined by `/`; the empty string stands for the whole bucket.
        endpoint: the server's URL; None: that of the environment, or of AWS.
        region: None: that of the environment, or `us-east-1`.
    """

    bucket: str
    prefix: str
    endpoint: str | None
    region: str | None

    def effective_endpoint(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """Returns the server's URL; None stands for that of AWS."""
        if self.endpoint is not None:
            return self.endpoint
        return next((environment[name] for name in _ENDPOINTS if environment.get(name)), None)


def parse_location(url: str) -> S3Location:
    """Returns the location that a URL names.

    Raises:
        ValueError: it names none. The message never repeats credentials.
    """
    try:
        parts = urlsplit(url)
        has_port = parts.port is not None
    except ValueError:
        raise ValueError("got a URL that cannot be read, expected s3://BUCKET/PREFIX") from None
    if parts.scheme != "s3":
        raise ValueError(f"got a URL that begins with {parts.scheme!r}, expected s3://BUCKET/PREFIX")
    if "@" in parts.netloc:
        raise ValueError(
            "got credentials in the URL, expected s3://BUCKET/PREFIX:"
            " set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
        )
    if has_port:
        raise ValueError("got a port after the bucket, expected s3://BUCKET/PREFIX?endpoint=https://HOST:PORT")
    if _BUCKET.fullmatch(parts.netloc) is None:
        raise ValueError(f"got the bucket {parts.netloc[:63]!r}, expected 3 to 63 of a-z 0-9 . -")
    if parts.netloc.endswith(_DIRECTORY_BUCKET):
        raise ValueError(
            f"got the directory bucket {parts.netloc!r}, whose listings have no order: use a general purpose bucket"
        )
    prefix = parts.path.strip("/")
    if prefix and (len(prefix) > PREFIX_SIZE_MAX or _PREFIX.fullmatch(prefix) is None):
        raise ValueError(
            f"got the prefix {prefix[:PREFIX_SIZE_MAX]!r}, expected at most {PREFIX_SIZE_MAX} characters:"
            " segments of A-Z a-z 0-9 . _ - joined by /"
        )
    if parts.fragment:
        raise ValueError("got a fragment (#), expected s3://BUCKET/PREFIX?endpoint=…&region=…")
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in ("endpoint", "region"):
            raise ValueError(f"got the option {name[:40]!r}, expected endpoint or region")
        if name in options:
            raise ValueError(f"got the option {name} twice, expected it once")
        options[name] = value
    endpoint, region = options.get("endpoint"), options.get("region")
    if region is not None and _REGION.fullmatch(region) is None:
        raise ValueError(f"got the region {region[:64]!r}, expected a name such as eu-central-1")
    return S3Location(parts.netloc, prefix, None if endpoint is None else _checked_endpoint(endpoint), region)


def _checked_endpoint(endpoint: str) -> str:
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise ValueError("got an endpoint that is no URL, expected https://HOST or https://HOST:PORT")
    if "@" in parts.netloc:
        raise ValueError(
            "got credentials in the endpoint, expected https://HOST:"
            " set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"
        )
    if parts.query or parts.fragment:
        raise ValueError("got an endpoint with ? or #, expected https://HOST or https://HOST:PORT")
    return endpoint.rstrip("/")
