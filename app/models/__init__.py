"""The files of the served models.

`sources` names the models of the settings and their queues. `files` finds a model in a folder or by its name and reads
its vocabulary. `digest` names a model by the contents of its files, so that no other is served under a pinned digest.
`tokenizer` spells texts. The built-in models lie in `captions` and `stories`.
"""

from __future__ import annotations

from app.models.digest import checked_model, digest_of, digests_of, model_files, require_meant
from app.models.files import ModelFiles, open_model_files
from app.models.scorers import ScorerFiles, open_scorers
from app.models.sources import ModelSource, adapter_folders, model_sources, only, queues_of, served_sources

__all__ = [
    "ModelFiles", "ModelSource", "ScorerFiles", "adapter_folders", "checked_model", "digest_of", "digests_of",
    "model_files", "model_sources", "only", "open_model_files", "open_scorers", "queues_of", "require_meant",
    "served_sources",
]  # fmt: skip
