"""The served model's files.

`files` finds a model in a folder or by its name and reads its vocabulary. `digest` names a model by the contents of its
files, so that no other is served under a pinned digest. `tokenizer` spells texts. The built-in model lies in
`captions`.
"""

from __future__ import annotations

from app.models.digest import checked_model, digest_of, digests_of, model_files, require_meant
from app.models.files import ModelFiles, open_model_files

__all__ = [
    "ModelFiles", "checked_model", "digest_of", "digests_of", "model_files", "open_model_files", "require_meant",
]  # fmt: skip
