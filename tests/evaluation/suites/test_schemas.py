"""Suites of which no row may stand in the tree: three rows of our own in the public schema."""

from __future__ import annotations

import pytest
from suite_rows import ROWS, write_rows
from suite_schemas import SCHEMAS

from r1lit.evaluation.suites import load_suite
from r1lit.text.prompts import columns_in

READ_BY_CODE = {
    "livecodebench": "question_id question_content starter_code contest_date difficulty"
    " public_test_cases private_test_cases metadata",
    "codeforces": "id contest_id contest_name index title time_limit description input_format"
    " output_format interaction_format examples note official_tests input_mode generated_checker",
    "swe_bench_verified": "instance_id base_commit patch test_patch problem_statement"
    " FAIL_TO_PASS PASS_TO_PASS",
    "cluewsc": "text target label",
}


def named_columns(name: str) -> set[str]:
    """Return the columns that a suite's file names, or that its loader reads."""
    if name in READ_BY_CODE:
        return {*READ_BY_CODE[name].split()}
    node = load_suite(name).problems
    given, source = node["init_args"], node["class_path"].rpartition(".")[2]
    if source == "TableProblems":
        default = {"question": "question", "answer": "answer"}
        return {(default | given)[key] for key in default} | {*given.get("meta", [])}
    found = {*given.get("keep", []), *columns_in(given["wording"])} - {"question", "choices"}
    if source == "TaskTable":
        return found | {*given["meta"].values()}
    found |= {given.get("question", "question"), *given.get("choices", [])}
    if "correct" not in given:
        return found | {given.get("answer", "answer")}
    return found | {given["correct"], *given["incorrect"]}


@pytest.mark.parametrize("name", SCHEMAS)
def test_columns_are_those_of_the_public_schema(name):
    schema = SCHEMAS[name]
    assert schema.source and schema.read and len({*schema.columns}) == len(schema.columns)
    for row in ROWS[name]:
        assert {*row} == {*schema.columns}
    assert named_columns(name) <= {*schema.columns}


@pytest.mark.parametrize("name", SCHEMAS)
def test_three_rows_become_three_problems(name, tmp_path):
    assert len(ROWS[name]) == 3
    suite = load_suite(name)
    folder = write_rows(tmp_path / "data", name)
    problems = suite.read(str(folder / suite.file), num_samples=1)
    assert len({problem.uid for problem in problems}) == 3
    for problem, row in zip(problems, ROWS[name], strict=True):
        text = next(str(row[key]) for key in ("problem", "Question", "question", "text",
                    "instruction", "question_content", "description", "problem_statement")
                    if key in row)  # fmt: skip
        assert text in problem.question
    if suite.verifier is not None and suite.verifier.needs_answer:
        gold = [suite.verifier.gold_text(problem) for problem in problems]
        assert {v.status for v in suite.verifier.verify_batch(gold, problems)} == {"right"}


def test_a_column_that_the_public_data_lack_is_named(tmp_path):
    folder = write_rows(tmp_path / "data", "gpqa_diamond")
    path = folder / "gpqa_diamond.csv"
    path.write_text(path.read_text().replace("Incorrect Answer 2", "Wrong Answer 2"))
    with pytest.raises(ValueError, match="Incorrect Answer 2"):
        load_suite("gpqa_diamond").read(str(path))


def test_ceval_shows_a_solved_question_of_the_subject(tmp_path):
    folder = write_rows(tmp_path / "data", "ceval")
    suite = load_suite("ceval")
    question = suite.read(str(folder / "ceval.jsonl"))[1].question
    assert question == (
        "以下是中国关于高等数学考试的单项选择题，请选出其中的正确答案。\n\n"
        "1 + 0 =\nA. 0\nB. 1\nC. 7\nD. 8\n答案： B\n\n1 + 1 =\nA. 0\nB. 2\nC. 7\nD. 8"
    )
    (folder / "ceval_dev.jsonl").unlink()
    with pytest.raises(ValueError, match=r"ceval_dev\.jsonl"):
        suite.read(str(folder / "ceval.jsonl"))


def test_cluewsc_leaves_out_pairs_that_name_no_referent(tmp_path):
    folder = write_rows(tmp_path / "data", "cluewsc")
    path = folder / "cluewsc.jsonl"
    path.write_text(path.read_text().replace('"true"', '"false"', 1))
    assert [p.answer for p in load_suite("cluewsc").read(str(path))] == ["老师", "爷爷"]
    path.write_text(path.read_text().replace('"true"', '"false"'))
    with pytest.raises(ValueError, match=r"label: no row of .* is true"):
        load_suite("cluewsc").read(str(path))


def test_cluewsc_reads_the_hubs_labels(tmp_path):
    """There the label is a class, true first; the answers of the split test are kept back as -1."""
    datasets = pytest.importorskip("datasets")
    rows = [row | {"label": label} for row, label in zip(ROWS["cluewsc"], (0, 1, 0), strict=True)]
    features = datasets.Dataset.from_list(rows).features
    features["label"] = datasets.ClassLabel(names=["true", "false"])
    datasets.Dataset.from_list(rows, features=features).to_parquet(tmp_path / "rows.parquet")
    read = load_suite("cluewsc").read
    assert [p.answer for p in read(str(tmp_path / "rows.parquet"))] == ["小明", "爷爷"]
    hidden = [row | {"label": -1} for row in rows]
    datasets.Dataset.from_list(hidden).to_parquet(tmp_path / "hidden.parquet")
    with pytest.raises(ValueError, match="holds -1, not true or false"):
        read(str(tmp_path / "hidden.parquet"))
