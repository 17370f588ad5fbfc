from __future__ import annotations

import csv
import gzip
import json
import re

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from r1lit.data import CountdownTable, TableDocuments, TableProblems, TaskTable
from r1lit.data.sources import Document

ROWS = [
    {"question": 'Say "1, 2"\nthen 3.', "answer": "007"},
    {"question": "Two halves?", "answer": "1,000"},
    {"question": "Null?", "answer": "NA"},
]


def write(path, rows):
    """Write rows in the format that the file's name says."""
    name = path.name
    if ".jsonl" in name:
        text = "".join(json.dumps(row) + "\n" for row in rows)
    elif ".json" in name:
        text = json.dumps(rows, indent=2)
    elif ".csv" in name:
        with open(path, "w", newline="") as stream:
            writer = csv.DictWriter(stream, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        text = path.read_bytes().decode()
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
        return path
    data = text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def pairs(source):
    return [(p.question, p.answer) for p in source.problems()]


@pytest.mark.parametrize(
    "name", ["a.jsonl", "a.json", "a.csv", "a.parquet", "a.jsonl.gz", "a.json.gz", "a.csv.gz"]
)
def test_every_format_gives_the_same_text_back(tmp_path, name):
    path = write(tmp_path / name, ROWS)
    assert pairs(TableProblems(str(path))) == [(r["question"], r["answer"]) for r in ROWS]


def test_values_of_mixed_type_are_not_coerced_to_one(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        [
            {"question": "a", "answer": "007"},
            {"question": "b", "answer": 2},
            {"question": "c", "answer": 72.0},
            {"question": "d", "answer": 0.5},
        ],
    )
    assert [p.answer for p in TableProblems(str(path)).problems()] == ["007", "2", "72", "0.5"]


def test_a_changed_file_is_read_anew(tmp_path):
    path = write(tmp_path / "a.jsonl", ROWS)
    assert len(TableProblems(str(path)).problems()) == 3
    write(path, ROWS[:1])
    assert len(TableProblems(str(path)).problems()) == 1


def test_a_data_set_that_is_no_file_goes_through_datasets(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "set").mkdir()
    write(tmp_path / "set" / "train.jsonl", ROWS)
    write(tmp_path / "set" / "test.jsonl", ROWS[:1])
    assert len(TableProblems(str(tmp_path / "set"), split="train").problems()) == 3
    assert len(TableProblems(str(tmp_path / "set"), split="test").problems()) == 1
    with pytest.raises(ValueError, match=r"^path: .*set' \(name: None, split: nope\)"):
        TableProblems(str(tmp_path / "set"), split="nope").problems()


def test_a_hub_that_cannot_be_reached_is_a_value_error(monkeypatch):
    def unreachable(*args, **kwargs):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(ValueError, match=r"'openai/gsm8k' \(name: main, split: train\).*no route"):
        TableProblems("openai/gsm8k", name="main").problems()


def test_name_and_split_reach_datasets(monkeypatch):
    calls = []

    def load(*args, **kwargs):
        calls.append((args, kwargs))
        return datasets.Dataset.from_list(ROWS)

    monkeypatch.setattr(datasets, "load_dataset", load)
    source = TableProblems("openai/gsm8k", name="main", split="test")
    assert len(source.problems()) == 3
    assert calls == [(("openai/gsm8k", "main"), {"split": "test"})]
    assert source.source == "gsm8k"


def test_folders_of_save_to_disk(tmp_path):
    made = datasets.Dataset.from_list(ROWS)
    made.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": made, "test": made.select([2])}).save_to_disk(tmp_path / "two")
    folders = (("one", "train"), ("two", "train"), ("two", "test"))
    sources = [TableProblems(str(tmp_path / name), split=split) for name, split in folders]
    asked = [[problem.question for problem in source.problems()] for source in sources]
    every = [row["question"] for row in ROWS]
    assert asked == [every, every, every[2:]]
    with pytest.raises(ValueError, match="two has no split 'dev'; there are train, test"):
        TableProblems(str(tmp_path / "two"), split="dev").problems()
    (tmp_path / "one" / "state.json").write_text("{}")
    with pytest.raises(ValueError, match="one is not a whole data set of save_to_disk"):
        TableProblems(str(tmp_path / "one")).problems()


def test_columns_uid_meta_skip_and_limit(tmp_path):
    rows = [{"q": f"q{i}", "gold": f"{i}", "id": i, "level": 5 - i} for i in range(5)]
    path = write(tmp_path / "a.parquet", rows)
    source = TableProblems(
        str(path),
        question="q",
        answer="gold",
        uid="id",
        meta=["level"],
        skip=1,
        limit=2,
        source="mine",
        verifier="exact",
    )
    first, second = source.problems()
    assert (first.uid, first.question, first.answer) == ("1", "q1", "1")
    assert (second.uid, second.source, second.verifier) == ("2", "mine", "exact")
    assert first.meta == {"level": 4}


def test_default_uids_are_stable_distinct_and_differ_between_files_of_one_name(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    same = [{"question": "same", "answer": "1"}] * 2
    x = TableProblems(str(write(tmp_path / "x" / "a.jsonl", same))).problems()
    y = TableProblems(str(write(tmp_path / "y" / "a.jsonl", ROWS))).problems()
    again = TableProblems(str(tmp_path / "x" / "a.jsonl"), skip=1).problems()
    assert len({p.uid for p in x + y}) == 5
    assert again[0].uid == x[1].uid


def test_columns_of_json_as_text_are_read_and_others_are_not(tmp_path):
    rows = [{"prompt": "a", "checks": '{"n": 3, "of": null}', "plain": "[1]"}]
    options = {
        "path": str(write(tmp_path / "a.jsonl", rows)),
        "verifier": "ifeval",
        "meta": {"checks": "checks"},
        "keep": ["plain"],
    }
    (problem,) = TaskTable(json_columns=["checks"], **options).problems()
    assert problem.meta == {"checks": {"n": 3}, "plain": "[1]"}
    (problem,) = TaskTable(**options).problems()
    assert problem.meta["checks"] == rows[0]["checks"]
    with pytest.raises(ValueError, match=r"^json_columns: row 1 of .* no JSON in column 'prompt'"):
        TaskTable(json_columns=["prompt"], **options).problems()


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS, {"question": "q"}, r"^question: .* no column 'q'; it has question, answer$"),
        (ROWS, {"answer": "gold"}, r"^answer: .* no column 'gold'; it has question, answer$"),
        (ROWS, {"uid": "id"}, r"^uid: .* no column 'id'"),
        (ROWS, {"meta": ["level"]}, r"^meta.0: .* no column 'level'"),
        ([], {}, r"^path: .* has 0 rows"),
        (ROWS, {"skip": 3}, r"has 3 rows, of which skip: 3 leaves none"),
        (
            [*ROWS[:1], {"question": " ", "answer": "1"}],
            {},
            r"^question: 1 of 2 rows .* first is row 2",
        ),
        (
            [*ROWS[:1], {"question": "a", "answer": ""}],
            {},
            r"^answer: 1 of 2 rows .* nothing in column 'answer', the first is row 2;",
        ),
        ([*ROWS[:1], {"question": 3, "answer": "1"}], {}, r"^question: row 2 of .* holds 3 "),
        ([*ROWS[:1], {"question": "a", "answer": [1]}], {}, r"^answer: row 2 .* holds \[1\]"),
        ([*ROWS[:1], {"question": "a", "answer": True}], {}, r"^answer: row 2 .* holds True"),
        ([*ROWS[:1], {"question": "a"}], {}, r"^answer: 1 of 2 rows .* the first is row 2"),
        (ROWS, {"answer_pattern": r"(\d+)"}, r"^answer_pattern: .* does not match row 3 of"),
        (ROWS, {"answer_pattern": r"\d+"}, r"^answer_pattern: '\\\\d\+' has no group 1"),
        (ROWS, {"answer_pattern": "("}, r"^answer_pattern: '\(' is no regular expression"),
        (ROWS, {"answer_pattern": None}, r"^answer_pattern: null .* begins with # is a comment"),
        (ROWS, {"answer_remove": "NA"}, r"^answer: nothing is left of row 3"),
        (ROWS, {"limit": 0}, r"^limit: 0 is not at least 1; null means"),
        (ROWS, {"skip": -1}, r"^skip: -1 is not at least 0"),
        ([{"question": "a", "answer": "b", "id": "x"}] * 2, {"uid": "id"}, r"^uid: .*'x' twice"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, rows, options, message):
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(ValueError, match=message) as error:
        TableProblems(str(path), **options).problems()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "{}\n{oops\n", r"^path: line 2 of .* is not JSON"),
        ("a.jsonl", "[1]\n", r"^path: line 1 of .* is not a JSON object"),
        ("a.json", '{"a": 1}\n{"a": 2}\n', r"is not JSON \(one object a line is named .jsonl\)"),
        ("a.json", '{"a": 1}', r"is not a JSON array of objects"),
        ("a.jsonl.gz", "{}", r"a.jsonl.gz is not a whole gzip file"),
        ("a.csv", "a,b\n1,2\n1\n", r"row 2 of .* has not as many cells"),
        ("a.csv", "a,b\n1,2,3\n", r"row 1 of .* has not as many cells"),
        ("a.parquet", "no", r"is not a Parquet file"),
    ],
)
def test_a_broken_file_is_named(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        TableProblems(str(tmp_path / name)).problems()


def test_a_file_of_another_encoding_is_named(tmp_path):
    (tmp_path / "a.csv").write_bytes("a,b\n1,für\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"^path: .*a.csv is not UTF-8 text"):
        TableProblems(str(tmp_path / "a.csv")).problems()


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"^path: there is no file '.*gone.jsonl'$"):
        TableProblems(str(tmp_path / "gone.jsonl")).problems()


GSM8K = {"answer_pattern": r"####\s*(.+)", "answer_remove": ","}


def test_gsm8k_in_full(real):
    train = TableProblems(str(real / "gsm8k_train.jsonl"), **GSM8K).problems()
    test = TableProblems(str(real / "gsm8k_test.jsonl"), **GSM8K).problems()
    assert (len(train), len(test)) == (7473, 1319)
    assert [p.answer for p in train[:3]] == ["72", "10", "5"]
    assert [p.answer for p in test[:3]] == ["18", "3", "70000"]
    assert all(re.fullmatch(r"-?\d+(\.\d+)?", p.answer) for p in train + test)
    assert train[0].question.startswith("Natalia sold clips to 48 of her friends")


def test_math_in_full(real):
    path = str(real / "math_train.json")
    with pytest.raises(ValueError, match=r"^answer: 4 of 7,474 rows .*, the first is row 887;"):
        TableProblems(path, question="problem").problems()
    train = TableProblems(path, question="problem", drop_empty=True).problems()
    math500 = TableProblems(
        str(real / "math500.jsonl"), question="problem", uid="unique_id", meta=["level"]
    ).problems()
    assert (len(train), len(math500)) == (7470, 500)
    assert train[0].answer == "0"
    assert math500[0].uid == "test/precalculus/807.json"
    assert math500[0].answer == r"\left( 3, \frac{\pi}{2} \right)"
    assert math500[0].meta == {"level": 2}


def test_numbers_as_answers_and_gzip_in_real_files(real):
    svamp = TableProblems(str(real / "svamp.jsonl"), question="Body", answer="Answer").problems()
    assert (len(svamp), svamp[0].answer) == (1000, "145")
    harmless = TableDocuments(
        str(real / "hh_harmless_base_test.jsonl.gz"), prompt=None, response="chosen"
    ).documents()
    assert len(harmless) == 2312
    assert harmless[0].prompt == "" and harmless[0].response.startswith("\n\nHuman:")


@pytest.mark.parametrize("name", ["c.jsonl", "c.parquet", "c.csv"])
def test_countdown_from_every_format(tmp_path, name):
    rows = [{"target": 98, "nums": [44, 19, 35]}, {"target": 64, "nums": [63, 95, 96, 1]}]
    problems = CountdownTable(str(write(tmp_path / name, rows))).problems()
    assert [p.meta for p in problems] == [
        {"numbers": [44, 19, 35], "target": 98},
        {"numbers": [63, 95, 96, 1], "target": 64},
    ]
    assert problems[0].verifier == problems[0].source == "countdown"
    assert problems[0].answer == "98"
    assert problems[0].question.startswith(
        "Using the numbers [44, 19, 35], create an equation that equals 98."
    )


def test_the_game_of_24_has_one_target(real):
    problems = CountdownTable(str(real / "game24.csv"), numbers="Puzzles", target=24).problems()
    assert len(problems) == 1362
    assert problems[0].meta == {"numbers": [1, 1, 4, 6], "target": 24}
    assert "equals 24" in problems[0].question


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"target": 9, "nums": [3, "x"]}, r"^numbers: row 1 of .* holds \[3, 'x'\]"),
        ({"target": 9, "nums": [3.5, 2]}, r"^numbers: row 1"),
        ({"target": 9, "nums": [True, 2]}, r"^numbers: row 1"),
        ({"target": 9, "nums": "3 and 4"}, r"^numbers: row 1"),
        ({"target": 9, "nums": [3]}, r"^numbers: row 1 .* two integers or more"),
        ({"target": 9.5, "nums": [3, 4]}, r"^target: row 1 of .* holds 9.5"),
        ({"target": None, "nums": [3, 4]}, r"^target: row 1 of .* holds None"),
    ],
)
def test_countdown_rows_that_are_none_are_named(tmp_path, row, message):
    path = write(tmp_path / "c.jsonl", [row])
    with pytest.raises(ValueError, match=message):
        CountdownTable(str(path)).problems()


def test_countdown_wording_needs_its_placeholders():
    with pytest.raises(ValueError, match=r"^wording: .* does not contain \{target\}"):
        CountdownTable("c.jsonl", wording="Use {numbers}.")


def test_documents_fill_template_and_response(tmp_path):
    rows = [{"q": "1+1?", "thinking": "one {q} more", "output": "2"}]
    path = write(tmp_path / "d.jsonl", rows)
    documents = TableDocuments(
        str(path),
        prompt="q",
        response=" <think>{thinking}</think>{output}",
        template="question_answer",
    ).documents()
    assert documents == [
        Document(prompt="Question: 1+1?\nAnswer:", response=" <think>one {q} more</think>2")
    ]
    assert TableDocuments(str(path), prompt=None, response="output").documents() == [
        Document(prompt="", response="2")
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": "gone", "response": "a"}, r"^prompt: .* no column 'gone'; it has a, b"),
        ({"prompt": "a", "response": "gone"}, r"^response: .* no column 'gone'"),
        ({"prompt": "a", "response": "{a}{gone}"}, r"^response \{gone\}: .* no column 'gone'"),
        ({"prompt": "a", "response": "b"}, r"^response: row 2 of .* holds ''"),
        ({"prompt": "b", "response": "a"}, r"^prompt: row 2 of .* holds ''"),
        ({"prompt": "a", "response": "b", "template": "r1"}, r"^template: 'r1' is neither"),
    ],
)
def test_documents_that_cannot_be_used_are_named(tmp_path, options, message):
    path = write(tmp_path / "d.jsonl", [{"a": "x", "b": "y"}, {"a": "x", "b": ""}])
    with pytest.raises(ValueError, match=message):
        TableDocuments(str(path), **options).documents()
