"""docs/METRICS.md lists what the callbacks log: no key less, no key more.

To cover another module, run it with `all_callbacks` and call `assert_documented` with the keys its
logger saw; `owned_by("GRPOModule")` gives the patterns that a GRPO run must show.
"""

from __future__ import annotations

import re
from pathlib import Path

import lightning.pytorch as pl
from tiny_run import SOURCES, TinyModule, trainer_of

from r1lit.callbacks import (
    GroupHealth,
    MajorityVoteEvaluation,
    ReflectionWords,
    ResponseLength,
)
from r1lit.metrics import REFLECTION_WORDS

PAGE = Path(__file__).parents[2] / "docs" / "METRICS.md"
STAGES = ("train", "val", "test")


def documented() -> dict[str, str]:
    """Return each key pattern of the page's tables with the last cell of its row, its owner."""
    owners = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        key = re.fullmatch(r"`((?:<stage>|train|val|test|time)/\S+)`", cells[0])
        if key and len(cells) == 5:
            owners[key[1]] = cells[4]
    return owners


def owned_by(name: str) -> set[str]:
    return {pattern for pattern, owner in documented().items() if name in owner.split(", ")}


def normalise(key: str) -> str:
    """Return the pattern that a logged key is an instance of, or the key itself."""
    stage, _, name = key.partition("/")
    words = "|".join(REFLECTION_WORDS)
    pattern = re.sub(r"^(pass|cons)_at_\d+$", r"\1_at_<k>", name)
    pattern = re.sub(rf"^reflection/(word|onset)/({words})$", r"reflection/\1/<word>", pattern)
    pattern = re.sub(r"^(groups/\w+|pass_at_1)/.+$", r"\1/<source>", pattern)
    pattern = re.sub(r"^reward/[^/]+$", "reward/<name>", pattern)
    for candidate in (name, pattern):
        for prefix in (stage, "<stage>"):
            if f"{prefix}/{candidate}" in documented():
                return f"{prefix}/{candidate}"
    return key


def assert_documented(logged: set[str]) -> None:
    unknown = {key for key in logged if normalise(key) not in documented()}
    assert not unknown, f"logged but not in docs/METRICS.md: {sorted(unknown)}"


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
    assert {"train/loss", "train/clip_fraction", "time/judge_s"} <= owned_by("GRPOModule")
    assert owned_by("SFTModule") == {
        "train/loss",
        "train/num_tokens",
        "train/grad_norm",
        "train/learning_rate",
        "val/loss",
    }
