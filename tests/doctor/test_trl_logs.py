"""Runs of TRL as ``r1lit doctor`` reads them: recorded ones, with a planted fault each."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from r1lit.cli.doctor import main, read
from r1lit.doctor.rules import examined, findings, unjudged
from r1lit.doctor.trl import TRLRun, as_metrics, as_responses, is_trl

RUNS = Path(__file__).parent / "trl_runs"
NAMED = {
    "truncated": {"truncated"},
    "learning_rate_low": {"learning_rate_low"},
    "learning_rate_high": {"learning_rate_high"},
    "no_mixed_groups": {"no_mixed_groups"},
    "never_earned": {"never_earned"},
    "reward_hacked": {"reward_hacked"},
}
"""Each run of ``make_trl_runs.py`` -> the rules that count as naming its fault (any)."""


def restored(name: str, folder: Path) -> Path:
    """Return a folder as TRL leaves it: the state in a checkpoint, and a table a step."""
    own = RUNS / name
    checkpoint = folder / "checkpoint-6"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text((own / "trainer_state.json").read_text())
    rows = [json.loads(line) for line in (own / "completions.jsonl").read_text().splitlines()]
    (folder / "completions").mkdir()
    for step in {row["step"] for row in rows}:
        table = pa.Table.from_pylist([row for row in rows if row["step"] == step])
        parquet.write_table(table, folder / "completions" / f"completions_{step:05d}.parquet")
    return folder


@pytest.mark.parametrize("name", NAMED)
def test_a_planted_fault_is_named(name, tmp_path):
    run = read(restored(name, tmp_path))
    assert isinstance(run, TRLRun)
    assert {rule.name for rule, _ in findings(run)} & NAMED[name]


def test_a_healthy_run_is_left_alone_and_what_is_not_known_is_said(tmp_path, capsys):
    folder = restored("healthy", tmp_path)
    assert main([str(folder)]) == 0
    out = capsys.readouterr().out
    assert "TRL's logs: settings are not known" in out
    assert "not judged" in out
    assert {"temperature", "kl_strong", "frozen", "wrong_way"} <= unjudged(read(folder)).keys()
    assert not {"truncated", "no_mixed_groups", "copies"} & unjudged(read(folder)).keys()


@pytest.mark.parametrize("form", [[], ["--rule", "truncated"], ["--json"]])
def test_it_speaks_trls_names(tmp_path, capsys, form):
    assert main([str(restored("truncated", tmp_path)), *form]) == 1
    out = capsys.readouterr().out
    assert "completions/clipped_ratio is" in out and "raise max_completion_length" in out
    assert "train/length/truncated" not in out and "model.sampling" not in out


def test_a_response_that_shows_it_has_its_step(tmp_path):
    run = read(restored("learning_rate_high", tmp_path))
    shown = [found.example for found in examined(run) if found.example is not None]
    assert all(line["iteration"] >= 1 for line in shown)


def test_an_adapter_is_known_by_its_file(tmp_path):
    folder = restored("learning_rate_low", tmp_path)
    assert TRLRun(folder).adapter_config is None
    (folder / "adapter_config.json").write_text('{"r": 8, "lora_alpha": 16}')
    assert "adapter_rate" in [rule.name for rule, _ in findings(TRLRun(folder))]


def test_messages_and_a_reward_of_another_name(tmp_path):
    rows = [
        {"step": 1, "prompt": [{"role": "user", "content": "1 + 1?"}], "advantage": 0.0,
         "completion": [{"role": "assistant", "content": text}], name: reward}
        for name, text, reward in (("correctness_reward_func", "2", 2.0),
                                   ("correctness_reward_func", "3", 0.0))
    ]  # fmt: skip
    right, wrong = as_responses(rows)
    assert (right["question"], right["response"], right["status"]) == ("1 + 1?", "2", "right")
    assert (wrong["status"], wrong["rewards"]) == ("wrong", {"accuracy": 0.0})
    unnamed = as_responses([{k.replace("correctness", "my"): v for k, v in rows[0].items()}])
    assert "status" not in unnamed[0]


def test_a_folder_of_neither_kind_and_a_log_without_steps(tmp_path):
    assert not is_trl(tmp_path)
    (tmp_path / "trainer_state.json").write_text('{"log_history": []}')
    with pytest.raises(ValueError, match=r"run: .*trainer_state\.json has no row"):
        read(tmp_path)


def logged(folder: Path, rows: list[dict[str, float]], **state: int) -> TRLRun:
    """Return a run with a log of some rows."""
    history = [{"step": step, "loss": 0.0} | row for step, row in enumerate(rows, 1)]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history} | state))
    return TRLRun(folder)


def test_names_of_earlier_versions_are_read_and_spoken(tmp_path):
    row = {"completion_length": 9.0, "clip_ratio": 0.5, "rewards/correctness": 1.0}
    run = logged(tmp_path, [row] * 4)
    read_as = {"train/length/mean": 9.0, "train/clip_fraction": 0.5, "train/reward/accuracy": 1.0}
    assert read_as.items() <= run.metrics[0].items()
    assert [run.translated(key) for key in read_as] == list(row)
    assert "clip" in [rule.name for rule, _ in findings(run)]


def test_todays_name_is_read_where_a_row_has_both():
    both = {"step": 1, "completions/mean_length": 9.0, "completion_length": 8.0}
    assert as_metrics(both)["train/length/mean"] == 9.0
    spread = {"step": 1, "rewards/correct/mean": 0.5, "rewards/correct/std": 0.1}
    assert as_metrics(spread) == {"iteration": 1, "train/reward/accuracy": 0.5}


@pytest.mark.parametrize(
    ("longest", "limit"), [([99.4, 96.0, 120.2], None), ([512.0, 506.2, 512.0], 512)]
)
def test_a_mean_of_longest_completions_is_no_limit(longest, limit, tmp_path):
    rows = [{"completions/max_length": x, "completions/clipped_ratio": 0.5} for x in longest]
    assert logged(tmp_path, rows).known.get("model.sampling.max_tokens") == limit
    assert logged(tmp_path, [{"completions/clipped_ratio": 0.5}] * 3).known == {}


def test_a_row_stands_for_its_completions_not_for_one(tmp_path):
    grows = [{"completions/mean_length": 100.0 * k, "rewards/accuracy/mean": 0.7 - 0.01 * k}
             for k in range(1, 11)]  # fmt: skip
    assert logged(tmp_path, grows).window_rows == 2
    assert "padded" not in [rule.name for rule, _ in findings(TRLRun(tmp_path))]
    run = logged(tmp_path, grows, train_batch_size=8, logging_steps=10)
    assert run.window_rows == run.until(10).window_rows == 160
    assert "padded" in [rule.name for rule, _ in findings(run)]


def test_a_reward_of_two_for_a_right_answer_has_noise_as_well(tmp_path):
    falls = [{"rewards/correctness_reward_func/mean": value} for value in (2.0, 1.4, 0.8, 0.4)]
    assert "learning_rate_high" not in [r.name for r, _ in findings(logged(tmp_path, falls))]
    many = logged(tmp_path, falls, train_batch_size=64)
    assert "learning_rate_high" in [r.name for r, _ in findings(many)]


def test_a_reward_that_is_never_earned_is_named_and_a_punishment_is_not(tmp_path):
    row = {"rewards/strict_format/mean": 0.0, "rewards/repetition_penalty/mean": 0.0}
    rows = [row | {"rewards/accuracy/mean": 0.5 + 0.02 * k} for k in range(20)]
    assert not findings(logged(tmp_path, rows[:19]))
    ((rule, seen),) = findings(logged(tmp_path, rows))
    assert rule.name == "never_earned"
    assert seen == "train/reward/strict_format: 0 in all 20 iterations"
