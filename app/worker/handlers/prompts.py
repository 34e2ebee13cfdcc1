"""Reads prompts with the model's tokenizer, and answers requests for tokens alone."""

from __future__ import annotations

from tokenizers import Tokenizer

from app.messages import GenerateJob, TokenizeJob, TokenizeJobResult
from app.models.tokenizer import PromptEncoder
from app.worker.handlers.base import Context
from decoding.errors import OptionsInvalid, PromptEmpty


class PromptTokenizer:
    """The model's tokenizer, as prompts need it. Any number of threads may use it.

    encode      encodes the prompts of chat templates, too
    vocab_size  the number of ids that the model reads
    bos_id      the id that stands for an empty prompt; None if the model has none
    """

    def __init__(self, tokenizer: Tokenizer, encode: PromptEncoder, vocab_size: int, bos_id: int | None) -> None:
        self._tokenizer, self._encode, self._vocab_size, self._bos_id = tokenizer, encode, vocab_size, bos_id

    def ids(self, job: GenerateJob) -> list[int]:
        """The prompt's ids, with whatever the tokenizer puts first.

        Raises PromptEmpty, as a model continues something, and OptionsInvalid for ids that the model has no place for.
        """
        ids = self._encode(job.prompt, job.markers) if isinstance(job.prompt, str) else list(job.prompt)
        if ids:
            if max(ids) >= self._vocab_size:
                raise OptionsInvalid("prompt", "a text whose tokens are in the model's vocabulary")
            return ids
        if self._bos_id is None:
            raise PromptEmpty("the prompt is empty and the model has no start token: send a prompt")
        return [self._bos_id]

    def tokenize(self, job: TokenizeJob, context: Context) -> TokenizeJobResult:
        """The ids of a text, or the text of ids."""
        tokenizer = self._tokenizer
        if isinstance(job.prompt, str) and job.markers is not None:
            ids, text = self._encode(job.prompt, job.markers), job.prompt
        elif isinstance(job.prompt, str):
            ids, text = tokenizer.encode(job.prompt, add_special_tokens=job.add_special_tokens).ids, job.prompt
        else:
            ids, text = list(job.prompt), tokenizer.decode(list(job.prompt), skip_special_tokens=False)
        return TokenizeJobResult(text, tuple(ids), tuple(tokenizer.id_to_token(token) or "" for token in ids))


def prompt_text(job: GenerateJob) -> str:
    """The prompt of a job whose constraint includes it."""
    if isinstance(job.prompt, str):
        return job.prompt
    raise OptionsInvalid("scope", '"answer" for a prompt of token ids, which need not be those of its text')
