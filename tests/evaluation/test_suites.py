"""Every suite's YAML on a tiny policy and a small local file, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from suite_rows import ROWS as OF_SUITES
from suite_rows import packed
from tiny import ROOT, save_policy

from r1lit.cli import main

SUITES = sorted(p for p in (ROOT / "configs" / "eval").glob("*.yaml") if p.stem != "paper")
NAMES = (
    "aime2024", "aime2025", "amc", "codeforces", "gpqa_diamond", "gsm8k", "humaneval", "ifeval",
    "livecodebench", "math500", "mbpp", "mmlu",
)  # fmt: skip
PAPER_K = {"aime2024": 64, "gpqa_diamond": 64, "math500": 16, "codeforces": 16, "livecodebench": 8}


MATH = {"problem": "What is 1 + 1?", "question": "What is 1 + 1?", "answer": "2"}
CODE = {"question_title": "t", "contest_date": "2024-10-05T00:00:00", "difficulty": "easy"}
STDIN = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
CALLS = [{"input": "[1, 2]\n3", "output": "true", "testtype": "functional"}]
ROWS: dict[str, list[dict[str, Any]]] = {
    **{name: OF_SUITES[name][:1] for name in ("gpqa_diamond", "humaneval", "ifeval", "mbpp")},
    "gsm8k": [{"question": "1 + 1?", "answer": "It is 2.\n#### 2"}],
    "math500": [MATH | {"unique_id": "a", "level": 2, "subject": "Algebra"}],
    "aime2024": [MATH],
    "aime2025": [MATH],
    "amc": [MATH | {"answer": 27.0}],
    "mmlu": [{"question": "Which?", "choices": ["a", "b"], "answer": 1, "subject": "law"}],
    "livecodebench": [
        CODE
        | {
            "question_id": "1",
            "question_content": "Add one.",
            "starter_code": "",
            "public_test_cases": json.dumps(STDIN),
            "private_test_cases": packed(STDIN),
            "metadata": "{}",
        },
        CODE
        | {
            "question_id": "2",
            "question_content": "Is n in a?",
            "starter_code": "class Solution:\n    def has(self, a: List[int], n: int) -> bool:\n",
            "public_test_cases": json.dumps(CALLS),
            "private_test_cases": "[]",
            "metadata": json.dumps({"func_name": "has"}),
        },
    ],
    "codeforces": [
        {
            "id": "1/A",
            "title": "Add",
            "time_limit": 1.0,
            "description": "Add one.",
            "input_format": "n",
            "output_format": "n + 1",
            "examples": [{"input": "1", "output": "2"}],
            "note": None,
            "official_tests": [{"input": "1\n", "output": "2\n"}],
            "rating": 800,
            "input_mode": mode,
            "generated_checker": None,
            "interaction_format": "",
        }
        for mode in ("stdio", "file")
    ],
}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random policy that attends far enough for every prompt."""
    directory = save_policy(tmp_path_factory.mktemp("policy"), seed=3)
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 4096}))
    return directory


def test_every_suite_is_there():
    assert [path.stem for path in SUITES] == list(NAMES)


@pytest.mark.long
@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_a_suite_runs_on_a_local_file_through_one_key(path, policy, tmp_path, capsys):
    table = tmp_path / "local.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in ROWS[path.stem]))
    run = tmp_path / "run"
    cli = main(
        [
            "test", "-c", str(path), f"--data.test.path={table}",
            f"--model.policy={policy}", f"--model.dirpath={run}", "--model.policy.dtype=float32",
            "--model.sampling.max_tokens=4", "--data.evaluation.num_samples=2",
            "--model.grader=stand_ins.PlainJudge", "--trainer.accelerator=cpu",
            "--data.prompts.template=r1_zero",  # the tiny tokenizer has no chat template
        ]
    )  # fmt: skip
    report = json.loads((run / "report.json").read_text())
    problems = cli.datamodule.problems["test"]
    assert len(problems) == report["num_problems"] == (2 if path.stem == "livecodebench" else 1)
    test = yaml.safe_load(path.read_text())["data"]["init_args"]["test"][-1]["init_args"]
    title = "local" if "source" in test else path.stem  # a file of one's own is no GSM8K
    assert report["num_samples"] == 2 and report["settings"]["suite"] == title
    assert len((run / "responses.jsonl").read_text().splitlines()) == 2 * len(problems)
    assert set(report["cons_at_k"]) == set(report["pass_at_k"]) == {"1", "2"}
    assert (run / "report.md").read_text() in capsys.readouterr().out
    assert "{" not in problems[0].question.replace("\\boxed{}", "")  # every column was filled in


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_a_suite_holds_the_papers_settings(path):
    config = yaml.safe_load(path.read_text())
    sampling = config["model"]["init_args"]["sampling"]
    assert sampling == {"temperature": 0.6, "top_p": 0.95, "max_tokens": 32768}
    k = config["data"]["init_args"]["evaluation"]["num_samples"]
    assert k == PAPER_K.get(path.stem, k)
    prompts = config["data"]["init_args"]["prompts"]
    boxed = "{question}\nPlease reason step by step, and put your final answer within \\boxed{}."
    mathematics = path.stem in ("aime2024", "aime2025", "amc", "gsm8k", "math500")
    assert prompts == {"template": "chat"} | ({"wording": boxed} if mathematics else {})
    assert "suite" not in config["model"]["init_args"]  # reports are titled by what was read


@pytest.mark.long
def test_level_and_rating_are_reported(policy, tmp_path):
    rows = [
        MATH | {"unique_id": str(i), "level": 1 + i % 2, "subject": "Algebra"} for i in range(4)
    ]
    table = tmp_path / "local.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = [
        f"--data.test.path={table}", f"--model.policy={policy}", "--model.policy.dtype=float32",
        "--model.sampling.max_tokens=4", "--data.evaluation.num_samples=2",
        "--model.grader=stand_ins.PlainJudge", "--trainer.accelerator=cpu",
        "--data.prompts.template=r1_zero",
    ]  # fmt: skip
    folder = ROOT / "configs" / "eval"
    main(["test", "-c", str(folder / "math500.yaml"), f"--model.dirpath={tmp_path}/a", *arguments])
    levels = json.loads((tmp_path / "a" / "report.json").read_text())["by"]["level"]
    assert {name: level["num_problems"] for name, level in levels.items()} == {"1": 2, "2": 2}

    rows = [ROWS["codeforces"][0] | {"id": str(i), "rating": 800 + 400 * i} for i in range(3)]
    table.write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[0] | {"rating": None}]))
    with pytest.raises(ValueError, match="two problems have the uid '0'"):
        main(["test", "-c", str(folder / "codeforces.yaml"), *arguments])
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    codeforces = ["test", "-c", str(folder / "codeforces.yaml"), f"--model.dirpath={tmp_path}/b"]
    main([*codeforces, *arguments])
    elo = json.loads((tmp_path / "b" / "report.json").read_text())["elo"]
    assert elo["num_problems"] == 3 and 0 <= elo["value"] < 1  # nothing solved
    assert "| Elo, maximum likelihood" in (tmp_path / "b" / "report.md").read_text()
