"""Each side runs for real, at a tiny size, and reaches the forced lengths exactly."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import LoraConfig

from benchmarks import hf_generate, ours, problems
from benchmarks.hf_generate import end_at, warmup_lengths
from benchmarks.sizes import sft_work
from benchmarks.worker import ROOT, Worker, WorkerError
from r1lit.policy import load_tokenizer

PARTS = {"seconds", "rollout_s", "grade_s", "update_s", "num_tokens"}


def test_both_rollouts_have_exactly_the_forced_lengths_and_the_same_prompts(steps, tiny_work):
    mine = steps(ours.run_rollout, 2, work=tiny_work, compile=False)
    theirs = steps(hf_generate.run_rollout, 2, work=tiny_work)
    assert [step["lengths"] for step in mine] == [list(tiny_work.lengths)] * 2
    assert theirs[1]["lengths"] == list(tiny_work.lengths)
    assert [s["prompt_lengths"] for s in mine] == [s["prompt_lengths"] for s in theirs]


class Recording(ours.ForcedLengths):
    """Keeps the prompts that it was given."""

    def generate(self, requests, on_finished=None):
        self.seen = [*getattr(self, "seen", []), tuple(request.prompt for request in requests)]
        return super().generate(requests, on_finished)


@pytest.mark.long
def test_the_peers_get_the_prompts_that_the_data_module_trains_on(steps, tiny_work):
    engine = Recording(tiny_work.lengths, compile=False)
    steps(ours.run_iterations, 3, work=tiny_work, engine=engine)
    loader = problems.prompt_loader(tiny_work, load_tokenizer(tiny_work.model), 3)
    assert engine.seen == [loader.batch(i).prompts for i in range(3)]


@pytest.mark.long
def test_our_iterations_train_on_the_forced_lengths(steps, tiny_work):
    reports = steps(ours.run_iterations, 2, work=tiny_work, compile=False)
    assert all(set(report) >= PARTS for report in reports)
    assert [report["num_tokens"] for report in reports] == [sum(tiny_work.lengths)] * 2
    assert all(report["seconds"] >= report["rollout_s"] + report["update_s"] for report in reports)


@pytest.mark.long
def test_an_adapter_is_updated_without_decoding(steps, tiny_work):
    adapter = LoraConfig(r=2, target_modules="all-linear")
    own = {"adapter": adapter, "decode": False, "gradient_checkpointing": True}
    reports = steps(ours.run_iterations, 2, work=tiny_work, **own)
    assert [report["num_tokens"] for report in reports] == [sum(tiny_work.lengths)] * 2


def test_trl_trains_on_the_forced_lengths(steps, tiny_work):
    trl_side = pytest.importorskip("benchmarks.trl_side", exc_type=ImportError)
    reports = steps(trl_side.run_iterations, 2, work=tiny_work, micro_rows=2, iterations=4)
    assert all(set(report) >= PARTS for report in reports)
    # the mask that TRL saw is asserted against the lengths in its reward function
    assert reports[1]["num_tokens"] == sum(tiny_work.lengths)


@pytest.mark.long
@pytest.mark.parametrize("side", ["ours", "trl_side"])
def test_responses_that_end_by_themselves_are_timed_and_evaluated(steps, tiny_work, side):
    module = pytest.importorskip(f"benchmarks.{side}", exc_type=ImportError)
    work = replace(tiny_work, lengths=None)
    own = {"compile": False} if side == "ours" else {"micro_rows": 2, "iterations": 4}
    reports = steps(module.run_iterations, 2, work=work, evaluate_every=2, **own)
    assert ["pass_at_1" in report for report in reports] == [False, True]
    assert all(0 < report["rollout_s"] < report["seconds"] for report in reports)


def test_a_wrong_length_does_not_go_unnoticed_in_trl(steps, tiny_work, monkeypatch):
    trl_side = pytest.importorskip("benchmarks.trl_side", exc_type=ImportError)
    monkeypatch.setattr(trl_side, "RecordedLengths", lambda lengths, width: _never)
    monkeypatch.setattr(trl_side, "end_at", lambda tokens, *arguments, **options: tokens)
    with pytest.raises(AssertionError):
        steps(trl_side.run_iterations, 1, work=tiny_work, micro_rows=2, iterations=2)


def _never(input_ids, scores, **options):
    return torch.zeros(len(input_ids), dtype=torch.bool)


@pytest.mark.parametrize("settings", [{"packing": False}, {"packing_strategy": "bfd"}])
def test_both_supervised_sides_train_on_all_documents_in_every_update(steps, folder, settings):
    work = replace(sft_work("135M", folder, tiny=True), precision="fp32")
    mine = steps(ours.run_updates, 2, work=work)
    assert [step["num_tokens"] for step in mine] == [sum(work.lengths)] * 2
    trl_side = pytest.importorskip("benchmarks.trl_side", exc_type=ImportError)
    theirs = steps(trl_side.run_updates, 2, work=work, micro_rows=1, **settings)
    assert [step["num_tokens"] for step in theirs] == [sum(work.lengths)] * 2


def test_responses_are_cut_at_their_length_and_hold_one_end():
    tokens = torch.tensor([[2, 2, 7, 2], [5, 6, 2, 8]])
    assert end_at(tokens, [3, 4], eos=2, pad=0, other=9).tolist() == [[9, 9, 2, 0], [5, 6, 9, 2]]
    assert warmup_lengths([3, 500]) == [3, 16]


@pytest.mark.long
def test_a_worker_says_why_it_died():
    with (
        Worker("benchmarks.limits:nothing", timeout=60) as worker,
        pytest.raises(WorkerError, match=r"(?s)exit status 1.*has no attribute 'nothing'"),
    ):
        worker.step()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the two apart")
def test_a_worker_s_memory_is_its_own(tmp_path):
    (tmp_path / "idle.py").write_text(
        "def run(gate):\n    for _ in gate:\n        gate.report(seconds=0.0)\n"
    )
    of_the_parent = torch.ones(1 << 27)
    path = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    with Worker("idle:run", timeout=60, environment=path) as worker:
        assert 1 < worker.step()["peak_rss_mb"] < of_the_parent.nbytes / 2**20


def test_the_clock_runs_from_start_to_stop(steps):
    def target(gate):
        for _ in gate:
            time.sleep(0.2)
            gate.start()
            time.sleep(0.01)
            gate.stop()
            time.sleep(0.2)
            gate.report(num_tokens=10)

    for step in steps(target, 2):
        assert 0.01 <= step["seconds"] < 0.1
        assert step["seconds_per_1000_tokens"] == pytest.approx(100 * step["seconds"])
        assert step["cpu_s"] < 0.1
