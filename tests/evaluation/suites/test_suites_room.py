"""Suites through the command line: rows in each data set's schema, one table, resumed runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from suite_rows import MANY_TURNS, ROWS, write_rows
from tiny import ROOT, save_policy
from transformers import AutoTokenizer

from r1lit.cli import main
from r1lit.evaluation.suites import NAMES, load_suite, table
from r1lit.rollout import Sampling

PAPER = ROOT / "configs" / "eval" / "paper.yaml"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random policy that attends far enough for every prompt."""
    directory = save_policy(tmp_path_factory.mktemp("policy"), seed=3)
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 8192}))
    return directory


def run_suites(policy: Path, run: Path, *more: str) -> dict:
    cli = main(
        [
            "test", "-c", str(PAPER), f"--model.policy={policy}", f"--run={run}",
            "--model.policy.dtype=float32", "--model.sampling.max_tokens=4",
            "--trainer.accelerator=cpu", "--data.prompts.template=plain",
            "--model.judge=stand_ins.RuleJudge", *more,
        ]
    )  # fmt: skip
    assert json.loads((run / "report.json").read_text()) == cli.model.report
    return cli.model.report


CONTEXTS = {  # max_position_embeddings of their config.json
    "Qwen/Qwen2.5-1.5B-Instruct": 32768,
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 131072,
}


def test_the_papers_response_length_fits_the_default_policy():
    options = yaml.safe_load(PAPER.read_text())["model"]["init_args"]
    Sampling(**options["sampling"]).check_context(8192, CONTEXTS[options["policy"]])


@pytest.mark.long
def test_all_suites_run_on_local_files_and_resume(policy, tmp_path, capsys):
    one_turn = [name for name in ROWS if name not in MANY_TURNS]
    folder = write_rows(tmp_path / "data", *one_turn)
    names = f"--data.suites=[{', '.join(one_turn)}]"
    arguments = [names, f"--data.folder={folder}", "--data.num_samples=2"]
    report = run_suites(policy, tmp_path / "run", *arguments)
    rows = {row["suite"]: row for row in report["suites"]}
    assert list(rows) == one_turn
    markdown = (tmp_path / "run" / "report.md").read_text()
    assert markdown in capsys.readouterr().out
    for name, row in rows.items():
        assert "left_out" not in row, row
        given = [row for row in ROWS[name] if row.get("name") != "_support"]
        assert row["num_samples"] == 2 and row["num_problems"] == len(given)
        own = json.loads((tmp_path / "run" / name / "report.json").read_text())
        assert own["score"] == row["score"] and own["num_samples"] == 2
        assert f"| {row['title']} |" in markdown

    lines = {name: tmp_path / "run" / name / "responses.jsonl" for name in one_turn}
    whole = {name: path.read_text() for name, path in lines.items()}
    torn = lines["math500"]
    torn.write_text(whole["math500"].splitlines(keepends=True)[0] + '{"uid": "tor')
    lines["mmlu"].unlink()
    again = run_suites(policy, tmp_path / "run", *arguments)
    assert again == report
    for name, path in lines.items():
        assert sorted(untimed(path.read_text())) == sorted(untimed(whole[name]))


CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.long
def test_suites_of_several_turns_need_a_chat_template(policy, tmp_path):
    folder = write_rows(tmp_path / "data", "math500", *MANY_TURNS)
    arguments = [f"--data.suites=[math500, {', '.join(MANY_TURNS)}]", f"--data.folder={folder}"]
    report = run_suites(policy, tmp_path / "plain", *arguments, "--data.num_samples=1")
    for row in report["suites"][1:]:
        assert "data.prompts.template: 'plain' has no turns" in row["left_out"]
    talks = tmp_path / "policy"
    shutil.copytree(policy, talks)
    tokenizer = AutoTokenizer.from_pretrained(talks)
    tokenizer.chat_template = CHAT.replace("<|im_end|>", tokenizer.eos_token)
    tokenizer.save_pretrained(talks)
    chat = ["--data.prompts.template=chat", "--model.sampling.max_tokens=512"]
    report = run_suites(talks, tmp_path / "chat", *arguments, "--data.num_samples=1", *chat)
    for row in report["suites"][1:]:
        assert "left_out" not in row and row["num_problems"] == len(ROWS[row["suite"]])
        lines = (tmp_path / "chat" / row["suite"] / "responses.jsonl").read_text().splitlines()
        assert json.loads(lines[0])["value"] == 0.0


def untimed(text: str) -> list[str]:
    records = [json.loads(line) for line in text.splitlines()]
    return [json.dumps({**record, "grade_seconds": 0}, sort_keys=True) for record in records]


def test_each_response_to_gpqa_has_an_order_of_its_own(policy, tmp_path):
    folder = write_rows(tmp_path / "data", "gpqa_diamond")
    arguments = ["--data.suites=[gpqa_diamond]", f"--data.folder={folder}", "--data.num_samples=16"]
    arguments.append("--data.limit=1")
    report = run_suites(policy, tmp_path / "run", *arguments)
    [row] = report["suites"]
    assert (row["num_problems"], row["num_samples"], row["k_of_paper"]) == (1, 16, 64)
    text = (tmp_path / "run" / "gpqa_diamond" / "responses.jsonl").read_text()
    records = [json.loads(line) for line in text.splitlines()]
    assert {record["answer"] for record in records} == set("ABCD")
    assert len({record["question"] for record in records}) > 8
    assert len({record["problem"] for record in records}) == 1


@pytest.mark.long
def test_a_suite_that_cannot_run_is_left_out_and_says_why(policy, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = write_rows(tmp_path / "data", "math500")
    arguments = ["--data.suites=[gpqa_diamond, math500]", f"--data.folder={folder}"]
    report = run_suites(policy, tmp_path / "run", *arguments, "--data.num_samples=1")
    left_out, ran = report["suites"]
    for part in ("Idavidrein/gpqa", "CC-BY-4.0", "gpqa_diamond.csv", "--data.files.gpqa_diamond"):
        assert part in left_out["left_out"]
    assert ran["num_problems"] == 2
    markdown = (tmp_path / "run" / "report.md").read_text()
    assert "| GPQA Diamond | – | – | – | – | left out |" in markdown
    assert "1 responses a problem, not 16" in markdown
    with pytest.raises(ValueError, match=r"data.suites: none of 1 can run: suite gpqa_diamond"):
        run_suites(policy, tmp_path / "none", "--data.suites=[gpqa_diamond]")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--data.suites=[mmlux]", r"suites: 'mmlux' is no suite.*mmlu"),
        ("--data.suites=[mmlu, mmlu]", "'mmlu' is named twice"),
        ("--data.suites=[]", "none is named"),
        ("--data.files={mathh: x.jsonl}", "'mathh' is not among data.suites"),
        ("--data.files={mmlu: x.jsonl}", r"data.files.mmlu: there is no file 'x.jsonl'"),
        ("--data.folder=nowhere", "there is no folder 'nowhere'"),
        ("--data.limit=0", "data.limit: 0 is not at least 1"),
        ("--data.folderr=x", "folderr"),
    ],
)
def test_mistakes_name_the_key(policy, tmp_path, argument, message):
    with pytest.raises(ValueError, match=message):
        run_suites(policy, tmp_path, argument)


@pytest.mark.parametrize("name", NAMES)
def test_every_suite_declares_all_of_it(name):
    suite = load_suite(name)
    assert suite.prompt and suite.grading and suite.licence and suite.sample
    assert suite.num_samples >= 1 and all(isinstance(note, str) for note in suite.deviations)
    if not suite.needs_judge:
        suite.verifier  # noqa: B018 - it can be built
    assert hasattr(suite.source(path="local.jsonl"), "problems")


@pytest.mark.long
def test_a_suite_of_ones_own_is_a_file(policy, tmp_path):
    declared = yaml.safe_load((ROOT / "r1lit/evaluation/suites/math500.yaml").read_text())
    declared["problems"]["init_args"]["path"] = str(
        write_rows(tmp_path, "math500") / "math500.jsonl"
    )
    own = tmp_path / "mine.yaml"
    own.write_text(yaml.safe_dump(declared))
    [row] = run_suites(policy, tmp_path / "run", f"--data.suites=[{own}]")["suites"]
    assert row["suite"] == "mine" and row["num_samples"] == 16
    own.write_text(yaml.safe_dump(declared | {"gradr": 1}))
    with pytest.raises(ValueError, match="has the key 'gradr'"):
        load_suite(str(own))


def test_the_paper_runs_every_suite_that_r1lit_ships():
    listed = yaml.safe_load(PAPER.read_text())["data"]["init_args"]["suites"]
    assert sorted(listed) == sorted(NAMES)
    assert {*ROWS, "needle", "multi_hop"} == set(NAMES)  # those two are made, not read


@pytest.mark.parametrize(
    ("name", "made"), [("EVALUATION", table.page), ("DEVIATIONS", table.page_of_deviations)]
)
def test_the_pages_have_what_the_suites_say_of_themselves(name, made):
    listed = yaml.safe_load(PAPER.read_text())["data"]["init_args"]["suites"]
    page = (ROOT / "docs" / f"{name}.md").read_text()
    own = page.split("<!-- suites -->\n")[1].split("<!-- end of suites -->")[0]
    assert own == made([load_suite(name) for name in listed])
