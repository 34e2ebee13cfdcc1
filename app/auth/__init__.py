"""API keys, the scopes of routes, and rate limits.

A keys file names the holders, their scopes and their shares. A request is counted against its key's share in memory, or
on Redis where several processes serve.
"""

from __future__ import annotations

from app.auth.keys import SCOPES, Key, KeyRing, add_key, new_key, read_keys, remove_key, when
from app.auth.rate_limit import Charge, KeyCharges, Limiter
from app.auth.route_scopes import (
    HEALTH,
    ROUTE_SCOPES,
    RateLimitStatus,
    bearer,
    door_to,
    is_public,
    not_taken,
    opener,
    require_scope,
    template_of,
)

__all__ = [
    "HEALTH",
    "ROUTE_SCOPES",
    "SCOPES",
    "Charge",
    "Key",
    "KeyCharges",
    "KeyRing",
    "Limiter",
    "RateLimitStatus",
    "add_key",
    "bearer",
    "door_to",
    "is_public",
    "new_key",
    "not_taken",
    "opener",
    "read_keys",
    "remove_key",
    "require_scope",
    "template_of",
    "when",
]
