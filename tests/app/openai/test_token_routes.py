"""The served model, its tokenizer, and paths that are not served."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from app.models import open_model_files
from app.models.tokenizer import open_tokenizer
from app.settings import BUILT_IN_MODEL
from tests.app.openai.test_errors import error_of

FILES = open_model_files(BUILT_IN_MODEL)
TOKENIZER = open_tokenizer(FILES.tokenizer_file, FILES.vocabulary.size)
TEXTS = ["", "sentence: a dog", " two  spaces", "a café 🐕\n", "<|endoftext|>"]


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_text_becomes_the_ids_of_a_prompt_and_back(prefix: str, text: str, client: TestClient) -> None:
    tokenized = client.post(f"{prefix}/tokenize", json={"prompt": text, "return_token_strs": True}).json()
    expected = TOKENIZER.encode(text)
    assert tokenized == {
        "count": len(expected.ids), "max_model_len": FILES.context_tokens, "tokens": expected.ids,
        "token_strs": expected.tokens,
    }
    ids = {"tokens": tokenized["tokens"], "model": "captions"}
    assert client.post(f"{prefix}/detokenize", json=ids).json() == {"prompt": f"<eos>{text}"}
    plain = client.post(f"{prefix}/tokenize", json={"prompt": text, "add_special_tokens": False}).json()
    assert plain["tokens"] == expected.ids[1:]
    assert client.post(f"{prefix}/tokenize", json={"prompt": text}).json()["token_strs"] is None


def test_messages_are_tokenized_as_a_chat_reads_them(client: TestClient) -> None:
    messages = [{"role": "user", "content": "a dog"}]
    tool = {"type": "function", "function": {"name": "feed", "description": "feeds"}}
    for more in ({}, {"add_generation_prompt": False}, {"tools": [tool]}):
        count = client.post("/tokenize", json={"messages": messages, "model": "captions", **more}).json()["count"]
        chat = {"messages": messages, "max_tokens": 8, "seed": 1, **more}
        assert client.post("/v1/chat/completions", json=chat).json()["usage"]["prompt_tokens"] == count


def test_a_model_is_found_by_its_name(client: TestClient) -> None:
    (card,) = client.get("/v1/models").json()["data"]
    assert client.get(f"/v1/models/{card['id']}").json() == card
    assert card["max_model_len"] == card["context_tokens"] == FILES.context_tokens
    for name in ("gpt-4", "openai/gpt-oss-20b"):
        response = client.get(f"/v1/models/{name}")
        assert response.status_code == 404 and error_of(response)["code"] == "unknown_model"


def test_embeddings_are_refused_by_name(client: TestClient) -> None:
    response = client.post("/v1/embeddings", json={"model": "captions", "input": "a"})
    assert response.status_code == 404 and "embeddings" in error_of(response)["message"]
