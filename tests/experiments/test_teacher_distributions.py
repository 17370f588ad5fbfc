"""Three ways to distil with equal tokens: the shipped arms on real miniatures, shortened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tiny import ROOT

from experiments.compose import Config, merge
from experiments.pipeline import read_pipeline
from experiments.runner import run_pipeline
from experiments.teacher_distributions.tokens import LEARNT, SCORED, WRITTEN, TokenCount
from experiments.variants import compose, read_variants, tokens_table
from r1lit.files import read_records, write_records

STUDY = Path("experiments/teacher_distributions")
LIMIT = 400
SMALL = {
    "model": {"init_args": {"validation_sampling": {"max_tokens": 8}}},
    "trainer": {
        "precision": "32-true",
        "limit_val_batches": 0,
        "enable_model_summary": False,
        "callbacks": {"init_args": {"limit": LIMIT}},  # of the last one, TokenCount
    },
}
DOCUMENTS = {"data": {"init_args": {"packing": {"max_seq_len": 64, "train_batch_size": 2}}}}
PROMPTS = {
    "model": {"init_args": {"sampling": {"max_tokens": 16}}},
    "data": {
        "init_args": {
            "train": [{"class_path": "r1lit.worlds.WorldChain", "init_args": {"num_problems": 8}}],
            "rollout": {"prompts_per_iteration": 4},
        }
    },
}


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a finished run of ``make r1``: the miniature for its R1, written documents."""
    for name in ("configs", "experiments", "models"):
        (tmp_path / name).symlink_to(ROOT / name)
    run = tmp_path / "runs/r1"
    (run / "teacher").mkdir(parents=True)
    (run / "r1").mkdir()
    (run / "r1/policy").symlink_to(ROOT / "models/mini")
    rows = [{"prompt": f"{n} + 1?", "response": f" {n} + 1 = {n + 1}."} for n in range(60)]
    write_records(run / "teacher/sft.jsonl", rows)
    write_records(run / "teacher/responses.jsonl", [{"num_tokens": 7}, {"num_tokens": 5}])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_arm(arm: str, small: Config) -> Path:
    suite = read_variants(STUDY / "variants.yaml")
    change = suite["variants"][arm]["steps"]["distilled"]
    change = {**change, "set": merge(change.get("set", {}), small)}
    content = compose(Path(suite["pipeline"]), {"distilled": change}, Path("runs/r1"))
    path = Path(f"{arm}.yaml")
    path.write_text(yaml.safe_dump(content))
    assert run_pipeline(read_pipeline(path, 0, Path(arm))) == 0
    return Path(arm) / "distilled"


@pytest.mark.long
def test_every_arm_ends_with_the_same_tokens_and_a_tenth_of_the_rate(finished: Path) -> None:
    small = {
        "sft": merge(SMALL, DOCUMENTS),
        "off-policy": merge(SMALL, DOCUMENTS),
        "on-policy": merge(SMALL, PROMPTS),
    }
    counts, rates = {}, {}
    for arm, change in small.items():
        folder = run_arm(arm, change)
        counts[arm] = json.loads((folder / "tokens.json").read_text())
        lines = read_records(folder / "metrics.jsonl")
        rates[arm] = [line["train/learning_rate"] for line in lines]
        one = max(line["train/num_tokens"] for line in lines)
        assert LIMIT <= counts[arm][LEARNT] < LIMIT + one
        assert counts[arm][LEARNT] == sum(line["train/num_tokens"] for line in lines)
        assert ("train/divergence" in lines[0]) == (arm != "sft")
        assert (folder / "policy/config.json").exists()
    assert counts["sft"][LEARNT] == counts["off-policy"][LEARNT], "the same documents"
    assert [counts[arm][SCORED] for arm in small] == [
        0,
        counts["off-policy"][LEARNT],
        counts["on-policy"][LEARNT],
    ]
    assert [counts[arm].get(WRITTEN) for arm in small] == [12, 12, None]
    for own in rates.values():
        assert own == sorted(own, reverse=True) and own[0] == 1e-3
    table = tokens_table([{"name": arm, "tokens": own} for arm, own in counts.items()])
    assert table.splitlines()[0].startswith(f"| | {LEARNT} | {WRITTEN} | {SCORED} |")
    assert "limit" not in table


def test_every_trial_is_an_arm_at_another_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    arms = read_variants(STUDY / "variants.yaml")["variants"]
    trials = read_variants(STUDY / "trials" / "variants.yaml")["variants"]
    for arm, own in arms.items():
        of_arm = {name: trial for name, trial in trials.items() if name.startswith(f"{arm}-")}
        assert len(of_arm) == 3
        for name, trial in of_arm.items():
            changed = trial["steps"]["distilled"]
            rate = changed["set"].pop("model")["init_args"]["optimizer"]["init_args"]["lr"]
            assert rate == float(name.removeprefix(f"{arm}-"))
            assert {**changed, "set": changed["set"] or None} == {
                "set": None,
                **own["steps"]["distilled"],
            }


def test_a_count_of_what_nobody_wrote_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"limit: 0 is not above 0"):
        TokenCount(str(tmp_path / "t.json"), 0)
    with pytest.raises(ValueError, match=r"decay_to: 2 is no share of the rate"):
        TokenCount(str(tmp_path / "t.json"), 10, decay_to=2)
