"""Where compiled constraints and results are kept, in memory or on Redis.
"""

from __future__ import annotations

from app.store.base import Store

__all__ = [
    "Store",
]
