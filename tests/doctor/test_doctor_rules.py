"""Each rule sees its fault in a run folder, and a healthy run is left alone."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from r1lit.doctor.rules import RULES, findings
from r1lit.doctor.run import Run

HEALTHY = Path(__file__).parents[2] / "notebooks" / "data" / "aha"
NUM = 10


def line(text: str, status: str = "wrong", answer: str = "7 * 6") -> dict[str, Any]:
    return {"split": "train", "iteration": 0, "response": text, "status": status, "answer": answer}


def run(
    folder: Path,
    metrics: dict[str, Any],
    settings: dict[str, Any],
    lines: list[Any],
    measured: Sequence[dict[str, Any]] = (),
) -> Run:
    """A healthy run's folder with some metrics, settings and responses replaced.

    A metric is one number, its start and its end, or a list of all its numbers.
    """
    series = {
        "train/reward": (0.8, 1.2), "train/reward/accuracy": (0.3, 0.6), "train/reward_std": 0.3,
        "train/reward/format": (0.9, 0.95), "train/groups/mixed": 0.6,
        "train/groups/all_right": (0.1, 0.3), "train/groups/all_wrong": (0.3, 0.1),
        "train/verifier/timeout": 0, "train/verifier/error": 0, "train/length/mean": (60, 90),
        "train/length/truncated": 0.02, "train/entropy": (0.15, 0.06),
        "train/approx_kl_old": 1e-3, "train/mismatch/k3_kl": 1e-5, "train/mismatch/mean_abs": 1e-3,
        "train/mismatch/effective_sample_size": 0.99, "train/clip_fraction": 0.01,
        "train/learning_rate": 1e-4,
    } | metrics  # fmt: skip
    rows = []
    num = max([NUM, *(len(v) for v in series.values() if isinstance(v, list))])
    for i in range(num):
        listed = {k: v[i] for k, v in series.items() if isinstance(v, list)}
        rest = {k: v for k, v in series.items() if k not in listed}
        pairs = {k: v if isinstance(v, tuple) else (v, v) for k, v in rest.items()}
        values = {k: a + (b - a) * i / (num - 1) for k, (a, b) in pairs.items()} | listed
        rows.append({"iteration": i, "seconds": float(i), **values})
    config = yaml.safe_load((HEALTHY / "config.yaml").read_text())
    for key, value in settings.items():
        *parts, last = key.split(".")
        at = config
        for part in parts:
            at = at[part]
            at = at.get("init_args", at)
        at[last] = value
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    for name, records in (("metrics", rows), ("responses", lines), ("doctor", measured)):
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(text)
    return Run(folder)


def groups(texts: list[tuple[str, str, dict[str, float]]], num: int, uids: int) -> list[Any]:
    """The same group, of some texts with status and rewards, ``num`` times, of some problems."""
    return [
        {**line(text, status), "uid": f"p{i % uids}", "iteration": i // uids, "rewards": rewards}
        for i in range(num)
        for text, status, rewards in texts
    ]


def form_paid(right: float) -> list[dict[str, Any]]:
    """Responses that earn one with a wrong answer, nothing without one, and some if right."""
    earned = {"right": right, "wrong": 1.0}
    lines = [line(RIGHT if s == "right" else WRONG, s) | {"rewards": {"longer": v}}
             for s, v in earned.items()]  # fmt: skip
    return lines * 8 + [line("no", "unparsed") | {"rewards": {"longer": 0.0}}] * 3


RIGHT, WRONG = "<answer> 7 * 6 </answer>", "<answer> 7 + 6 </answer>"
GOOD = [line("<think> 1 + 1 = 2 </think> <answer> 7 * 6 </answer>", "right")] * 4
LOOP = "I try 1 + 2 = 3 again and again . " * 9
TIS = {"class_path": "r1lit.objectives.TruncatedImportanceSampling"}
ACCURACY = "train/reward/accuracy"
FORMAT = [{"class_path": "r1lit.rewards.Format"}]
ADAPTER = {"adapter": {"class_path": "peft.LoraConfig", "init_args": {"r": 8}}}
WHOLE = {"num_matrices": 8, "num_matrices_moved": 8, "num_others": 4, "num_others_moved": 4}
NORMS = [{"iteration": 9, **WHOLE, "num_matrices_moved": 0, "gain": 0.1, "num_tokens": 900}]
DOWN = [{"iteration": i, **WHOLE, "gain": -0.1, "num_tokens": 900} for i in range(3)]
FAULTS: dict[str, tuple[Any, ...]] = {
    "evaluation_sampling": ({}, {"model.validation_sampling": {"temperature": 2.0}}, GOOD),
    "one_sign": ({}, {}, [line("!" * 60)] * 4),
    "tools_unused": ({"train/environment/calls": (1.0, 0.0)}, {}, GOOD),
    "clipped_gradients": ({"train/grad_norm": 0.5}, {"model.max_grad_norm": 1e-6}, GOOD),
    "frozen": ({}, {}, GOOD, NORMS),
    "adapter_rate": ({"train/learning_rate": 6e-3}, {"model.policy": ADAPTER}, GOOD),
    "weight_decay": ({}, {"model.optimizer.weight_decay": 10.0}, GOOD),
    "entropy_bonus": ({"train/entropy_weight": 1.0}, {}, GOOD),
    "wrong_way": ({}, {}, GOOD, DOWN),
    "flat": ({"train/reward": [0.7, 0.9, 0.8] * 8}, {}, GOOD),
    "apart_at_once": ({"train/kl_reference": 2.0}, {}, GOOD),
    "memory_grows": ({"memory/host_gib": (4.0, 9.0)}, {}, GOOD),
    "verifier_timeout": ({"train/verifier/timeout": 0.2}, {}, GOOD),
    "verifier_error": ({"train/verifier/error": 0.2}, {}, GOOD),
    "unread_answers": ({}, {}, [line("no tags", "unparsed")] * 4),
    "right_and_refused": ({}, {}, [line("<answer>7*6</answer>")] * 4),
    "wrong_and_paid": ({}, {}, [line(WRONG, "right")] * 4),
    "groups_left_out": ({"train/num_groups_left_out": 2}, {}, GOOD),
    "copies": ({}, {}, groups([(WRONG, "wrong", {})] * 4, 3, 3)),
    "few_problems": ({}, {}, groups([(RIGHT, "right", {})], 12, 2)),
    "truncated": ({"train/length/truncated": 0.5}, {}, GOOD),
    "temperature": ({}, {"model.sampling.temperature": 0.0}, GOOD),
    "too_hard": ({"train/groups/all_wrong": 0.95}, {}, GOOD),
    "too_easy": ({"train/groups/all_right": 0.95}, {}, GOOD),
    "no_mixed_groups": ({"train/groups/mixed": 0.03}, {}, GOOD),
    "small_groups": ({}, {"data.rollout.group_size": 2}, GOOD),
    "format_alone": ({}, {"model.rewards": FORMAT}, GOOD),
    "reward_hacked": ({"train/reward": (0.8, 2.0), ACCURACY: 0.3}, {}, GOOD),
    "never_earned": ({"train/reward/format": 0.0}, {}, GOOD),
    "kl_strong": ({}, {"model.objective.beta": 10.0}, GOOD),
    "mismatch": ({"train/mismatch/mean_abs": 0.1}, {}, GOOD),
    "stale": ({"train/mismatch/effective_sample_size": 0.5}, {"model.max_staleness": 2}, GOOD),
    "learning_rate_low": ({"train/learning_rate": 1e-9}, {}, GOOD),
    "learning_rate_high": ({ACCURACY: (0.5, 0.1), "train/reward": (1.2, 0.8)}, {}, GOOD),
    "far_from_rollout": ({"train/approx_kl_old": 0.3}, {}, GOOD),
    "clip": ({"train/clip_fraction": 0.5}, {}, GOOD),
    "off_policy": ({"train/off_policy": 0.5}, {}, GOOD),
    "critic": ({"train/explained_variance": -0.3}, {}, GOOD),
    "entropy_collapse": ({"train/entropy": (0.3, 0.001)}, {}, GOOD),
    "incoherent": ({"train/entropy": (0.3, 3.0)}, {}, GOOD),
    "divisor": ({}, {"model.objective.max_tokens": 16}, GOOD),
    "shorter": ({"train/length/mean": (100, 20), ACCURACY: 0.3, "train/reward": 0.8}, {}, GOOD),
    "padded": ({"train/length/mean": (50, 200), ACCURACY: 0.3, "train/reward": 0.8}, {}, GOOD),
    "repetition": ({}, {}, [line(LOOP)] * 8),
}


def test_every_rule_has_a_fault_here():
    assert FAULTS.keys() == {rule.name for rule in RULES}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_nothing_that_it_does_not_bring_about(name, tmp_path):
    found = findings(run(tmp_path, *copy.deepcopy(FAULTS[name])))
    assert [rule.name for rule, _ in found] == [name]
    assert any(c.isdigit() for c in found[0][1])  # the evidence has a number


def test_a_healthy_run_and_one_without_responses_or_configuration(tmp_path):
    healthy = run(tmp_path, {}, {}, GOOD)
    assert findings(healthy) == [] and findings(Run(HEALTHY)) == []
    (tmp_path / "config.yaml").unlink()
    (tmp_path / "responses.jsonl").unlink()
    assert findings(Run(tmp_path)) == []


def test_a_policy_that_never_leaves_its_reference(tmp_path):
    made = run(tmp_path, {"train/kl_reference": 1e-10}, {"model.train_batch_size": 512}, GOOD)
    assert [rule.name for rule, _ in findings(made)] == ["learning_rate_low"]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, ["learning_rate_low"]),
        ({"model.correction": TIS}, []),
        ({"model.train_batch_size": 512}, []),  # one update an iteration: nothing has moved yet
    ],
)
def test_a_policy_at_its_rollout_counts_where_updates_could_move_it(settings, names, tmp_path):
    made = run(tmp_path, {"train/approx_kl_old": 1e-7}, settings, GOOD)
    assert [rule.name for rule, _ in findings(made)] == names


def renamed(num: int) -> list[Any]:
    """Sixteen groups of so many questions, each under a name of its own."""
    lines = groups([(RIGHT, "right", {})], 16, 16)
    return [{**x, "question": f"What is {i % num}{' ' * (i // num)}?"} for i, x in enumerate(lines)]


SLOW_ADAPTER = {"train/learning_rate": 1e-6, "train/kl_reference": 2e-6}
LEAK = [9.0, 9.5, 10.0, 10.6, 11.0, 11.5, 12.0, 12.6]
SEQUENCE = {"class_path": "r1lit.objectives.GSPO", "init_args": {"beta": 0.001}}
PAID = {"accuracy": 1.0, "format": 0.0}
FREE = {"accuracy": 0.0, "format": 0.0}
LONG = {"accuracy": 0.0, "format": 1.0}
OPEN_MIXED = groups([(RIGHT, "right", PAID), (WRONG, "wrong", FREE), ("no", "wrong", LONG)], 4, 4)
ACCURACY_TOO = ["r1lit.rewards.Accuracy", "r1lit.rewards.Format"]
LONGER = [*ACCURACY_TOO, "my_rewards.Longer"]
SHORTER = [*ACCURACY_TOO, "r1lit.rewards.Overlong"]
FEW = {"data.rollout.prompts_per_iteration": 1}
FLAT = {ACCURACY: 0.3, "train/reward": 0.8}
MANY = [line("<answer> 7 * 6 </answer>", "right")] * 50
SLOW = {**line(WRONG), "reason": "SymPy timed out"}
CRASH = {**line(WRONG), "reason": "Traceback (most recent call last)"}
NO_TAGS = {**GOOD[0], "split": "train", "prompt": "User: six times seven? Assistant:"}
UNREAD = [line("42", "unparsed")] * 6
WAITS = [line("<think> wait wait, wait wait wait", "unparsed")] * 3
ONLY_FORM = [{**GOOD[0], "rewards": {"cosine_length": 0.0, "format": 1.0}}] * 4
NOT_PAID = [{**GOOD[0], "rewards": {"accuracy": 0.0, "format": 0.0}}] * 4
COSINE = [{"class_path": "r1lit.rewards.CosineLength", "init_args": {"max_tokens": 576}}, *FORMAT]
INVERTED = [{"class_path": "r1lit.rewards.Accuracy", "init_args": {"weight": -1.0}}]
TAGGED = {**NO_TAGS, "prompt": "Use <answer>."}
OPEN, PREFILLED = (
    ["r1lit.rewards.Accuracy", {**FORMAT[0], "init_args": {"think_prefilled": is_open}}]
    for is_open in (False, True)
)
CYCLE = {"class_path": "torch.optim.lr_scheduler.OneCycleLR"}
OWN = {"class_path": "my.Own", "init_args": {"max_tokens": 1}}
SERVER = {"class_path": "r1lit.rollout.VLLMEngine"}
MASKED = {"model.objective.off_policy_threshold": 0.02}
CONDITIONAL = [
    {
        "class_path": "r1lit.rewards.ConditionalReward",
        "init_args": {"reward": {"class_path": "r1lit.rewards.Accuracy"}, "kinds": ["reasoning"]},
    },
    *FORMAT,
]
EXACT = {"trainer.precision": "32-true"}
UNPAID = groups([(RIGHT, "right", PAID), (WRONG, "wrong", LONG)], 4, 4)


@pytest.mark.parametrize(
    ("name", "metrics", "settings", "lines"),
    [
        ("truncated", {"train/length/truncated": (0.3, 0.0)}, {}, GOOD),  # it learnt to be short
        ("temperature", {}, {"model.sampling.temperature": 2.0}, GOOD),
        ("temperature", {}, {"model.sampling.top_p": 0.2}, GOOD),
        ("temperature", {}, {"model.sampling.top_k": 1}, GOOD),
        ("temperature", {}, {"model.sampling.temperature": 0.4}, GOOD),
        ("verifier_timeout", {}, {}, [SLOW] * 4),
        ("verifier_error", {}, {}, [CRASH] * 4),
        ("unread_answers", {}, {}, UNREAD + GOOD * 4),  # a quarter, and none of them cut off
        ("unread_answers", {"train/reward/format": (0.2, 0.9)}, {}, [NO_TAGS] * 4),
        ("right_and_refused", {}, {}, [line(RIGHT)] * 2 + MANY + [line(WRONG)] * 98),
        ("right_and_refused", {}, {}, NOT_PAID),
        ("wrong_and_paid", {}, {}, [line(WRONG, "right")] * 2 + MANY),
        ("truncated", {"train/length/truncated": [0.0] * 8 + [0.7, 0.7]}, {}, GOOD),
        ("few_problems", {}, {}, groups([(RIGHT, "right", {})], 16, 8)),
        ("too_easy", {"train/groups/all_right": 0.7}, {}, GOOD),
        ("no_mixed_groups", {"train/groups/mixed": 0.15}, {}, GOOD),
        ("no_mixed_groups", {"train/reward_std": 0.0}, {}, GOOD),
        ("format_alone", {}, {"model.rewards": ["r1lit.rewards.LanguageConsistency"]}, GOOD),
        ("format_alone", {}, {"model.rewards": COSINE}, ONLY_FORM),
        ("format_alone", {}, {"model.rewards": LONGER}, form_paid(1.0)),
        ("unread_answers", {}, {"model.rewards": PREFILLED}, [TAGGED] * 4),
        (
            "unread_answers",
            {},
            {"model.rewards": OPEN},
            [{**TAGGED, "prompt": "<answer> <think>"}],
        ),
        ("never_earned", {"train/reward/overlong": -0.8}, {"model.rewards": SHORTER}, GOOD),
        ("reward_hacked", {}, {"model.rewards": INVERTED}, GOOD),
        ("reward_hacked", {}, {}, UNPAID),
        ("reward_hacked", {"train/reward/longer": (1.0, 2.0)}, {"model.rewards": LONGER}, GOOD),
        ("kl_strong", {}, {"model.kl_in_reward": 2.0}, GOOD),
        ("mismatch", {"train/mismatch/share_outside": 0.03}, {}, GOOD),
        ("mismatch", {"train/mismatch/mean_abs": (0.001, 0.2)}, {}, GOOD),
        ("kl_strong", {}, {"model.objective.beta": 0.3}, GOOD),
        ("mismatch", {"train/mismatch/mean_abs": 2e-3}, EXACT, GOOD),
        ("mismatch", {"train/mismatch/mean_abs": [1e-4, 4e-3] * 5}, {}, GOOD),
        (
            "mismatch",
            {"train/mismatch/mean_abs": [0.1] + [0.0] * 9},
            {"model.max_staleness": 1},
            GOOD,
        ),
        ("mismatch", {"train/mismatch/mean_abs": 0.03}, {"model.max_staleness": 1}, GOOD),
        ("stale", {"train/mismatch/k3_kl": 0.05}, {"model.max_staleness": 1}, GOOD),
        ("stale", {}, {"model.max_staleness": 2}, GOOD),
        ("learning_rate_low", {"train/learning_rate": [1e-4] * 4 + [1e-7] * 6}, {}, GOOD),
        ("learning_rate_high", {}, {"model.optimizer.maximize": True}, GOOD),
        ("learning_rate_high", {"train/learning_rate": 0.02}, {"model.optimizer.lr": 0.02}, GOOD),
        ("learning_rate_high", {"train/loss": [0.1] * 7 + [None] * 3}, {}, GOOD),
        ("learning_rate_high", {"train/reward/format": (0.95, 0.5)}, {}, GOOD),
        ("learning_rate_high", {"train/kl_reference": [0.0] + [6.0] * 9}, {}, GOOD),
        ("far_from_rollout", {}, {"model.num_inner_epochs": 12}, GOOD),
        ("far_from_rollout", {"train/approx_kl_old": 0.018}, {}, GOOD),
        ("entropy_collapse", {"train/entropy": (0.3, 0.08), **FLAT}, {}, GOOD),
        ("incoherent", {"train/entropy": (0.3, 0.9)}, {}, GOOD),
        ("divisor", {}, {"model.objective.max_tokens": 2048}, GOOD),
        ("divisor", {}, {"model.objective": OWN}, GOOD),
        ("shorter", {"train/length/mean": (100, 50), **FLAT}, {}, GOOD),
        ("repetition", {}, {}, WAITS + GOOD * 5),
        ("clip", {}, {"model.objective.epsilon": 1e-5}, GOOD),
        ("evaluation_sampling", {}, {"model.validation_sampling": {"temperature": 0.0}}, GOOD),
        ("one_sign", {}, {}, [line("So 7 . . . . . . . . . . . . . . . . . . .")] * 2 + GOOD * 5),
        ("few_problems", {}, {}, renamed(2)),
        ("adapter_rate", SLOW_ADAPTER, {"model.policy": ADAPTER, "model.optimizer.lr": 1e-6}, GOOD),
        ("entropy_bonus", {}, {"model.objective.entropy": {"init_args": {"weight": 0.5}}}, GOOD),
        ("memory_grows", {"memory/device_gib": [9.0, 9.0, *LEAK]}, {}, GOOD),
        ("clip", {"train/clip_fraction": 0.17}, {"model.train_batch_size": 128}, GOOD),
    ],
)
def test_other_evidence_of_a_rule(name, metrics, settings, lines, tmp_path):
    found = findings(run(tmp_path, metrics, copy.deepcopy(settings), lines))
    assert [rule.name for rule, _ in found] == [name]


@pytest.mark.parametrize(("num_copies", "names"), [(0, []), (1, ["copies"])])
def test_a_few_copies_against_all_odds(num_copies, names, tmp_path):
    measured = [{"iteration": i, **WHOLE, "num_copies": num_copies} for i in range(3)]
    found = findings(run(tmp_path, {}, {}, GOOD, measured))
    assert [rule.name for rule, _ in found] == names


@pytest.mark.parametrize(
    ("optimizer", "decay", "names"),
    [
        ("Adam", 0.02, ["weight_decay"]),
        ("Adam", 0.002, []),
        ("AdamW", 0.02, []),
        ("Muon", 0.02, []),
    ],
)
def test_a_decay_that_is_a_part_of_the_gradient_may_outweigh_it(optimizer, decay, names, tmp_path):
    settings = {
        "model.optimizer": {
            "class_path": f"torch.optim.{optimizer}",
            "init_args": {"lr": 1e-5, "weight_decay": decay},
        }
    }
    measured = [{"iteration": 0, **WHOLE, "weight_norm": 50.0}]
    found = findings(run(tmp_path, {"train/grad_norm": 0.5}, settings, GOOD, measured))
    assert [rule.name for rule, _ in found] == names


@pytest.mark.parametrize(
    ("metrics", "settings", "lines"),
    [
        ({"train/reward/overlong": (-0.9, -0.1)}, {"model.rewards": SHORTER}, GOOD),
        ({"train/reward/longer": (1.0, 1.1)}, {"model.rewards": LONGER}, GOOD),  # by chance
        (
            {ACCURACY: (0.2, 0.08), "train/reward": 1},
            {"data.rollout.prompts_per_iteration": 1},
            GOOD,
        ),  # by chance
        ({"train/length/mean": (50, 100), ACCURACY: (0.3, 0.32)}, FEW, GOOD),  # too few to say
        ({}, {}, OPEN_MIXED),  # right answers earn most, though the form earns too
        ({}, {"model.sampling.top_k": 50}, GOOD),
        ({"train/mismatch/k3_kl": 0.05}, {"model.max_staleness": 4, "model.correction": TIS}, GOOD),
        ({"train/clip_fraction": 0.14}, {}, GOOD),
        ({"train/clip_fraction": 0.4}, {"model.objective": SEQUENCE}, GOOD),
        ({"train/grad_norm": 10.0}, {"model.max_grad_norm": 0.05}, GOOD),
        ({}, {"model.validation_sampling": {"temperature": 0.6}}, GOOD),
        ({}, {"model.optimizer.weight_decay": 0.1}, GOOD),
        ({"train/entropy_weight": 0.001}, {}, GOOD),
        ({"train/kl_reference": [0.1] * 8 + [30.0] * 2}, {}, GOOD),  # k3 of one rare token
        ({"memory/host_gib": [4.0, 6.0, 7.0, 7.5, 7.7, 7.8, 7.9, 7.9, 7.9, 7.9]}, {}, GOOD),
        ({"memory/host_gib": [4.0, 4.9] * 5}, {}, GOOD),
        ({"train/environment/calls": (1.0, 0.5)}, {}, GOOD),
        ({}, {"model.policy": ADAPTER}, GOOD),
        ({}, {}, [line("<think> 1 + 1 ... 3 !!! </think> <answer> 7 * 6 </answer>", "right")] * 4),
        ({"train/groups/mixed": 0.1, "train/groups/all_right": (0.1, 0.95)}, {}, GOOD),  # solved
        ({"train/mismatch/mean_abs": 0.03}, {}, GOOD),  # bfloat16
        ({"train/mismatch/mean_abs": 4e-3}, {**EXACT, "model.engine": SERVER}, GOOD),
        (
            {"train/mismatch/mean_abs": [1e-3] + [0.05] * 9},
            {"model.max_staleness": 4, **MASKED},
            GOOD,
        ),
        ({"train/mismatch/k3_kl": 0.03}, {"model.correction": TIS}, GOOD),
        ({"train/entropy": (0.3, 0.08), ACCURACY: (0.3, 0.7)}, {}, GOOD),
        (
            {"train/learning_rate": 1e-4},
            {"model.optimizer.lr": 0.02, "model.lr_scheduler": CYCLE},
            GOOD,
        ),
        ({}, {}, [line("<think> wait wait wait wait . " + RIGHT, "right")] * 4),
        ({}, {}, [line("42", "unparsed")] * 3 + GOOD * 4),  # a few are unread at first
        (
            {},
            {},
            [line("The answer is 42.", "unparsed", "42")] * 2 + GOOD * 5,
        ),  # right, but untagged
        ({}, {"model.rewards": LONGER}, form_paid(1.5)),
        ({}, {"model.rewards": PREFILLED}, [{**TAGGED, "prompt": "<answer> <think>"}] * 4),
        ({}, {"model.rewards": CONDITIONAL}, [{**GOOD[0], "rewards": PAID}] * 4),
        ({"train/reward/format": (0.2, 0.9)}, {}, [TAGGED] * 4),
        ({}, {}, groups([(RIGHT, "right", PAID)] * 4, 4, 4)),  # all right: copies do no harm
    ],
)
def test_what_only_looks_like_a_fault(metrics, settings, lines, tmp_path):
    assert findings(run(tmp_path, metrics, copy.deepcopy(settings), lines)) == []


def test_old_weights_show_in_a_mismatch_that_grows(tmp_path):
    made = run(tmp_path, {"train/mismatch/mean_abs": (0.001, 0.2)}, {}, GOOD)
    assert "old weights" in findings(made)[0][1]
