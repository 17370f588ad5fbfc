"""The study of wrong responses: its arms by hand, verdicts on planted rows, its page."""

from __future__ import annotations

import json
from math import log, sqrt
from typing import Any

import pytest
import torch
from tiny_sweep import ROOT, study_file

from experiments.__main__ import main
from experiments.compose import value_at
from experiments.sequential import ALPHA, level, simulate
from experiments.sweep import read_sweep
from experiments.wrong_length import verdicts
from experiments.wrong_length.report import read_run, report
from r1lit.errors import import_path
from r1lit.files import read_records, write_records
from r1lit.objectives import LossInputs, Objective
from r1lit.seeding import generator

ARMS = ("dr-grpo", "length", "std", "epsilon", "grpo", "r1", "norm-clip")
PLACE = "model.init_args.objective"


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def configs() -> dict[str, dict[str, Any]]:
    sweep = read_sweep(study_file("wrong_length"))
    return {arm: sweep.point(arm, 0).config for arm in sweep.variants}


def made(node: Any) -> Any:
    """Return what a config's class and arguments make."""
    if not (isinstance(node, dict) and "class_path" in node):
        return node
    arguments = node.get("init_args") or {}
    return import_path(node["class_path"])(**{k: made(v) for k, v in arguments.items()})


LENGTHS = (2, 4, 1, 4)
REWARDS = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
"""Of a group of four: mean 1/4, standard deviation sqrt(3)/4."""


def pull(objective: Objective, ratio: float = 1.0, reference: float = 1.0) -> list[float]:
    """Return the gradient of J at the first token of each response, times 4 rows.

    Every token has the ratio pi / pi_old; ``reference`` is pi_ref / pi.
    """
    mask_BT = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
    logp_BT = torch.full((4, 4), -1.0, dtype=torch.float64, requires_grad=True)
    advantage_B1 = objective.advantage(REWARDS).reshape(-1, 1)
    inputs = LossInputs(
        logp_BT=logp_BT,
        logp_old_BT=logp_BT.detach() - log(ratio),
        logp_ref_BT=logp_BT.detach() + log(reference),
        advantage_BT=advantage_B1.expand(4, 4),
        mask_BT=mask_BT,
        num_rows=4.0,
        num_tokens=float(sum(LENGTHS)),
    )
    (gradient_BT,) = torch.autograd.grad(objective.loss(inputs).loss, logp_BT)
    return (-4 * gradient_BT[:, 0]).tolist()


CENTRED = (3 / 4, -1 / 4, -1 / 4, -1 / 4)
NORMALISED = (sqrt(3), -1 / sqrt(3), -1 / sqrt(3), -1 / sqrt(3))
BUDGET = (1280,) * 4
PARTS = {
    "dr-grpo": (CENTRED, BUDGET, 0.2),
    "length": (CENTRED, LENGTHS, 0.2),
    "std": (NORMALISED, BUDGET, 0.2),
    "epsilon": (CENTRED, BUDGET, 10.0),
    "grpo": (NORMALISED, LENGTHS, 0.2),
    "r1": (NORMALISED, LENGTHS, 10.0),
    "norm-clip": (CENTRED, BUDGET, 0.2),
}
"""By arm: advantages, what divides a response's sum over tokens, the clip."""


@pytest.mark.parametrize("arm", ARMS)
def test_each_arm_is_its_parts_by_hand(arm):
    objective = made(value_at(configs()[arm], PLACE))
    advantages, divisors, epsilon = PARTS[arm]
    on_policy = [a / n for a, n in zip(advantages, divisors, strict=True)]
    assert pull(objective) == pytest.approx(on_policy, rel=1e-5)  # std_epsilon is 1e-6

    # ratio 3: above 1.2 and below 11; the clip is for the right response
    right, *wrong = pull(objective, ratio=3.0)
    assert right == pytest.approx(0.0 if epsilon == 0.2 else 3 * on_policy[0], rel=1e-5)
    assert wrong == pytest.approx([3 * one for one in on_policy[1:]], rel=1e-5)
    # ratio 1/2: below 0.8, no ratio is below -9; the clip is for wrong ones
    right, *wrong = pull(objective, ratio=0.5)
    assert right == pytest.approx(on_policy[0] / 2, rel=1e-5)
    unclipped = [0.0 if epsilon == 0.2 else one / 2 for one in on_policy[1:]]
    assert wrong == pytest.approx(unclipped, rel=1e-5)

    # beta 0.001 in every arm: k3's gradient is 1 - pi_ref / pi, here -1, divided as the rest
    penalised = [a + 0.001 / n for a, n in zip(on_policy, divisors, strict=True)]
    assert pull(objective, reference=2.0) == pytest.approx(penalised, rel=1e-5)


def test_each_single_arm_differs_from_the_control_in_one_part():
    control = PARTS["dr-grpo"]
    for place, arm in enumerate(("std", "length", "epsilon")):
        differ = [own != theirs for own, theirs in zip(PARTS[arm], control, strict=True)]
        assert differ == [index == place for index in range(3)], arm
    assert set(verdicts.PARTS) == {"length", "std", "epsilon"}


def test_nothing_but_the_objective_differs():
    found = configs()
    assert tuple(found) == ARMS and ARMS[0] == verdicts.CONTROL and ARMS[-1] == verdicts.NORM_CLIP
    base = found["dr-grpo"]
    (refresh,) = (
        found["r1"]["trainer"].pop("callbacks+", [])
        or found["r1"]["trainer"]["callbacks"][len(base["trainer"]["callbacks"]) :]
    )
    assert refresh["class_path"].endswith("ReferenceRefresh")
    every = refresh["init_args"]["every_n_iterations"]
    assert every > base["data"]["init_args"]["num_iterations"], "so it changes nothing"
    for arm, config in found.items():
        own = json.loads(
            json.dumps(config).replace(f"wrong_length/{arm}/", "wrong_length/dr-grpo/")
        )
        wanted = json.loads(json.dumps(base))
        kept = len(base["trainer"]["callbacks"])
        own["trainer"]["callbacks"] = own["trainer"]["callbacks"][:kept]
        if arm == "norm-clip":
            assert own["model"]["init_args"].pop("max_grad_norm") == 0.005
            wanted["model"]["init_args"].pop("max_grad_norm")
        else:
            own["model"]["init_args"].pop("objective")
            wanted["model"]["init_args"].pop("objective")
        assert own == wanted, arm


# Verdicts on simulated rows

SPREAD = {0: (0, 1, -1), 1: (1, -1, 0), 2: (-1, 0, 1)}
"""What three seeds add, by arm: mean 0, and differences of arms vary by seed."""


def run(arm: str, seed: int, wrong: float, right: float, accuracy: float, noise: float = 0.0):
    """Return a run whose numbers go straight from those of the base to these."""
    start = {"pass_at_1": 0.2, "response_length_wrong": 45.0, "response_length_right": 43.0}
    kind = ARMS.index(arm) % 3
    more = noise * SPREAD[(kind + seed // 3) % 3][seed % 3]
    end = {
        "pass_at_1": accuracy + more / 1000,
        "response_length_wrong": wrong + 10 * more,
        "response_length_right": right + more,
    }
    evaluations = [
        {
            "iteration": iteration,
            **{key: start[key] + (end[key] - start[key]) * iteration / 45 for key in start},
            "truncated": 0.1 * iteration / 45,
            "num_problems": 48,
            "num_samples": 16,
        }
        for iteration in range(0, 46, 9)
    ]
    return {
        "variant": arm, "seed": seed, "seconds": 700.0, "final": evaluations[-1],
        "evaluations": evaluations, "grad_norm": 0.004,
        "wrong": {f"problem-{place}": [8, wrong + 10 * more + place] for place in range(4)},
    }  # fmt: skip


def rows(seeds: int = 3, noise: float = 1.0, **ends: tuple[float, float, float]):
    """Return runs of every arm, by their last tokens, wrong and right, and pass@1."""
    control = (250.0, 130.0, 0.6)
    named = {name.replace("_", "-"): end for name, end in ends.items()}
    return [
        run(arm, seed, *named.get(arm, control), noise) for seed in range(seeds) for arm in ARMS
    ]


def read(records: list[dict[str, Any]]) -> tuple[dict[str, list[str]], str]:
    """Return the cells of each arm's verdicts, and the part that is named, as the page has them."""
    page, _ = report(records)
    table = page.partition("### Verdicts\n\n")[2].partition("\n\n")[0].splitlines()
    cells = [line.strip("| ").split(" | ") for line in table[2:]]
    named = page.partition("Part that lengthens wrong responses: **")[2].partition("**")[0]
    return {arm: own for arm, _, *own in cells}, named


def test_a_part_that_was_planted_is_found():
    table, part = read(rows(8, std=(300.0, 130.0, 0.6), length=(700.0, 130.0, 0.6)))
    assert part == "length"
    assert table["length"] == ["fails: length", "longer", "longer", "longer", "longer"]
    assert table["std"][1] == "longer" and table["epsilon"][1] == "not clear"
    _, part = read(rows(8, std=(500.0, 130.0, 0.6), length=(400.0, 130.0, 0.6)))
    assert part == "std", "the largest"
    _, part = read(rows(8, length=(100.0, 130.0, 0.6), grpo=(900.0, 130.0, 0.6)))
    assert part == "no single part", "length shortens, and both together are no single part"


def test_objections_to_a_part_are_named():
    _, part = read(rows(8, length=(700.0, 130.0, 0.6), norm_clip=(690.0, 130.0, 0.6)))
    assert part == "length; but clipping the norm as often lengthens them too"
    _, part = read(rows(8, std=(700.0, 130.0, 0.6), norm_clip=(690.0, 130.0, 0.6)))
    assert part == "std"
    _, part = read(rows(3, noise=3.0, length=(700.0, 130.0, 0.6)))
    assert part == "length; but the sequential test does not call it clear"


def test_no_part_is_named_where_none_lengthens():
    table, part = read(rows(8))
    assert part == "no single part"
    assert all(own[1] == "not clear" for arm, own in table.items() if arm != "dr-grpo")
    _, part = read(rows(8, noise=60.0, length=(400.0, 130.0, 0.6)))
    assert part == "no single part", "seeds differ by more"


def test_an_arm_fails_by_accuracy_or_by_length():
    alike = (215.0, 213.0, 0.6)  # both grow by 170
    table, _ = read(rows(
        dr_grpo=alike, length=(250.0, 213.0, 0.6), std=(215.0, 213.0, 0.5),
        grpo=(400.0, 213.0, 0.5), r1=(215.0, 213.0, 0.5999), epsilon=(150.0, 213.0, 0.6),
        norm_clip=alike, noise=0.5,
    ))  # fmt: skip
    found = {arm: own[0] for arm, own in table.items()}
    assert found == {
        "dr-grpo": "does not fail",
        "length": "fails: length",
        "std": "fails: pass@1",
        "grpo": "fails: pass@1, length",
        "r1": "does not fail",
        "epsilon": "does not fail",
        "norm-clip": "does not fail",
    }


def test_two_seeds_have_no_verdict():
    table, part = read(rows(2, length=(700.0, 130.0, 0.5)))
    assert all(cell in ("–", "no verdict yet: 2 of 3 seeds") for own in table.values()
               for cell in own)  # fmt: skip
    assert part == "no verdict yet: seeds of 3: length 2, std 2, epsilon 2"
    report(rows(1))
    report([own for own in rows(3) if own["variant"] == "length"])


def test_longer_wrong_responses_of_harder_problems_are_told_apart():
    """The arm solves the two problems with short wrong responses; on the others it is as long."""
    records = rows(8, noise=0.3, length=(400.0, 130.0, 0.8))
    for own in records:
        shift = 0.1 * own["seed"] * (own["variant"] == "length")
        lengths = {"a": 100.0, "b": 120.0, "c": 400.0, "d": 420.0}
        kept = list(lengths)[2 * (own["variant"] == "length") :]
        own["wrong"] = {uid: [3, lengths[uid] + shift * (-1) ** own["seed"]] for uid in kept}
    table, _ = read(records)
    assert table["length"][1] == "longer" and table["length"][3] == "not clear"
    first, second = (next(r for r in records if r["variant"] == arm and r["seed"] == 1)
                     for arm in ("length", "dr-grpo"))  # fmt: skip
    assert verdicts.on_same_problems(first, second) == pytest.approx(-0.1)
    assert verdicts.on_same_problems({**first, "wrong": {"a": [1, 5.0]}}, first) is None


def test_tokens_at_equal_accuracy_by_hand():
    def curve(*points: tuple[float, float | None]) -> dict[str, Any]:
        return {"evaluations": [{"pass_at_1": a, verdicts.WRONG: n} for a, n in points]}

    better, worse = curve((0.2, 40), (0.5, 100), (0.7, 300)), curve((0.2, 40), (0.6, 150))
    assert verdicts.tokens_at(better, 0.6) == 200.0  # half way between 100 and 300
    assert verdicts.at_equal_accuracy(better, worse) == 50.0
    assert verdicts.at_equal_accuracy(worse, better) == -50.0
    fell = curve((0.2, 40), (0.6, 200), (0.4, 90), (0.5, 110), (0.45, 120))
    assert verdicts.tokens_at(fell, 0.45) == 120.0, "its end"
    assert verdicts.tokens_at(fell, 0.48) == 106.0, "the last time that it rose so far"
    assert verdicts.tokens_at(fell, 0.1) is None
    assert verdicts.tokens_at(curve((0.2, 40), (0.5, 100), (1.0, None)), 0.5) == 100.0


# Rows that are there


def test_committed_rows_of_the_two_outer_arms():
    names = {"recipe": "dr-grpo", "r1-objective": "r1"}
    records = [
        {**own, "variant": names[own["variant"]]}
        for own in read_records(ROOT / "experiments/what_rl_adds/results.jsonl")
        if own["part"] == "controls" and own["variant"] in names
    ]
    page, figure = report(records)
    table, part = read(records)
    assert table["dr-grpo"] == ["fails: length", *["–"] * 4]
    assert table["r1"] == ["does not fail", "not clear", "not clear", "–", "longer"]
    assert part == "no verdict yet: seeds of 3: length 0, std 0, epsilon 0"
    assert "| r1 | 3 | +419 (-106 to +944) | 0.075 | 0.075 | 690 | 0.038 | 2 |" in page
    assert "| r1 | 3 | +0.100 (-0.013 to +0.213) | 0.063 | 0.063 | 0.149 | 0.031 | 1 |" in page
    assert "| dr-grpo | 3 | 0.191 → 0.593 ± 0.002 | 45 → 261 ± 6 |" in page
    # seed 0: r1 passes 0.5885 between 0.5234 (309 tokens) and 0.6549 (522), half way; 414 − 272
    r1, control = (
        next(r for r in records if r["variant"] == arm and r["seed"] == 0)
        for arm in ("r1", "dr-grpo")
    )
    assert verdicts.at_equal_accuracy(r1, control) == pytest.approx(414.1 - 272.2, abs=0.1)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Wrong responses", "Right responses", "Accuracy on held-out problems"
    ]  # fmt: skip
    readme = (ROOT / "experiments/wrong_length/README.md").read_text()
    for said in ("+130 (96 to 165)", "+527 (−9 to 1,063)", "+145 (54 to 235)"):
        plain = said.replace("−", "-").replace(",", "").replace("(", "(+").replace("(+-", "(-")
        assert said in readme and plain.replace(" to ", " to +") in page


def test_a_run_folder_is_read(tmp_path):
    def row(iteration: int, uid: str, value: float, tokens: int, finished: bool = True):
        return {
            "split": "val", "iteration": iteration, "uid": uid, "value": value,
            "canonical": None, "num_tokens": tokens, "finished": finished,
        }  # fmt: skip

    write_records(tmp_path / "responses.jsonl", [
        row(0, "a", 0.0, 40), row(0, "b", 1.0, 41),
        {**row(0, "a", 0.0, 999), "split": "train"},
        row(2, "b", 0.0, 100, finished=False), row(2, "a", 0.5, 20), row(2, "b", 0.0, 50),
        row(2, "a", 1.0, 900), row(2, "c", 0.0, 60),
    ])  # fmt: skip
    norms = [{"iteration": 0, "train/grad_norm": 0.01}, {"iteration": 1, "train/grad_norm": 0.03}]
    write_records(tmp_path / "metrics.jsonl", norms)
    evaluations = [{"iteration": 0, "pass_at_1": 0.5}, {"iteration": 2, "pass_at_1": 0.2}]
    result = {"variant": "length", "seed": 3, "seconds": 9.0, "evaluations": evaluations}
    found = read_run(result, tmp_path)
    assert found["wrong"] == {"a": [1, 20.0], "b": [2, 75.0], "c": [1, 60.0]}
    assert found["grad_norm"] == pytest.approx(0.02)
    assert [own["truncated_wrong"] for own in found["evaluations"]] == [0.0, 0.25]
    ended = [own["response_length_wrong_ended"] for own in found["evaluations"]]
    assert ended == [40.0, pytest.approx(130 / 3)]
    assert found["final"] == found["evaluations"][-1] and found["final"]["pass_at_1"] == 0.2


def test_the_readme_says_what_eight_seeds_can_see():
    readme = (ROOT / "experiments/wrong_length/README.md").read_text()
    said = (
        "2.0 standard deviations clear in 76 of 100 simulated studies, one of 2.5 in 94, one of 1.0"
    )
    assert said in readme and f"--most {verdicts.MOST_SEEDS} " in readme
    values = generator(0, "wrong-length").normal(size=(10_000, verdicts.MOST_SEEDS))
    at_each = level(verdicts.MOST_SEEDS, ALPHA / (len(ARMS) - 1))
    for effect, clear in ((2.0, 0.76), (2.5, 0.94), (1.0, 0.17)):
        assert simulate(values + effect, at_each).clear == pytest.approx(clear, abs=0.015)


@pytest.mark.long
def test_a_dry_run_reads_every_config(tmp_path, capsys):
    assert main(["wrong_length", "--dry-run", f"--output={tmp_path}"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"new          {tmp_path}/{arm}/seed-{seed}" for seed in range(3)
                     for arm in ARMS]  # fmt: skip
