"""The doctor in a run: what it measures, what it prints, and that it changes no run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny import metrics
from tiny_run import response, rollout_of

from r1lit.callbacks import Doctor
from r1lit.callbacks.doctor import num_copies
from r1lit.files import read_records

SLOW = {"model": {"init_args": {"optimizer": {"init_args": {"lr": 1e-3}}}}}
TIMES = ("seconds", "time/", "speed/", "memory/")


def of_objective(name: str) -> dict:
    objective = {"class_path": name, "init_args": {"max_tokens": 8}}
    return {"model": {"init_args": {"objective": objective}}}


def gains(folder) -> list[float]:
    return [line["gain"] for line in read_records(folder / "doctor.jsonl") if "gain" in line]


def without_times(folder) -> list[dict]:
    return [{k: v for k, v in row.items() if not k.startswith(TIMES)} for row in metrics(folder)]


@pytest.mark.long
def test_updates_that_go_the_right_way_have_a_positive_gain(fit, tmp_path, capsys):
    fit("right", SLOW, of_objective("r1lit.objectives.DrGRPO"))
    fit("wrong", SLOW, of_objective("experiments.doctor.plants_round4.Negated"))
    right, wrong = gains(tmp_path / "right"), gains(tmp_path / "wrong")
    assert len(right) == len(wrong) == 3
    assert min(right) > 0.05 and max(wrong) < -0.05
    err = capsys.readouterr().err
    assert "docs/TROUBLESHOOTING.md#" in err


@pytest.mark.long
def test_what_moves_is_counted(fit, tmp_path):
    norms = {"class_path": "experiments.doctor.plants_round4.NormsAlone", "init_args": {"lr": 0.1}}
    fit("all", SLOW)
    fit("norms", {"model": {"init_args": {"optimizer": norms}}})
    whole = read_records(tmp_path / "all" / "doctor.jsonl")[0]
    assert whole["num_matrices"] == whole["num_matrices_moved"] == 16
    assert whole["num_others"] == whole["num_others_moved"] == 5
    part = read_records(tmp_path / "norms" / "doctor.jsonl")[0]
    assert (part["num_matrices_moved"], part["num_others_moved"]) == (0, 5)


@pytest.mark.long
def test_an_adapter_is_the_whole_of_what_is_trained(fit, tmp_path, policy):
    lora = {"class_path": "peft.LoraConfig", "init_args": {"r": 2, "target_modules": "all-linear"}}
    source = {"path": str(policy), "adapter": lora}
    fit("run", SLOW, {"model": {"init_args": {"policy": source}}})
    last = read_records(tmp_path / "run" / "doctor.jsonl")[-1]
    assert last["num_matrices"] == last["num_matrices_moved"] == 28 and last["num_others"] == 0


@pytest.mark.long
def test_a_run_is_the_same_with_and_without_it(fit, tmp_path):
    fit("with", SLOW)
    seldom = {"class_path": "r1lit.callbacks.Doctor", "init_args": {"num_responses": 0}}
    fit("without", SLOW, {"trainer": {"callbacks+": [seldom]}})
    assert without_times(tmp_path / "with") == without_times(tmp_path / "without")
    measured = read_records(tmp_path / "without" / "doctor.jsonl")
    assert len(measured) == 3 and not any("gain" in line for line in measured)


@pytest.mark.long
def test_a_finding_is_printed_once_and_the_run_ends_with_one_line(fit, tmp_path, capsys):
    often = {"class_path": "r1lit.callbacks.Doctor", "init_args": {"every_n_iterations": 1}}
    greedy = {"model": {"init_args": {"sampling": {"temperature": 0.01}}}}
    fit("run", SLOW, greedy, {"trainer": {"callbacks+": [often]}})
    err = capsys.readouterr().err
    assert err.count("doctor: temperature, from iteration 0 on") == 1
    assert "change  model.sampling: temperature 1.0" in err
    last = [line for line in err.splitlines() if line.startswith("doctor: ")][-1]
    assert last.startswith("doctor: unread_answers: the verifier reads another form")
    assert "docs/TROUBLESHOOTING.md#unread_answers, and " in last and "r1lit doctor" in last
    fit("run", SLOW, greedy, {"trainer": {"callbacks+": [often]}},
        args=("--ckpt_path", "last", "--data.num_iterations", "8"))  # fmt: skip
    again = capsys.readouterr().err
    assert "doctor: temperature, " not in again and "doctor: unread_answers: " in again
    assert [line["iteration"] for line in read_records(tmp_path / "run/doctor.jsonl")] == [
        *range(8)
    ]


def test_a_run_that_cannot_be_looked_at_ends_all_the_same(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 0}\n{"iteration": nonsense}\n{}\n')
    doctor = Doctor()
    doctor._folder = tmp_path
    assert "could not be looked at: ValueError" in doctor.last_line()


def test_where_nothing_is_found_it_says_so(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 0, "train/reward": 1.0}\n')
    doctor = Doctor()
    doctor._folder = tmp_path
    assert doctor.last_line() == "no rule applies"


def test_a_run_without_curves_is_not_looked_at(fit, tmp_path, capsys):
    fit("run", SLOW, {"trainer": {"callbacks": []}})
    assert not (tmp_path / "run" / "doctor.jsonl").exists()
    assert "doctor:" not in capsys.readouterr().err


def test_intervals_below_one_are_refused():
    with pytest.raises(ValueError, match=r"Doctor\.every_n_iterations: 0"):
        Doctor(every_n_iterations=0)


@pytest.mark.long
def test_copies_against_all_odds_are_counted(fit, tmp_path):
    """Samples of one seed are the same text; independent ones of so many tokens are not."""
    shared = {"class_path": "experiments.doctor.plants_round5.SharedSeeds"}
    fit("alone")
    fit("shared", {"model": {"init_args": {"engine": shared}}})
    alone, both = (read_records(tmp_path / name / "doctor.jsonl") for name in ("alone", "shared"))
    assert [line["num_copies"] for line in alone] == [0, 0, 0]
    assert min(line["num_copies"] for line in both) > 0
    assert len({line["weight_norm"] for line in alone}) == 1 and alone[0]["weight_norm"] > 0


def test_a_copy_counts_by_its_chance():
    """Groups of two: likely, unlikely and in two groups, unlikely and in one."""
    ids_BT = torch.tensor([[5, 6, 0], [5, 6, 0], [7, 8, 0], [9, 9, 0], [7, 8, 0], [7, 8, 0]])
    logp_BT = torch.tensor([[-1.0, -1.0, -50.0]] * 2 + [[-9.0, -9.0, 0.0]] * 4)  # two count
    rollout = replace(
        rollout_of([response("7", True)] * 6, group_size=2),
        response_BT=ids_BT, logp_sampler_BT=logp_BT, length_B=torch.full((6,), 2),
    )  # fmt: skip
    assert num_copies(rollout) == 1
