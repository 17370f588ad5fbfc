"""The search of the peers' settings, and the speedrun's clock, without the peers."""

from __future__ import annotations

import pytest

from benchmarks import speedrun, tune_peers, vllm_worker
from benchmarks.vllm_rollout import ENVIRONMENT


def test_the_target_is_met_on_the_line_between_two_evaluations():
    curve = [(10.0, 0.5), (20.0, 0.7), (40.0, 0.8)]
    assert speedrun.seconds_to(0.75, curve) == pytest.approx(30.0)
    assert speedrun.seconds_to(0.7, curve) == 20.0
    assert speedrun.seconds_to(0.4, curve) == 10.0  # nothing is known of before
    with pytest.raises(ValueError, match=r"0\.9 is not met"):
        speedrun.seconds_to(0.9, curve)


class Side:
    """Takes 5 s an iteration and evaluates every second one."""

    def __init__(self, accuracies):
        self.accuracies = list(accuracies)
        self.made = 0

    def step(self):
        self.made += 1
        found = {"seconds": 5.0}
        return found if self.made % 2 else found | {"pass_at_1": self.accuracies.pop(0)}


def test_a_side_is_clocked_to_the_target_and_not_to_its_evaluation():
    run = speedrun.train_until(Side([0.65, 0.85]), 0.75, 9, lambda line: None)
    assert (run["seconds"], run["iterations"]) == (pytest.approx(15.0), 4)
    assert run["curve"] == [[2, 10.0, 0.65], [4, 20.0, 0.85]]


def test_libraries_and_threads_of_vllm_are_its_environment(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "libtcmalloc_minimal.so.4"
    library.touch()
    monkeypatch.setattr(vllm_worker, "SYSTEM", ())
    python = str(tmp_path / "bin" / "python")
    given = {"preload": ["tcmalloc"], "threads": "0", "max_num_seqs": 4}
    environment, settings = vllm_worker.split_environment(python, given)
    changed = {"LD_PRELOAD": str(library), "VLLM_CPU_OMP_THREADS_BIND": "0"}
    assert environment == ENVIRONMENT | changed and settings == {"max_num_seqs": 4}
    assert vllm_worker.split_environment(python, settings) == (ENVIRONMENT, settings)
    with pytest.raises(ValueError, match="preload: no library 'nothing-like-it'"):
        vllm_worker.find_library("nothing-like-it", python)


def test_what_is_asked_of_the_peers_is_searched():
    def tried(name, key):
        return {str(variant.get(key)) for variant in tune_peers.SEARCHES[name][2]}

    assert {"32", "64"} <= tried("grpo-mini", "micro_rows")
    assert tried("sft-135M", "precision") == {"bf16-mixed", "fp32"}
    assert "True" in tried("sft-135M", "torch_compile") & tried("grpo-mini", "torch_compile")
    for name in ("vllm-mini", "vllm-135M"):
        assert "['tcmalloc', 'iomp5']" in tried(name, "preload")
        assert len(tried(name, "threads")) > 2 and len(tried(name, "max_num_seqs")) > 2
