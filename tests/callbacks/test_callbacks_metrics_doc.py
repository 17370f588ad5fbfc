"""docs/METRICS.md lists what the callbacks log: no key less, no key more."""

from __future__ import annotations

from pathlib import Path

import lightning.pytorch as pl
import pytest
from metrics_page import STAGES, assert_documented, documented, normalise, owned_by
from tiny_run import SOURCES, TinyModule, trainer_of

from r1lit.callbacks import (
    GroupHealth,
    MajorityVoteEvaluation,
    ReflectionWords,
    ResponseLength,
)


def all_callbacks() -> list[pl.Callback]:
    return [
        MajorityVoteEvaluation(),
        ResponseLength(),
        ReflectionWords(window=1, min_rate=0.01),
        GroupHealth(),
    ]


def logged_in_a_tiny_run(folder: Path) -> set[str]:
    trainer = trainer_of(folder, all_callbacks())
    module = TinyModule()
    trainer.fit(module)
    trainer.test(module, verbose=False)
    keys = {key for line in trainer.logger.lines() for key in line}
    return keys - {"step", "epoch"}


@pytest.mark.long
def test_every_logged_key_is_documented_and_every_documented_key_is_logged(tmp_path):
    logged = logged_in_a_tiny_run(tmp_path)
    assert_documented(logged)
    seen = {normalise(key) for key in logged}
    for callback in all_callbacks():
        patterns = owned_by(type(callback).__name__)
        assert patterns, f"docs/METRICS.md gives nothing to {type(callback).__name__}"
        assert patterns <= seen, patterns - seen
    # keys of two stages share a pattern, so ask for some of each by name
    for stage in STAGES:
        for name in (
            "length/mean",
            "reflection/word/wait",
            *(f"groups/mixed/{s}" for s in SOURCES),
        ):
            assert f"{stage}/{name}" in logged
    for stage in ("val", "test"):
        assert {f"{stage}/pass_at_1/{source}" for source in SOURCES} <= logged
        assert {f"{stage}/{n}_at_{k}" for n in ("pass", "cons") for k in range(1, 5)} <= logged


def test_an_undocumented_key_is_found():
    for key in ("train/length/median", "val/onset", "val/cons_at_x", "train/reflection/word/hmm"):
        assert normalise(key) not in documented(), key


def test_modules_own_their_keys():
    assert {"train/loss", "train/clip_fraction", "time/grade_s"} <= owned_by("GRPOModule")
    assert owned_by("SFTModule") == {
        "<stage>/reward",
        "<stage>/reward/<name>",
        "<stage>/verifier/timeout",
        "<stage>/verifier/error",
        "train/loss",
        "train/num_tokens",
        "train/grad_norm",
        "train/learning_rate",
        "val/loss",
        "memory/host_gib",
        "memory/host_peak_gib",
    }
