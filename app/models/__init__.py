"""The served model's files: vocabulary, tokenizer, digest. The built-in model lies beside them.
"""

from __future__ import annotations

from app.models.digest import checked_model, digest_of, digests_of, model_files, require_meant
from app.models.files import ModelFiles, open_model_files

__all__ = [
    "ModelFiles",
    "checked_model",
    "digest_of",
    "digests_of",
    "model_files",
    "open_model_files",
    "require_meant",
]
