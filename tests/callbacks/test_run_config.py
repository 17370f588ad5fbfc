"""A run resumes with the configuration and the data that it began with, or says what changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import data, grpo_config, merge, metrics, model

from r1lit.callbacks.run_config import differences, spelt_out, weights_of
from r1lit.cli import main

SHORT = data(num_iterations=2)
NOVAL = {"trainer": {"limit_val_batches": 0, "val_check_interval": 1}}


def problems(path: Path, question: str = "Add 1 and {n}.") -> dict:
    rows = [{"question": question.format(n=n), "answer": str(n + 1)} for n in range(16)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    init_args = {"path": str(path), "source": "sums"}
    return data(train=[{"class_path": "r1lit.data.TableProblems", "init_args": init_args}])


@pytest.fixture
def resume(tmp_path: Path, policy: Path):
    """Train two iterations, then go on for two more with a change."""

    def run(
        change: dict, *args: str, first: dict | None = None, between: Callable = lambda: None
    ) -> Path:
        first = merge(merge(SHORT, NOVAL), first or {})
        main(["fit", "-c", str(grpo_config(tmp_path / "run", policy, first))])
        between()
        longer = merge(merge(first, data(num_iterations=4)), change)
        config = grpo_config(tmp_path / "run", policy, longer)
        main(["fit", "-c", str(config), "--ckpt_path", "last", *args])
        return tmp_path / "run"

    return run


CHANGES = {
    "learning rate": (
        model(optimizer={"class_path": "torch.optim.AdamW", "init_args": {"lr": 0.02}}),
        r"model\.init_args\.optimizer\.init_args\.lr was 0\.01 and is 0\.02",
    ),
    "objective": (
        model(objective={"class_path": "r1lit.objectives.DAPO"}),
        r"objective\.class_path was r1lit\.objectives\.GRPO and is r1lit\.objectives\.DAPO",
    ),
    "temperature": (
        model(sampling={"temperature": 0.5, "max_tokens": 8}),
        r"sampling\.temperature was 1\.0 and is 0\.5",
    ),
    "reward": (
        model(rewards=[{"class_path": "tiny.ManyDigits"}]),
        r"model\.init_args\.rewards was \[.*DigitShare.*\] and is \[.*ManyDigits",
    ),
    "template": (
        data(prompts={"template": "plain"}),
        r"data\.init_args\.prompts\.template was small_world and is plain",
    ),
}


@pytest.fixture
def go_on(tmp_path: Path, policy: Path):
    """Resume the run of two iterations for two more, with a change."""

    def run(*changes: dict) -> None:
        change = data(num_iterations=4)
        for part in (NOVAL, *changes):
            change = merge(change, part)
        main(
            ["fit", "-c", str(grpo_config(tmp_path / "run", policy, change)), "--ckpt_path", "last"]
        )

    return run


@pytest.mark.long
def test_each_change_is_refused_in_one_line_and_leaves_the_run(
    fit, go_on, policy: Path, tmp_path: Path
) -> None:
    fit("run", SHORT, NOVAL)
    run, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(policy, other)  # other weights of the same name
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    weights = (model(policy=str(other)), r"model\.init_args\.policy\.path was .* and is .*other")
    before = {name: (run / name).read_bytes() for name in ("config.yaml", "metrics.jsonl")}
    for change, message in (*CHANGES.values(), weights):
        with pytest.raises(ValueError, match=message) as caught:
            go_on(change)
        assert "\n" not in str(caught.value) and "--resume_changed true" in str(caught.value)
        assert {name: (run / name).read_bytes() for name in before} == before, message
        assert not list(run.glob("config-*"))


def rates(run: Path) -> list[float]:
    return [line["train/learning_rate"] for line in metrics(run)]


def linear(start: float, updates: int) -> dict:
    optimizer = {"class_path": "torch.optim.AdamW", "init_args": {"lr": start}}
    schedule = {
        "class_path": "torch.optim.lr_scheduler.LinearLR",
        "init_args": {"start_factor": 1.0, "end_factor": 0.1, "total_iters": updates},
    }
    return model(optimizer=optimizer, lr_scheduler=schedule)


@pytest.mark.long
def test_with_the_flag_it_goes_on_and_keeps_the_configurations_of_both_halves(resume) -> None:
    changes, messages = zip(
        *(CHANGES[name] for name in ("learning rate", "temperature")), strict=True
    )
    with pytest.warns(UserWarning, match=".*".join(messages)):
        run = resume(merge(*changes), "--resume_changed", "true")
    assert [line["iteration"] for line in metrics(run)] == [0, 1, 2, 3]
    assert rates(run) == [0.01, 0.01, 0.02, 0.02]
    first, second = (
        yaml.safe_load((run / name).read_text()) for name in ("config-until-2.yaml", "config.yaml")
    )
    assert [c["data"]["init_args"]["num_iterations"] for c in (first, second)] == [2, 4]
    kept = [c["model"]["init_args"]["optimizer"]["init_args"]["lr"] for c in (first, second)]
    assert kept == [0.01, 0.02]


@pytest.mark.slow
def test_another_schedule_is_where_it_would_be(resume, tmp_path: Path, policy: Path) -> None:
    """After 2 iterations of 2 updates the new schedule is at its fifth update."""
    with pytest.warns(UserWarning, match="lr_scheduler"):
        run = resume(linear(0.02, 8), "--resume_changed", "true", first=linear(0.01, 100))
    from_the_start = merge(merge(data(num_iterations=4), NOVAL), linear(0.02, 8))
    main(["fit", "-c", str(grpo_config(tmp_path / "whole", policy, from_the_start))])
    assert rates(run)[2:] == pytest.approx(rates(tmp_path / "whole")[2:])
    assert rates(run)[:2] != pytest.approx(rates(tmp_path / "whole")[:2])


@pytest.mark.slow
def test_with_the_flag_it_goes_on_with_other_data(resume, tmp_path: Path) -> None:
    table = tmp_path / "sums.jsonl"
    with pytest.warns(UserWarning, match="continuing although the data changed: data was"):
        run = resume(
            {}, "--resume_changed", "true",
            first=problems(table), between=lambda: problems(table, "Add one and {n}."),
        )  # fmt: skip
    assert [line["iteration"] for line in metrics(run)] == [0, 1, 2, 3]


@pytest.mark.slow
def test_more_iterations_make_the_run_that_had_them_from_the_start(
    resume, tmp_path: Path, policy: Path
) -> None:
    run = resume({})
    main(["fit", "-c", str(grpo_config(tmp_path / "four", policy,
                                       merge(data(num_iterations=4), NOVAL)))])  # fmt: skip
    weights = "policy/model.safetensors"
    assert (run / weights).read_bytes() == (tmp_path / "four" / weights).read_bytes()
    assert [line["train/loss"] for line in metrics(run)] == [
        line["train/loss"] for line in metrics(tmp_path / "four")
    ]


@pytest.mark.slow
def test_what_changes_no_number_may_change(resume) -> None:
    run = resume(model(micro_batch_tokens=64))
    assert [line["iteration"] for line in metrics(run)] == [0, 1, 2, 3]


@pytest.mark.long
def test_changed_questions_are_refused_though_their_ids_are_the_same(fit, go_on, tmp_path: Path):
    table = tmp_path / "sums.jsonl"
    fit("run", SHORT, NOVAL, problems(table))
    for changed in ("Add one and {n}.", "Add 1 to {n}."):
        with pytest.raises(ValueError, match="was written with other data: data was"):
            go_on(problems(table, changed))


def test_texts_are_no_folders_however_long(policy: Path) -> None:
    """A path of over 255 bytes between two slashes is an error of the system's."""
    texts = {"template": "x" * 300 + "/a </think>", "null": "a\0b", "system_prompt": "y" * 5_000}
    config = {"model": {"policy": {"path": str(policy)}}, "data": {"prompts": texts}}
    assert [key for key, _ in weights_of(config)] == ["model.policy.path"]


def test_differences_name_keys_by_dots() -> None:
    old = {"model": {"a": 1, "list": [1, 2], "micro_batch_tokens": 5}}
    new = {"model": {"a": 1, "list": [1, 3], "micro_batch_tokens": 6}, "data": None}
    assert list(differences(old, new)) == [("model.list", [1, 2], [1, 3])]


@pytest.mark.parametrize(("value", "changed"), [(1.0, False), (0.5, True)])
def test_a_key_that_an_earlier_r1lit_did_not_have_is_no_change_at_its_default(value, changed):
    path = "r1lit.rewards.Accuracy"
    old, new = ({"class_path": path, "init_args": a} for a in ({}, {"weight": value}))
    assert bool(list(differences(old, new))) is changed


@pytest.mark.long
def test_another_spelling_of_the_same_weights_is_no_change(resume, policy, tmp_path, monkeypatch):
    """Nor is an engine that is named with its defaults."""
    (tmp_path / "elsewhere").symlink_to(policy)
    monkeypatch.chdir(tmp_path)
    engine = {"class_path": "r1lit.rollout.InProcessEngine"}
    run = resume(model(policy="elsewhere", engine=engine))
    assert [line["iteration"] for line in metrics(run)] == [0, 1, 2, 3]


def test_models_are_compared_however_they_are_spelt():
    """Also with a checkpoint of before a model's fields were its own."""

    def config(**init_args: Any) -> dict[str, Any]:
        return {"model": {"class_path": "GRPOModule", "init_args": init_args}, "data": None}

    held = {"attention": "sdpa", "trust_remote_code": False}
    alone = {"from_scratch": False, "adapter": None, "quantization": None}
    reward = {"class_path": "RewardModel", "init_args": {"model": "rm", "weight": 1.0}}
    new = config(policy="base", rewards=[reward])
    old_reward = {"path": "rm", "dtype": "float32", **held, "weight": 1.0}
    same = [
        config(policy={"path": "base", "dtype": "float32"}, rewards=[reward]),
        config(
            policy="base", dtype="float32", **held, **alone,
            rewards=[{"class_path": "RewardModel", "init_args": old_reward}],
        ),
    ]  # fmt: skip
    for other in same:
        assert list(differences(spelt_out(other), spelt_out(new))) == []
    key = "model.init_args.policy"
    other = config(policy={"path": "base", "dtype": "bfloat16"}, rewards=[reward])
    changed = list(differences(spelt_out(new), spelt_out(other)))
    assert changed == [(f"{key}.dtype", "float32", "bfloat16")]
