"""A run resumes with the configuration and the data that it began with, or says what changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import data, grpo_config, merge, model

from r1lit.callbacks.run_config import differences
from r1lit.cli import main

SHORT = data(num_iterations=2)
NOVAL = {"trainer": {"limit_val_batches": 0, "val_check_interval": 1}}


def lines(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


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
        config = grpo_config(
            tmp_path / "run", policy, merge(longer, {"trainer": {"max_epochs": 2}})
        )
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
        r"data\.init_args\.prompts\.template was r1_zero and is plain",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_configuration_is_refused_in_one_line(resume, name: str) -> None:
    change, message = CHANGES[name]
    with pytest.raises(ValueError, match=message) as caught:
        resume(change)
    assert "\n" not in str(caught.value) and "--resume_changed true" in str(caught.value)


def test_with_the_flag_it_goes_on(resume) -> None:
    change, message = CHANGES["temperature"]
    with pytest.warns(UserWarning, match=message):
        run = resume(change, "--resume_changed", "true")
    assert [line["iteration"] for line in lines(run)] == [0, 1, 2, 3]


def test_what_changes_no_number_may_change(resume) -> None:
    run = resume(model(micro_batch_tokens=64))
    assert [line["iteration"] for line in lines(run)] == [0, 1, 2, 3]


@pytest.mark.parametrize("changed", ["Add one and {n}.", "Add 1 to {n}."])
def test_changed_questions_are_refused_though_their_ids_are_the_same(
    resume, tmp_path: Path, changed: str
) -> None:
    table = tmp_path / "sums.jsonl"
    with pytest.raises(ValueError, match="was written with other data: data was"):
        resume({}, first=problems(table), between=lambda: problems(table, changed))


def test_differences_name_keys_by_dots() -> None:
    old = {"model": {"a": 1, "list": [1, 2], "micro_batch_tokens": 5}}
    new = {"model": {"a": 1, "list": [1, 3], "micro_batch_tokens": 6}, "data": None}
    assert list(differences(old, new)) == [("model.list", [1, 2], [1, 3])]
