"""The commands themselves, at tiny sizes; each side has its own process."""

from __future__ import annotations

import importlib.util
import json

import pytest

from benchmarks import cpu, gpu
from benchmarks.results import KEYS

needs_trl = pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="no trl")


GPU = ["--device", "cpu", "--tiny", "--repeats", "1"]


@needs_trl
def test_the_gpu_script_runs_on_a_cpu(tmp_path):
    path = tmp_path / "gpu.json"
    gpu.main([*GPU, "--models", "0.5B", "--only", "grpo", "--output", str(path)])
    rows = json.loads(path.read_text())
    assert [row["work"].split(",")[0] for row in rows] == [
        "GRPO iteration",
        "its rollout",
        "its update",
        "peak memory",
    ]
    assert all(list(row)[: len(KEYS)] == list(KEYS) for row in rows)
    assert all(row["ratio_median"] > 0 for row in rows)
    assert 0 < rows[1]["roofline_ours"] < 1 and 0 < rows[2]["mfu_ours"] < 1
    assert "--device cpu --tiny" in path.with_suffix(".md").read_text()


@needs_trl
@pytest.mark.slow
def test_the_gpu_script_trains_supervised_on_a_cpu(tmp_path):
    path = tmp_path / "gpu.json"
    gpu.main([*GPU, "--models", "0.6B", "--only", "sft", "--output", str(path)])
    rows = json.loads(path.read_text())
    assert [row["work"].split(",")[0] for row in rows] == ["SFT", "peak memory"]
    assert 0 < rows[0]["mfu_ours"] < 1 and 0 < rows[0]["mfu_theirs"] < 1


@pytest.mark.slow
def test_the_cpu_script_measures_rollouts_and_merges(tmp_path):
    path = tmp_path / "cpu.json"
    kept = {**dict.fromkeys(KEYS, 1.0), "work": "w", "model": "m", "peer": "p", "unit": "s"}
    path.write_text(json.dumps([kept]))
    cpu.main(["--tiny", "--only", "rollout-135M", "--repeats", "1", "--output", str(path)])
    rows = json.loads(path.read_text())
    assert [row["peer"] for row in rows] == ["p", "HF generate"]
    assert rows[1]["num_tokens"] == 8 * 16 - sum(16 - n for n in _forced())


def _forced() -> tuple[int, ...]:
    from benchmarks.lengths import response_lengths

    return response_lengths(2, 4, 16)


def test_a_python_without_vllm_is_refused_by_name():
    with pytest.raises(ValueError, match="--vllm-python: 'no/such/python'"):
        cpu.main(["--vllm-python", "no/such/python"])


def test_a_gpu_that_is_not_there_is_said(capsys):
    if gpu.torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(SystemExit):
        gpu.main([])
    assert "--device cpu --tiny tries the harness" in capsys.readouterr().err
