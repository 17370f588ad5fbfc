"""The plan's numbers by hand, for a model and a run that are small enough."""

from __future__ import annotations

import pytest
import yaml
from tiny import ROOT

from experiments.r1 import plan
from r1lit.modules.compute_plan import Gpu, rollout_seconds, served_rows, update_seconds
from r1lit.modules.memory_plan import most_memory
from r1lit.modules.workload import ranks_of, work_of
from r1lit.policy.flops import Shape

# "tiny": vocabulary 1,500, hidden 32, intermediate 64, 2 layers, 2 heads of 16, 1 key-value head
# embedding 1,500 x 32 = 48,000 (tied); a layer 1,024 + 512 + 512 + 1,024 + 3 x 2,048 + 64 = 9,280
N = 48_000 + 2 * 9_280 + 32
GPU = Gpu(memory_gb=1.0, tflops=1.0, gb_per_s=1.0, mfu=0.5, mbu=0.5)


def grpo(**data):
    return {
        "model": {
            "init_args": {
                "policy": "tiny",
                "objective": {"init_args": {"beta": 0.001}},
                "sampling": {"max_tokens": 200},
                "engine": {"init_args": {"max_rows": 8}},
                "train_batch_size": 8,
                "micro_batch_tokens": 256,
                "gradient_checkpointing": True,
            }
        },
        "data": {
            "init_args": {
                "rollout": {"prompts_per_iteration": 4, "group_size": 4},
                "num_iterations": 3,
                **data,
            }
        },
        "trainer": {"precision": "bf16-mixed"},
    }


def sft():
    return {
        "model": {"init_args": {"policy": "tiny", "micro_batch_tokens": 100}},
        "data": {
            "init_args": {
                "documents": [],
                "packing": {"train_batch_size": 2, "max_seq_len": 100},
                "num_iterations": 5,
            }
        },
        "trainer": {"max_epochs": 2, "precision": "32-true"},
    }


@pytest.fixture(scope="module")
def shape():
    return Shape.of(plan.config_of("tiny"))


def test_reinforcement_learning_by_hand(shape):
    assert shape.num_parameters == N == 66_592
    work = work_of(grpo(), prompt_tokens=20, mean_tokens=100)
    assert (work.rows_per_iteration, work.rows, work.updates) == (16, 48, 6)
    assert work.sampled_tokens == 4_800
    assert work.tokens == 4_800 + 12 * 20  # a group's prompt once
    # a row of 120 tokens: 6 N 120 + 6 x 2 x 32 x 120^2; of its prompt three quarters are shared
    row = 6 * N * 120 + 384 * 120**2 - 0.75 * (6 * N * 20 + 384 * 20**2)
    assert row == 47_367_360
    seconds = 48 * row * (4 / 3 + 1 / 3) / 5e11
    assert update_seconds(work, shape, GPU) == pytest.approx(seconds)
    # a wave of 8 rows, 99 steps bound by memory: 2 (N + 64 x 8 (20 + s)) bytes; 48 rows: 6 waves
    num_bytes = 2 * 99 * N + 1024 * (99 * 20 + 99 * 100 // 2)
    assert num_bytes == 20_281_536
    wave = num_bytes / 5e8 + 2 * N * 40 / 5e11
    assert rollout_seconds(work, shape, GPU) == pytest.approx(6 * wave)


def test_supervised_training_by_hand(shape):
    work = work_of(sft(), prompt_tokens=20, mean_tokens=50)
    assert (work.iterations, work.rows, work.updates, work.tokens) == (10, 20, 10, 2_000)
    assert work.sampled_tokens == 0 and rollout_seconds(work, shape, GPU) == 0
    row = 6 * N * 100 + 384 * (50**2 + 50**2)
    assert update_seconds(work, shape, GPU) == pytest.approx(20 * row / 5e11)


def test_rows_of_an_update_follow_from_its_documents():
    config = sft()
    config["data"]["init_args"]["packing"] = {"documents_per_update": 128, "max_seq_len": 1000}
    work = work_of(config, prompt_tokens=20, mean_tokens=160)
    assert work.rows_per_iteration == 8 * round(128 * 0.16 / 8) == 24  # over eight ranks


@pytest.mark.parametrize(("objective", "rows"), [("BradleyTerry", 8), ("SafeUnsafe", 4)])
def test_a_reward_model_reads_both_responses_of_a_pair_and_one_that_is_labelled(objective, rows):
    config = sft()
    config["model"]["init_args"]["objective"] = {"class_path": f"r1lit.objectives.{objective}"}
    config["data"]["init_args"] = {
        "train_batch_size": 4,
        "max_tokens": 64,
        "num_iterations": 3,
    }
    config["trainer"]["max_epochs"] = 1
    work = work_of(config, prompt_tokens=20, mean_tokens=None)
    assert work.kind == "preference"
    assert (work.rows_per_iteration, work.updates, work.mean_tokens) == (rows, 3, 16)


def test_drawing_responses_by_hand(shape):
    """Four problems' four responses are under way at once, and nothing is trained."""
    drawn = {"policy": {"path": "tiny", "dtype": "float32"}, "sampling": {"max_tokens": 200}}
    drawn["engine"] = {"init_args": {"max_rows": 16}}
    data = {"predict": [], "evaluation": {"num_samples": 4}}
    drawing = {"class_path": "r1lit.modules.EvaluationModule", "init_args": drawn}
    asked = {"model": drawing, "data": {"init_args": data}}
    work = work_of(asked, prompt_tokens=20, mean_tokens=100)
    assert (work.rows, work.updates, work.sampled_tokens, work.is_whole) == (4, 0, 400, False)
    assert update_seconds(work, shape, GPU) == 0
    # a quarter of a wave of 16 rows: 99 steps bound by memory, 4 (N + 64 x 16 (20 + s)) bytes
    num_bytes = 4 * 99 * N + 4096 * (99 * 20 + 99 * 100 // 2)
    wave = num_bytes / 5e8 + 2 * N * 80 / 5e11
    assert rollout_seconds(work, shape, GPU) == pytest.approx(wave / 4)


def test_the_command_prints_the_plan_and_its_formulas(tmp_path, capsys):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(grpo()))
    assert plan.main([str(path), "--prompt-tokens", "20", "--mean-tokens", "100"]) == 0
    out = capsys.readouterr().out
    assert "16 responses an iteration, 3 iterations: 48" in out
    assert "updates: 2 an iteration: 6" in out
    assert "Does not fit" not in out and "weights b N / R" in out
    assert "memory of each of 8 GPUs" in out and "fits with 10% to spare" in out
    assert plan.main([str(path), "--memory-gb", "0.0001"]) == 0
    assert "Does not fit" in capsys.readouterr().out


def test_iterations_that_the_data_decide_are_planned_one_by_one(tmp_path, capsys):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(grpo(num_iterations=None)))
    assert plan.main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "Its data say how many iterations" in out
    assert "16 responses an iteration\n" in out and "updates: 2 an iteration: 2" in out
    assert plan.main([str(path), "--iterations", "2"]) == 0
    out = capsys.readouterr().out
    assert "Its data" not in out and "16 responses an iteration, 2 iterations: 32" in out


def test_what_cannot_be_planned_is_an_error_that_says_why(tmp_path, capsys):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(grpo()))
    assert plan.main([str(path), "--iterations", "2", "--model", str(tmp_path)]) == 2
    assert "no model whose config can be read" in capsys.readouterr().err
    assert plan.main([str(tmp_path / "none.yaml")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_every_stage_at_full_scale_has_a_plan(capsys):
    """The command of the README, on all of the folder."""
    paths = sorted((ROOT / "configs/r1/full").glob("*.yaml"))
    assert plan.main([str(path) for path in paths]) == 0
    out = capsys.readouterr().out
    for path in paths:
        assert f"## {path.stem}\n" in out
        found = plan.plan_of(path.stem, plan.read_preset(str(path)), gpu=Gpu())
        assert found.gpu_hours > 0 and found.num_parameters == pytest.approx(1.54e9, rel=0.01)
        if found.work.kind == "reinforcement":
            assert found.work.rows_per_iteration == 8192
            assert found.work.updates_per_iteration == 16
    assert out.count("GPU-hours: ") == len(paths) == 9
    # supervised training, both reward models, their responses, and rejection sampling
    assert out.count("Its data say") == 6


def test_a_schedule_of_the_longest_response_counts_by_its_iterations():
    config = grpo(num_iterations=10)
    config["model"]["init_args"]["max_tokens_from"] = {6: 400}
    work = work_of(config, prompt_tokens=20, mean_tokens=None)
    assert work.mean_tokens == (6 * 200 + 4 * 400) // 10 // 4
    assert work.max_tokens == 400


def test_servers_hold_what_fits_beside_their_weights(shape):
    config = grpo()
    config["model"]["init_args"]["engine"] = {"class_path": "r1lit.rollout.VLLMEngine"}
    work = work_of(config, prompt_tokens=20, mean_tokens=100)
    assert work.is_served and work.memory.rows_decoded == 0
    small = Gpu(memory_gb=1e-3)  # 0.9 MB; weights are 0.13 MB in bfloat16, so one GPU holds them
    assert served_rows(work, shape, small) == int((0.9e6 - 2 * N) // (120 * 2 * 2 * 16 * 2))
    assert rollout_seconds(work, shape, small) > 0


def test_ranks_and_models_of_known_sizes():
    assert ranks_of({"trainer": {"devices": 4, "num_nodes": 3}}) == 12
    assert ranks_of({"trainer": {"devices": "auto"}}) == 8
    billions = {"7B": 7.616, "14B": 14.770, "32B": 32.764, "8B": 8.030, "70B": 70.554}
    for name, count in billions.items():  # as their model cards say
        assert plan.architecture_of(name).num_parameters / 1e9 == pytest.approx(count, abs=0.001)
    made = plan.plan_of("a", grpo(), gpu=GPU)
    assert made.fits(GPU) and most_memory(made.memory) < 0.9e9
