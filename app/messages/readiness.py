"""Why a worker takes no jobs: the reasons that the API passes on, by their first words."""

from __future__ import annotations

LOADING = "loading"
DRAINING = "about to stop"
STUCK = "stuck"  # what is stuck, and for how long, follows
