"""The search of the peers' settings, and the speedrun's clock, without the peers."""

from __future__ import annotations

import pytest

from benchmarks import speedrun, tune_peers, vllm_rollout
from benchmarks.vllm_rollout import ENVIRONMENT


class Side:
    """Takes 5 s an iteration and evaluates every second one."""

    def __init__(self, accuracies):
        self.accuracies = list(accuracies)
        self.made = 0

    def step(self):
        self.made += 1
        found = {"seconds": 5.0}
        return found if self.made % 2 else found | {"pass_at_1": self.accuracies.pop(0)}


def clocked(accuracies, target):
    return speedrun.train_until(Side(accuracies), target, 6, lambda line: None)


def test_the_target_is_met_on_the_line_between_two_evaluations():
    run = clocked([0.5, 0.65, 0.85], 0.75)
    assert (run["seconds"], run["iterations"]) == (pytest.approx(25.0), 6)
    assert run["curve"] == [[2, 10.0, 0.5], [4, 20.0, 0.65], [6, 30.0, 0.85]]
    assert clocked([0.5, 0.7], 0.7)["seconds"] == 20.0
    assert clocked([0.5], 0.4)["seconds"] == 10.0  # nothing is known of before
    with pytest.raises(ValueError, match=r"pass@1 0\.9 was not reached in 6 iterations"):
        clocked([0.5, 0.7, 0.8], 0.9)


def test_libraries_and_threads_of_vllm_are_its_environment(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "libtcmalloc_minimal.so.4"
    library.touch()
    monkeypatch.setattr(vllm_rollout, "SYSTEM", ())
    python = str(tmp_path / "bin" / "python")
    given = {"preload": ["tcmalloc"], "threads": "0", "max_num_seqs": 4}
    environment, settings = vllm_rollout.split_environment(python, given)
    changed = {"LD_PRELOAD": str(library), "VLLM_CPU_OMP_THREADS_BIND": "0"}
    assert environment == ENVIRONMENT | changed and settings == {"max_num_seqs": 4}
    assert vllm_rollout.split_environment(python, settings) == (ENVIRONMENT, settings)
    with pytest.raises(ValueError, match="preload: no library 'nothing-like-it'"):
        vllm_rollout.find_library("nothing-like-it", python)


def test_what_is_asked_of_the_peers_is_searched():
    def tried(name, key):
        return {str(variant.get(key)) for variant in tune_peers.SEARCHES[name][2]}

    assert {"32", "64"} <= tried("grpo-mini", "micro_rows")
    assert tried("sft-135M", "precision") == {"bf16-mixed", "fp32"}
    assert "True" in tried("sft-135M", "torch_compile") & tried("grpo-mini", "torch_compile")
    for name in ("vllm-mini", "vllm-135M"):
        assert "['tcmalloc', 'iomp5']" in tried(name, "preload")
        assert len(tried(name, "threads")) > 2 and len(tried(name, "max_num_seqs")) > 2
