"""The labels of scorers that the settings name."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import SettingsInvalid
from app.models import open_scorers
from app.settings import Settings
from tests.environment import settings_in
from tests.label_scorers import LABELS, write_tokenizer


def test_labels_are_the_tokens_that_are_not_special(tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "a", bos_token_id=0, eos_token_id=1, max_position_embeddings=16)
    write_tokenizer(tmp_path / "b", ("x",), eos_token_id=[1])
    scorers = open_scorers(settings_in({"ABS_SCORERS": f"claims={tmp_path}/a, more={tmp_path}/b"}))
    assert list(scorers) == ["claims", "more"]
    claims, more = scorers["claims"], scorers["more"]
    assert (claims.labels, claims.label_ids) == (LABELS, (4, 5, 6, 7))
    assert (claims.begin_id, claims.end_id, claims.context_tokens) == (0, 1, 16)
    assert (more.begin_id, more.end_id, more.context_tokens) == (1, 1, None)


def test_a_service_has_no_scorer_by_default() -> None:
    assert open_scorers(Settings.of()) == {}


@pytest.mark.parametrize("value", ["claims", "=/folder", "a b=/folder", "a=/x,a=/y"])
def test_a_faulty_list_of_scorers_is_refused(value: str) -> None:
    with pytest.raises(SettingsInvalid, match="ABS_SCORERS: should be name=folder"):
        open_scorers(settings_in({"ABS_SCORERS": value}))


def test_folders_without_labels_are_refused(tmp_path: Path) -> None:
    for folder, message in (("absent", "must have a config.json"), ("endless", "eos_token_id"), ("empty", "no token")):
        if folder != "absent":
            end = {"eos_token_id": 1} if folder == "empty" else {"bos_token_id": 0}
            write_tokenizer(tmp_path / folder, (), **end)
        with pytest.raises(SettingsInvalid, match=message):
            open_scorers(Settings.of(scorers=(f"a={tmp_path / folder}",)))
