"""The served model's files.

`files` finds a model in a folder or by its name and reads its vocabulary. `digest` names a model by the contents of its
files, so that no other is served under a pinned digest. `tokenizer` spells texts. The built-in model lies in
`captions`.
"""

from __future__ import annotations

from app.models.digest import checked_model, digest_of, digests_of, model_files, require_meant
from app.models.files import ModelFiles, open_model_files
from app.models.scorers import ScorerFiles, open_scorers

__all__ = [
    "ModelFiles", "ScorerFiles", "checked_model", "digest_of", "digests_of", "model_files", "open_model_files",
    "open_scorers", "require_meant",
]  # fmt: skip
