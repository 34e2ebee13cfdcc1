"""Where compiled constraints and results are kept.

A store maps keys to bytes with a time to live and tells whether a key is there. `memory` keeps them in the process,
`redis` on a server that several processes share. Both obey `base` and pass the same tests.
"""

from __future__ import annotations

from app.store.base import Store

__all__ = ["Store"]
