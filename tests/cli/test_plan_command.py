"""``r1lit plan``: the forecast of a run, by hand, and from iterations that are measured."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from tiny import ROOT, data, grpo_config, model

from benchmarks.models import model_config
from r1lit.cli.forecast import ANCHORS, lines_of_a_long_run, nearest
from r1lit.cli.plan import main, shortened


@pytest.fixture
def on_gpu(tmp_path: Path, policy: Path) -> Path:
    """The tiny run for a GPU: 6 iterations of 16 responses of at most 200 tokens."""
    path = grpo_config(tmp_path / "run", policy, model(sampling={"max_tokens": 200}))
    config = yaml.safe_load(path.read_text())
    config["trainer"]["accelerator"] = "auto"
    path.write_text(yaml.safe_dump(config))
    return path


def test_work_tokens_and_cost_by_hand(on_gpu, capsys):
    assert main(["-c", str(on_gpu), "--prompt_tokens", "10", "--price", "3600"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("A forecast, not a measurement: nothing is trained.\n")
    assert "reinforcement: 16 responses and 2 updates an iteration" in out
    assert "6 iterations: 96 responses, 12 updates" in out
    # 96 responses of 50 tokens, and the prompts of 24 groups
    assert (
        f"tokens   {(96 * 50 + 24 * 10) / 1e6:.3g} million, 0.0048 million of them sampled" in out
    )
    assert "mean length 50 (assumed" in out and "memory   of the GPU, in GB:" in out
    assert "of 80; fits" in out and "as prime-rl, update of 0.6B" in out
    # 6 iterations of one wave of 200 steps, at 30 ms each: next to nothing else
    assert "time     36 s rollout + under 1 s updates = 36 s of a GPU; on 1, 36 s" in out
    cost = re.search(r"cost     ([\d.]+) at 3600 a GPU-hour", out)
    assert cost is not None and 36 <= float(cost[1]) < 37


def test_keys_and_flags_change_it(on_gpu, capsys):
    main(["-c", str(on_gpu), "--data.num_iterations", "12", "--mean_tokens", "20", "--mfu", "0.5"])
    out = capsys.readouterr().out
    assert "12 iterations: 192 responses" in out and "mean length 20, longest 200" in out
    assert "updates at 50.0% of 989 TFLOP/s (given)" in out
    main(["-c", str(on_gpu), "--iterations", "2", "--gpus", "4"])
    out = capsys.readouterr().out
    assert "2 iterations: 32 responses" in out and "of each of 4 GPUs" in out


def test_supervised_training_needs_documents(tmp_path, policy):
    path = tmp_path / "sft.yaml"
    sft = {"class_path": "r1lit.modules.SFTModule", "init_args": {"policy": str(policy)}}
    path.write_text(
        yaml.safe_dump({"model": sft, "data": {"class_path": "r1lit.data.R1DataModule"}})
    )
    with pytest.raises(ValueError, match=r"data\.documents is missing"):
        main(["-c", str(path)])


def test_what_does_not_fit_is_said_and_is_the_exit_status(on_gpu, capsys):
    assert main(["-c", str(on_gpu), "--memory_gb", "0.5"]) == 1
    assert "does not fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "model, data: not given"),
        (["--model.policy", "/none"], "policy: the directory '/none' does not exist"),
        (["--measure", "0"], "measure: 0 is not at least 1"),
        (["--mfu", "0"], "mfu: 0.0 is not above 0"),
        (["--mesure", "3"], "mesure: there is no such key; did you mean measure?"),
        (["--data.numiterations", "3"], "data.numiterations: R1DataModule has no such key"),
        (["--model.samplin.max_tokens", "3"], "did you mean sampling.max_tokens?"),
    ],
)
def test_mistakes_are_one_line(args, words, on_gpu):
    files = ["-c", str(on_gpu)] if args else []
    with pytest.raises(ValueError, match=re.escape(words)) as refusal:
        main([*files, *args])
    assert "\n" not in str(refusal.value)


def test_the_nearest_published_rate_is_of_the_same_work():
    assert nearest("reinforcement", 7 * 10**9).num_parameters == 1.5e9
    assert nearest("supervised", 7 * 10**9).num_parameters == 8e9
    assert nearest("preference", 10**9) in ANCHORS
    assert all(0.05 < anchor.mfu < 0.5 for anchor in ANCHORS)


def test_a_measured_run_evaluates_and_keeps_nothing(on_gpu, tmp_path):
    short = shortened(yaml.safe_load(on_gpu.read_text()), 2, str(tmp_path / "x"))
    names = [each["class_path"].split(".")[-1] for each in short["trainer"]["callbacks"]]
    assert names == ["ResponseLength", "MajorityVoteEvaluation", "ReflectionWords", "GroupHealth",
                     "CurveWriter"]  # fmt: skip
    assert short["trainer"]["limit_val_batches"] == 0 and short["run"] == str(tmp_path / "x/run")


@pytest.mark.long
def test_iterations_are_measured(tmp_path, policy, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT, ROOT / "tests"))))
    config = grpo_config(tmp_path / "run", policy, data(num_iterations=50))
    assert main(["-c", str(config), "--measure", "2"]) == 0
    out = capsys.readouterr().out
    each = re.search(r"measured 2 iterations here: ([\d.]+), ([\d.]+) s; the first one also", out)
    whole = re.search(r"50 iterations like these: (\S+) (\S+)\n", out)
    assert each is not None and whole is not None, out
    assert "peak memory of the process" in out and "tokens on average, of at most 8" in out
    assert not (tmp_path / "run").exists()
    for reward, message in (
        ("tiny.None", r"^model\.rewards: tiny\.None does not exist"),
        ("os.getcwd", r"^model\.rewards: the init_args of 'os\.getcwd' do not fit"),
        ("builtins.len", r"^measure: the 2 iterations failed: .*len"),
    ):
        bad = grpo_config(tmp_path / "bad", policy, model(rewards=[{"class_path": reward}]))
        with pytest.raises(ValueError, match=message):
            main(["-c", str(bad), "--measure", "2"])


def test_a_fit_of_more_than_a_day_says_its_forecast_before_it_starts(on_gpu, monkeypatch):
    """100,000 iterations of 200 decoding steps of 30 ms are 600,000 s; the device is made up."""
    properties = SimpleNamespace(total_memory=24e9)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda _: "NVIDIA GeForce RTX 4090")
    config = yaml.safe_load(on_gpu.read_text())
    assert not lines_of_a_long_run(config, torch.device("cuda"))
    config["data"]["init_args"]["num_iterations"] = 100_000
    assert not lines_of_a_long_run(config, torch.device("cpu"))
    lines = lines_of_a_long_run(config, torch.device("cuda"))
    assert lines[0] == "More than a day, by forecast:"
    said = "\n".join(lines)
    assert "6.9 days of a GPU" in said and "of 24; fits" in said and "of 165 TFLOP/s" in said


def test_memory_is_said_for_usual_responses_and_at_most(on_gpu, capsys):
    main(["-c", str(ROOT / "configs/mini/aha.yaml"), "--trainer.precision", "32-true"])
    out = capsys.readouterr().out
    likely, most = map(float, re.search(r"likely: ([\d.]+); at most: ([\d.]+)", out).groups())
    assert 1.0 <= likely <= 2.2 and most < 3.5  # the run takes 1.7


GSM8K = ("data/gsm8k", "r1_zero", "real/qwen2.5_0.5b_gsm8k")
ONE_GPU = re.findall(
    r"^\| (\d+) \| [\w ]+ \| (\d+) \| (\d+) \| ([\d.]+B) \| ([`\w ]+) \| (\d+) \| (\d+) \|$",
    (ROOT / "docs/MEMORY.md").read_text(),
    re.M,
)


def test_the_table_covers_gpus_from_16_to_80_gb():
    assert [*dict.fromkeys(int(row[0]) for row in ONE_GPU)] == [16, 24, 40, 48, 80]


@pytest.mark.parametrize("row", ONE_GPU, ids=lambda row: f"{row[0]} GB, {row[3]}")
def test_the_table_of_one_gpu_is_what_the_plan_says(row, tmp_path, capsys):
    capacity, tflops, gb_per_s, size, hardware, most, minutes = row
    model_config(size).save_pretrained(tmp_path)
    files = [*GSM8K, *(f"hardware/{name}" for name in re.findall(r"`(\w+)`", hardware))]
    named = [word for file in files for word in ("-c", str(ROOT / f"configs/{file}.yaml"))]
    gpu = ["--memory_gb", capacity, "--tflops", tflops, "--gb_per_s", gb_per_s]
    assert main([*named, "--model.policy", str(tmp_path), *gpu]) == 0
    out = capsys.readouterr().out
    said = float(re.search(r"at most: ([\d.]+)", out)[1])
    time = float(re.search(r"on 1, ([\d.]+) min", out)[1])
    assert (round(said), round(time)) == (int(most), int(minutes))
