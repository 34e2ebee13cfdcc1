"""API keys, the scopes of routes, and rate limits.

A keys file lists the keys with their owners, scopes and limits. Requests are counted against the limits of their key in
memory, or on Redis if several processes serve the API.
"""

from __future__ import annotations

from app.auth.key_policy import KeyPolicy
from app.auth.keys import SCOPES, Key, KeyRing, add_key, new_key, read_keys, remove_key, when
from app.auth.rate_limit import Charge, KeyCharges, Limiter
from app.auth.route_scopes import (
    HEALTH,
    ROUTE_SCOPES,
    RateLimitStatus,
    bearer,
    is_public,
    method_not_allowed,
    metrics_guard,
    require_scope,
    scope_of,
    template_of,
)

__all__ = [
    "HEALTH", "ROUTE_SCOPES", "SCOPES", "Charge", "Key", "KeyCharges", "KeyPolicy", "KeyRing", "Limiter",
    "RateLimitStatus", "add_key", "bearer", "is_public", "method_not_allowed", "metrics_guard", "new_key", "read_keys",
    "remove_key", "require_scope", "scope_of", "template_of", "when",
]  # fmt: skip
