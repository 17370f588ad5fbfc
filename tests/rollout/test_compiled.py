"""torch.compile in the rollout, in a process of its own: the other tests run without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from r1lit.rollout.in_process import Compiled, InProcessEngine

TESTS = Path(__file__).resolve().parents[1]

COMPARE = """
import torch
from torch._dynamo.utils import counters
from tiny_models import make_policy, make_tokenizer
from drawing import draw as drawn
from r1lit.policy.support import enable_packed

policy, tokenizer = make_policy("qwen3"), make_tokenizer()
assert enable_packed(policy) is None
with torch.no_grad():  # EOS made likely: rows end at different times, and then whole prompts
    policy.model.get_output_embeddings().weight[2] += 0.6
prompts = [[1, 50, 60, 70], [1, 51], [1, 9, 8, 7, 66]]

def draw(compile, seed):
    return drawn(policy, tokenizer, prompts, 4, compile=compile, seed=seed, max_tokens=90)

plain, compiled = draw(False, 0), draw(True, 0)
assert plain.mask_BT.sum(-1).unique().numel() > 4, "rows were meant to end at different times"
assert torch.equal(plain.response_BT, compiled.response_BT)
difference = (plain.logp_BT - compiled.logp_BT)[plain.mask_BT].abs().max()
assert difference < 1e-3, difference
draw(True, 1)
print("graphs", counters["stats"]["unique_graphs"])
"""

NO_COMPILER = """
import warnings
import torch
from tiny_models import make_policy, make_tokenizer
from drawing import draw
from r1lit.policy.support import enable_packed

policy = make_policy("llama")
assert enable_packed(policy) is None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    draw(policy, make_tokenizer(), [[1, 50, 60]], 2, max_tokens=5)
for warning in caught:
    print(warning.message)
"""


@pytest.mark.parametrize(
    ("num_completions", "max_rows", "max_tokens", "compiles"),
    [(64, None, 512, False), (64, None, 513, True), (64, 32, 256, False), (65, 32, 256, True)],
)
def test_short_evaluations_compile_nothing(num_completions, max_rows, max_tokens, compiles):
    engine = InProcessEngine(max_rows)
    engine.expect_at_most(num_completions, max_tokens)
    functions = (engine._run_layer, engine._sample_tokens)
    assert [isinstance(function, Compiled) for function in functions] == [compiles, compiles]


def run(script: str, **environment: str) -> str:
    kept = {k: v for k, v in os.environ.items() if k != "TORCH_COMPILE_DISABLE"}
    path = os.pathsep.join([str(TESTS), str(TESTS / "rollout"), *sys.path])
    finished = subprocess.run(
        [sys.executable, "-c", script],
        env=kept | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stderr + finished.stdout


@pytest.mark.slow
def test_compiled_layers_draw_the_same_tokens_and_are_compiled_once():
    # one graph of the layer and one of the choice, whatever rows and prompts are left
    lines = run(COMPARE).splitlines()
    assert lines[-1] == "graphs 2"
    assert sum(line.startswith("compiling ") for line in lines) == 2, lines  # said as it begins


@pytest.mark.slow
def test_without_a_compiler_the_rollout_runs_uncompiled_and_says_so(tmp_path: Path):
    printed = run(
        NO_COMPILER,
        PATH="/nowhere",
        CXX="/nowhere/g++",
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
        R1LIT_KERNELS_DIR=str(tmp_path),
    )
    assert "runs uncompiled" in printed
    assert printed.count("without its C++ attention") == 1
