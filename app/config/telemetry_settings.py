"""The shape of `telemetry`: what other programs learn of requests."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from .audit_settings import Audit
from .value_types import about


class Telemetry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What other programs learn of requests."""

    audit: Annotated[Audit | None, about("The record of who used what. null: none.")] = None
