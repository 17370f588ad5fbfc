"""Suites of every kind on the published problems, by path, judged by their real verifiers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny import ROOT, save_policy

from r1lit.cli import main
from r1lit.verifiers import Grader

DATA = ROOT / ".." / "shared" / "data"
CONFIGS = ROOT / "configs" / "eval"
LIMIT = 3
CONTEST = {
    "data": {
        "init_args": {
            "test": [
                {
                    "class_path": "r1lit.data.TaskTable",
                    "init_args": {
                        "path": str(DATA / "code_contests_test.json"),
                        "verifier": "stdin_code",
                        "source": "code_contests",
                        "meta": {"tests": "tests"},
                        "wording": "{problem}",
                        "limit": LIMIT,
                        "keep": [],
                        **dict.fromkeys(("name", "uid", "where")),
                    },
                }
            ]
        }
    },
    "model": {"init_args": {"rating": None}},
}
"""CodeContests has no suite of its own; its tests are of the kind of Codeforces'."""


def rows(name: str) -> list[dict[str, Any]]:
    opened = gzip.open if name.endswith(".gz") else open
    with opened(DATA / name, "rt", encoding="utf-8") as file:
        return list(map(json.loads, islice(file, LIMIT)))


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def gsm8k_gold(row: dict[str, Any]) -> str:
    return f"<think> so </think> <answer> {row['answer'].rpartition('####')[2]} </answer>"


SUITES: dict[str, tuple[str, Callable[[dict[str, Any]], str] | None]] = {
    "gsm8k": ("gsm8k_test.jsonl", gsm8k_gold),
    "math500": ("math500.jsonl", lambda row: row["solution"]),
    "mmlu": ("mmlu_dev_val.jsonl", lambda row: f"The answer is ({row['answer']})."),
    "humaneval": ("humaneval.jsonl.gz", lambda r: fenced(r["prompt"] + r["canonical_solution"])),
    "mbpp": ("mbpp_test.jsonl", lambda row: fenced(row["code"])),
    "ifeval": ("ifeval_input.jsonl", None),
    "codeforces": ("code_contests_test.json", None),
}
"""The file of each suite, and what a right response to one of its rows is, where that is known."""

pytestmark = pytest.mark.skipif(
    not (DATA / "gsm8k_test.jsonl").is_file(), reason="the shared data is not here"
)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random policy that attends far enough for every prompt."""
    directory = save_policy(tmp_path_factory.mktemp("policy"), seed=3)
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 8192}))
    return directory


@pytest.fixture(scope="module")
def grader():
    grader = Grader()
    yield grader
    grader.close()


@pytest.mark.long
@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_on_its_real_problems(suite, policy, grader, tmp_path):
    name, right_response = SUITES[suite]
    change = tmp_path / "change.yaml"
    change.write_text(yaml.safe_dump(CONTEST if suite == "codeforces" else {}))
    run = tmp_path / "run"
    here = [] if suite == "codeforces" else [
        f"--data.test.path={DATA / name}", f"--data.test.limit={LIMIT}"
    ]  # fmt: skip
    cli = main(
        [
            "test", "-c", str(CONFIGS / f"{suite}.yaml"), "-c", str(change), *here,
            f"--model.policy={policy}", f"--model.dirpath={run}", "--model.policy.dtype=float32",
            "--model.sampling.max_tokens=6", "--data.evaluation.num_samples=2",
            "--trainer.accelerator=cpu", "--data.prompts.template=r1_zero",
        ]
    )  # fmt: skip
    problems = cli.datamodule.problems["test"]
    report = json.loads((run / "report.json").read_text())
    assert (report["num_problems"], report["num_samples"]) == (LIMIT, 2)
    assert report["verdicts"]["error"] == report["verdicts"]["timeout"] == 0, report["reasons"]
    assert report["verdicts"]["right"] < 2 * LIMIT
    with (run / "responses.jsonl").open() as file:
        questions = {json.loads(line)["question"] for line in file}
    assert questions == {problem.question for problem in problems}
    if right_response is None:
        return
    own = [problem for row in rows(name) for problem in problems if _about(row, problem.question)]
    assert own == problems
    verdicts = grader.verdicts([right_response(row) for row in rows(name)], problems)
    assert [verdict.status for verdict in verdicts] == ["right"] * LIMIT, verdicts


def _about(row: dict[str, Any], question: str) -> bool:
    asked = row.get("question") or row.get("problem") or row["prompt"]
    return asked.strip() in question
