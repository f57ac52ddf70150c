"""The shape of `telemetry`: records of requests for other programs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from .audit_settings import Audit
from .value_types import about


class Telemetry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Records of requests for other programs."""

    audit: Annotated[Audit | None, about("The record of who used what. null: none.")] = None
