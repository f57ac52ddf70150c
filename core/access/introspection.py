"""Questions to an issuer about a token (RFC 7662)."""

from __future__ import annotations

from typing import Final

from .claims import Accepted, ClaimRules
from .issuer_answers import IntrospectionWanted, Refused, Reply
from .issuer_settings import IntrospectionSettings
from .json_web_tokens import read_object
from .public_keys import DOCUMENT_MAX_BYTES

INTROSPECTION_KEPT_S: Final = 60.0
"""Seconds for which the answer holds that a token is active, at most: a token that was revoked works for so long."""
ANSWER_MAX_BYTES: Final = DOCUMENT_MAX_BYTES


def introspection_request(issuer: str, url: str, settings: IntrospectionSettings, token: str) -> IntrospectionWanted:
    return IntrospectionWanted(issuer, url, token, settings.client_id, settings.client_secret)


def read_introspection(reply: Reply, issuer: str, rules: ClaimRules, now: float) -> Accepted | Refused | str:
    """Returns what the issuer says of a token; or a text that says why it says nothing."""
    if reply.status != 200:
        hint = ": are client_id and client_secret right?" if reply.status in (401, 403) else ""
        return f"the introspection endpoint answered {reply.status}{hint}"
    if len(reply.body) > ANSWER_MAX_BYTES:
        return f"the introspection answer has more than {ANSWER_MAX_BYTES} bytes"
    claims = read_object(reply.body)
    if isinstance(claims, str):
        return f"the introspection answer {claims}"
    active = claims.get("active")
    if not isinstance(active, bool):
        return "the introspection answer does not say whether the token is active"
    if not active:
        return Refused("its issuer says that it is not active: it has expired, was revoked, or is of somebody else")
    if claims.get("iss", issuer) != issuer:
        return Refused("its issuer says that another one has issued it")
    return rules.judge(claims, "introspection", now)
