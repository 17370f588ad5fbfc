"""Verdicts that take long: they overlap updates, survive a kill, and may not come at all."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from test_resume import assert_equal, everything
from tiny import CORRECTION, ROOT, ahead, data, grpo_config, merge, model, step
from transformers import AutoTokenizer

from r1lit.cli import main
from r1lit.collect.ahead import Pending
from r1lit.problems import Problem, Verdict
from r1lit.rollout import Completion
from r1lit.rollout.grading import BackgroundGrading
from r1lit.rollout.stored_completions import as_tensors, completions_of
from r1lit.rollout.worker import Timings
from r1lit.verifiers import Grader, Verifier

TRAINED = threading.Semaphore(0)
DEADLINE_S = 120


class Slow(Verifier):
    """Right for half of the texts; sleeps, or has no verdict on responses to some problems."""

    needs_answer = False
    in_background = True
    excused_statuses = ("timeout",)
    num_workers = 16

    def __init__(self, seconds: float = 0.0, silent: str = "", max_excused: float = 0.5) -> None:
        self.seconds = seconds
        self.silent = silent
        self.max_excused = max_excused
        self.texts: list[str] = []

    def verify(self, response: str, problem: Problem) -> Verdict:
        self.texts.append(response)
        time.sleep(self.seconds)
        if self.silent and problem.uid.endswith(tuple(self.silent)):
            return Verdict(value=0.0, status="timeout", canonical=None, reason="no word in 3 s")
        right = hashlib.sha256(f"{response} {problem.uid}".encode()).digest()[0] < 128
        status: Any = "right" if right else "wrong"
        return Verdict(value=float(right), status=status, canonical=None, reason="", seconds=0.5)


class AfterTraining(Slow):
    """Decides about a second rollout only once the first one has been trained on."""

    def verify(self, response: str, problem: Problem) -> Verdict:
        verdict = super().verify(response, problem)
        if len(self.texts) > 16:
            assert TRAINED.acquire(timeout=DEADLINE_S), "no update while a verdict was waited for"
            TRAINED.release()
        return verdict


class Trained(Callback):
    """Says that an iteration has been trained; keeps the rollouts."""

    rollouts: list[Any] = []  # noqa: RUF012 - of the only run of a test

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *args: Any) -> None:
        Trained.rollouts.append(outputs["rollout"])
        TRAINED.release()


def slow(k: int, name: str = "Slow", **init_args: Any) -> dict[str, Any]:
    verifier = {"class_path": f"test_slow_verdicts.{name}", "init_args": init_args}
    grader = {
        "class_path": "r1lit.verifiers.Grader",
        "init_args": {"verifiers": {"countdown": verifier, "math": verifier}},
    }
    change = model(grader=grader, rewards=[{"class_path": "r1lit.rewards.Accuracy"}])
    return merge(change, model(collector=ahead(k), steps=[CORRECTION]) if k else {})


def lines_of(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "train/loss" in line]


def trained_callback() -> tuple[str, str]:
    Trained.rollouts.clear()
    return "--trainer.callbacks+", json.dumps([{"class_path": "test_slow_verdicts.Trained"}])


def test_verdicts_are_waited_for_only_when_they_are_trained_on(fit, tmp_path: Path):
    two = {"data": {"init_args": {"num_iterations": 2, "validation": None}}}
    two["trainer"] = {"limit_val_batches": 0}
    fit("run", slow(1, "AfterTraining"), two, args=trained_callback())
    lines = lines_of(tmp_path / "run")
    assert len(lines) == 2 and all(line["time/evaluation_s"] == 8.0 for line in lines)
    assert all(line["time/evaluation_longest_s"] == 0.5 for line in lines)
    assert all(0.0 <= line["time/evaluation_hidden"] <= 1.0 for line in lines)


NO_VERDICT = merge(
    slow(0, silent="0123456789abcdef", max_excused=1.0),
    {
        "data": {"init_args": {"num_iterations": 1, "validation": None}},
        "trainer": {"limit_val_batches": 0, "val_check_interval": 1},
    },
)


def test_a_process_model_learns_nothing_of_a_verdict_that_does_not_come(fit, tmp_path: Path):
    """Labelled wrong, its responses would move the weights."""
    sgd = {"class_path": "torch.optim.SGD", "init_args": {"lr": 1.0}}
    implicit = {"advantage": {"class_path": "r1lit.objectives.ImplicitProcess"}}
    dapo = {"class_path": "r1lit.objectives.DAPO", "init_args": implicit}
    own = model(objective=dapo, steps=[step("ProcessModel", optimizer=sgd, beta=0.5)])
    module = fit("run", NO_VERDICT, own).model
    (line,) = lines_of(tmp_path / "run")
    assert line["train/num_groups_left_out"] == 4.0 and line["train/process_loss"] == 0.0
    assert_equal(module.process_model.state_dict(), module.process_reference.state_dict())


def test_a_verdict_that_does_not_come_says_nothing_of_a_problems_difficulty(fit, tmp_path: Path):
    """Counted as wrong, four problems would rest as hopeless."""
    fit("run", NO_VERDICT, data(difficulty={"retire_after": 1, "retry_after": 2}))
    (line,) = lines_of(tmp_path / "run")
    assert line["train/num_groups_left_out"] == 4.0
    assert line["train/difficulty/num_hopeless"] == 0.0


def test_a_verdict_that_does_not_come_leaves_its_group_out(fit, tmp_path: Path):
    fit("run", slow(0, silent="13579", max_excused=1.0), args=trained_callback())
    lines, left = lines_of(tmp_path / "run"), 0
    for line, rollout in zip(lines, Trained.rollouts, strict=True):
        statuses = [r.verdict.status for r in rollout.responses]
        groups = [statuses[i : i + 4] for i in range(0, 16, 4)]
        for p, group in enumerate(groups):
            without = "timeout" in group
            rows = slice(4 * p, 4 * p + 4)
            assert rollout.loss_mask_BT[rows].any() != without
            if without:
                assert not rollout.advantage_BT[rows].any() and not rollout.reward_PG[p].any()
        num = sum("timeout" in group for group in groups)
        assert line["train/num_groups_left_out"] == num
        left += num
    assert 0 < left < 4 * len(lines)


def test_too_many_missing_verdicts_end_the_run_in_one_line(fit):
    with pytest.raises(ValueError, match="responses got no verdict of '") as error:
        fit("run", slow(0, silent="0123456789", max_excused=0.25))
    text = str(error.value)
    assert "max_excused: 0.25" in text and "no word in 3 s" in text and "\n" not in text


def completion(n: int) -> Completion:
    ids = torch.arange(n + 1)
    return Completion(token_ids=ids, logps=-ids.float(), finish_reason="stop", version=1)


def test_a_checkpoint_keeps_the_verdicts_that_there_are():
    verdict = Verdict(
        value=0.0, status="wrong", canonical="x", reason="é", seconds=2.5, details={"a": 1}
    )
    given = [replace(completion(1), verdict=verdict), completion(2)]
    assert [c.verdict for c in completions_of(as_tensors(given))] == [verdict, None]
    old = {k: v for k, v in as_tensors(given).items() if "verdict" not in k}
    assert [c.verdict for c in completions_of(old)] == [None, None]


def test_what_is_decided_is_kept_and_not_decided_again(policy: Path):
    tokenizer = AutoTokenizer.from_pretrained(policy)
    problems = [
        Problem(uid=str(n), question="", answer="", source="", verifier="slow") for n in range(3)
    ]
    completions = [completion(n) for n in range(3)]
    done: Future[list[Completion]] = Future()
    done.set_result(completions)
    before, after = Slow(), Slow()
    with BackgroundGrading(Grader({"slow": before}), tokenizer, problems) as grading:
        assert grading._threads._max_workers == 16
        for row in (0, 2):
            grading.begin([row], [completions[row]])
        for _, future in grading._begun:
            future.result(timeout=DEADLINE_S)
        kept = Pending(completions=done, grading=grading).kept()
    assert [c.verdict is None for c in kept] == [False, True, False]
    with BackgroundGrading(Grader({"slow": after}), tokenizer, problems) as grading:
        responses = grading.finish(completions_of(as_tensors(kept)))
    assert len(before.texts) == 2 and len(after.texts) == 1
    assert [r.verdict for r in responses[::2]] == [c.verdict for c in kept[::2]]


def test_what_is_hidden_is_what_nobody_waited_for():
    timings = Timings(grade=2.0, evaluation=8.0)
    assert timings.metrics()["time/evaluation_hidden"] == 0.75
    assert Timings(grade=2.0).metrics()["time/evaluation_hidden"] == 0.0
    assert Timings(grade=9.0, evaluation=8.0).metrics()["time/evaluation_hidden"] == 0.0


@pytest.mark.slow
def test_ten_kills_with_slow_verdicts_change_nothing(tmp_path: Path, policy: Path):
    ten = {"data": {"init_args": {"num_iterations": 10}}}
    change = merge(slow(2, seconds=0.3, silent="3", max_excused=1.0), ten)
    whole, broken = (grpo_config(tmp_path / n, policy, change) for n in ("whole", "broken"))
    main(["fit", "-c", str(whole)])
    here = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]
    for iteration in range(10):
        kill = {"class_path": "test_resume.KillAt", "init_args": {"iteration": iteration}}
        words = ["fit", "-c", str(broken), "--trainer.callbacks+", json.dumps([kill])]
        saved = (tmp_path / "broken" / "checkpoints" / "last.ckpt").exists()
        words += ["--ckpt_path", "last"] if saved else []
        ended = subprocess.run(
            [sys.executable, "-c", f"from r1lit.cli import main; main({words!r})"],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(here)},
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    assert_equal(everything(tmp_path / "whole"), everything(tmp_path / "broken"))
