"""Teachers that are the student itself, and several at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_resume import assert_equal
from tiny import data, merge, save_policy
from tiny_distillation import losses, off_policy, on_policy, problems, weights

from r1lit.cli import main
from r1lit.objectives import ForwardKL
from r1lit.policy import ModelTeacher, Teachers
from r1lit.policy.teacher import MixedScores


def itself(policy: Path) -> dict[str, Any]:
    return {"class_path": "r1lit.policy.ModelTeacher", "init_args": {"model": str(policy)}}


@pytest.fixture
def sums(tmp_path: Path) -> dict[str, Any]:
    """Problems with a demonstration each."""
    source = problems(tmp_path, "shown", "It is {}.")
    return data(train=[source], num_iterations=2, validation=None)


def run(folder: Path, policy: Path, change: dict[str, Any], *more: str, **options: Any) -> Any:
    options = {"divergence": {"class_path": "r1lit.objectives.ReverseKL"}} | options
    config = on_policy(folder, policy, change, teacher=itself(policy), **options)
    return main(["fit", "-c", str(config), *more])


def divergences(folder: Path) -> list[float]:
    return losses(folder, "train/divergence")


def test_the_teacher_alone_reads_a_demonstration(tmp_path, policy, sums) -> None:
    cli = run(tmp_path / "run", policy, sums, demonstration="shown")
    assert min(divergences(tmp_path / "run")) > 1e-3  # 0 without one: nothing to learn
    module, tokenizer = cli.model, cli.model.tokenizer
    problem = cli.datamodule.problems["train"][3]
    shown = tokenizer.decode(module._shown[problem.uid])
    assert f"{problem.question}\n\nAn example of a response:\n{problem.meta['shown']}" in shown
    own = tokenizer.decode(cli.datamodule.prompt_ids["train"][3])
    assert problem.question in own and "It is" not in own


def test_a_teacher_follows_the_student(tmp_path, policy, sums) -> None:
    run(tmp_path / "equal", policy, sums, teacher_rate=1.0)
    assert max(map(abs, divergences(tmp_path / "equal"))) < 1e-5
    one = merge(sums, data(num_iterations=1))
    cli = run(tmp_path / "half", policy, one, demonstration="shown", teacher_rate=0.25)
    before = loaded(policy)
    after = cli.model.policy.state_dict()
    there = cli.model.teacher.policy.state_dict()
    moved = 0.0
    for name, weight in there.items():
        expected = 0.75 * before[name] + 0.25 * after[name]
        torch.testing.assert_close(weight, expected, rtol=1e-5, atol=1e-6)
        moved += float((after[name] - before[name]).abs().sum())
    assert moved > 0.1


def loaded(policy: Path) -> dict[str, torch.Tensor]:
    teacher = ModelTeacher(str(policy))
    teacher.load(torch.device("cpu"))
    return teacher.policy.state_dict()


@pytest.mark.long
def test_a_followed_run_is_resumed_to_the_bit(tmp_path, policy, sums) -> None:
    options = {"demonstration": "shown", "teacher_rate": 0.3}
    four = merge(sums, data(num_iterations=4))
    run(tmp_path / "whole", policy, four, **options)
    run(tmp_path / "half", policy, sums, **options)
    run(tmp_path / "half", policy, four, "--ckpt_path", "last", **options)
    assert divergences(tmp_path / "whole") == divergences(tmp_path / "half")
    assert_equal(weights(tmp_path / "whole"), weights(tmp_path / "half"))


class Fixed:
    """Stands for the scores of a teacher with these next-token probabilities."""

    def __init__(self, *probabilities: float) -> None:
        self.states_KD = torch.tensor([probabilities]).log()

    def _logits(self, states: torch.Tensor) -> torch.Tensor:
        return states

    def target_logp(self, target_K: torch.Tensor, temperature: float) -> torch.Tensor:
        return self.states_KD[:, target_K[0]]


def test_a_mixture_by_hand() -> None:
    parts = [Fixed(0.9, 0.1), Fixed(0.5, 0.5, 0.0)]  # of unlike widths
    mixed = MixedScores(parts, [0.75, 0.25])  # type: ignore[arg-type]
    student_KV = torch.tensor([[0.3, -0.2]], requires_grad=True)
    own, there = mixed.distributions(student_KV, slice(None), 1.0)
    torch.testing.assert_close(there.exp(), torch.tensor([[0.8, 0.2]]))
    torch.testing.assert_close(mixed.target_logp(torch.tensor([1]), 1.0).exp(), torch.tensor([0.2]))
    (of_mixture,) = torch.autograd.grad(ForwardKL()(own, there).sum(), student_KV)
    own = student_KV.log_softmax(-1)
    apart = sum(
        w * ForwardKL()(own, p.states_KD[:, :2]).sum()
        for w, p in zip((0.75, 0.25), parts, strict=True)
    )
    (of_parts,) = torch.autograd.grad(apart, student_KV)
    torch.testing.assert_close(of_mixture, of_parts)


def test_two_teachers_train(tmp_path: Path, policy: Path) -> None:
    other = save_policy(tmp_path / "other", layers=3, seed=11)
    both = {
        "class_path": "r1lit.policy.Teachers",
        "init_args": {"teachers": [itself(policy), itself(other)], "weights": [1, 3]},
    }
    config = off_policy(tmp_path / "run", policy, teacher=both, logit_weight=1.0, sft_weight=0.0)
    main(["fit", "-c", str(config)])
    found = divergences(tmp_path / "run")
    assert found[0] > 0.01 and found[-1] < 0.9 * found[0]
    with pytest.raises(ValueError, match=r"teacher\.weights: \[1\.0\] are not"):
        Teachers([ModelTeacher(str(policy))] * 2, [1.0])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"demonstration": "absent"}, "holds no text under 'absent'"),
        ({"demonstration": "shown", "on_policy": 0.5}, "with on_policy: 0.5"),
        ({"teacher_rate": 2.0}, r"teacher_rate: 2\.0"),
    ],
)
def test_bad_input(tmp_path, policy, sums, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run(tmp_path / "run", policy, sums, **options)


def test_another_model_cannot_follow(tmp_path, policy, sums) -> None:
    other = save_policy(tmp_path / "other", layers=3, seed=11)
    config = on_policy(tmp_path / "run", policy, sums, teacher=itself(other), teacher_rate=0.1)
    with pytest.raises(ValueError, match="teacher_rate: the teacher's weights are not those"):
        main(["fit", "-c", str(config)])
