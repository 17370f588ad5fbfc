"""A few rows of each suite's data in its exact schema, for tests without the data.

Every row is r1lit's own: none is of the benchmark."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

from suite_schemas import GPQA

from r1lit.evaluation.suites import load_suite

CHOICES = {"choices": ["0", "1", "2", "3"], "answer": 1, "subject": "abstract_algebra"}
STDIN = [{"input": "1\n", "output": "2\n", "testtype": "stdin"}]
CALLS = [{"input": "[1, 2]\n3", "output": "false", "testtype": "functional"}]
LIVE = {"question_title": "t", "contest_date": "2024-10-05T00:00:00", "difficulty": "easy"} | {
    "platform": "atcoder",
    "contest_id": "own",
}


def packed(tests: list[dict[str, str]]) -> str:
    """Private tests as LiveCodeBench ships them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


DROP = "Passage: {}\nQuestion: How many touchdowns were there?\nAnswer:"

ABOVE = """
import sys
n, gold, own = (open(path).read().split() for path in sys.argv[1:])
print(int(len(own) == 1 and int(own[0]) > int(n[0])))
"""

ROWS: dict[str, list[dict[str, Any]]] = {
    "mmlu": [{"question": "What is 0 + 1?", **CHOICES}, {"question": "What is 3 - 2?", **CHOICES}],
    "gpqa_diamond": [
        {
            **dict.fromkeys(GPQA, ""),
            "Question": f"Which of them {verb}?",
            "Correct Answer": f"what {verb}",
            **{f"Incorrect Answer {i}": f"what {verb} not {i}" for i in (1, 2, 3)},
            "High-level domain": domain,
            "Record ID": f"own-{verb}",
        }
        for verb, domain in (("burns", "Chemistry"), ("falls", "Physics"), ("grows", "Biology"))
    ],
    "drop": [
        {"context": DROP.format(f"Team {i} won."), "completion": f" {i}", "ref_text": f"{i}|{i} of"}
        for i in range(6)
    ],
    "mmlu_redux": [
        {**CHOICES, "question": "What is 0 + 1?", "error_type": kind, "correct_answer": answer}
        for kind, answer in (("ok", None), ("wrong_groundtruth", "C"))
    ],
    "mmlu_pro": [
        {
            "question_id": 1,
            "question": "What is 1 + 1?",
            "options": ["1", "N/A", "2", *map(str, range(3, 10))],
            "answer": "C",
            "answer_index": 2,
            "cot_content": "",
            "category": "math",
            "src": "",
        }
    ],
    "ifeval": [
        {
            "key": 1000,
            "prompt": "Write without commas.",
            "instruction_id_list": ["punctuation:no_comma"],
            "kwargs": [{"num_words": None}],
        }
    ],
    "aime2024": [
        {
            "id": i,
            "problem": f"What is {i} + 1?",
            "solution": f"One more than {i} is {i + 1}.",
            "answer": f"{i + 1:03d}" if i == 7 else str(i + 1),
            "url": "",
            "year": "2024",
        }
        for i in (59, 60, 7)
    ],
    "aime2025": [{"id": 0, "problem": "What is 69 + 1?", "answer": "70"}],
    "cnmo2024": [
        {"question": f"What is $1 + {i}$?", "answer": answer, "question_type": kind}
        for i, answer, kind in ((1, "2", "填空"), (2, "$3$", "填空"), (3, "\\frac{8}{2}", "解答"))
    ],
    "amc": [{"question": "What is 26 + 1?", "answer": 27.0}],
    "gsm8k": [{"question": "What is 1000 + 1?", "answer": "It is <<1000+1=1001>>.\n#### 1,001"}],
    "cluewsc": [
        {
            "idx": n,
            "target": {
                "span1_text": name,
                "span2_text": "他",
                "span1_index": text.index(name),
                "span2_index": text.index("他"),
            },
            "text": text,
            "label": label,
        }
        for n, (text, name, label) in enumerate(
            (
                ("小明放学了，他回家。", "小明", "true"),
                ("老师叫小红来，因为他有话说。", "老师", "true"),
                ("小刚问爷爷，他几岁了。", "爷爷", "true"),
            )
        )
    ],
    "ceval": [
        {"id": i, "question": f"1 + {i} =", "A": "0", "B": str(i + 1), "C": "7", "D": "8"}
        | {"answer": "B", "explanation": "", "subject": subject}
        for i, subject in enumerate(("高等数学", "高等数学", "大学物理"))
    ],
    "cmmlu": [
        {"Question": "1 + 1 =", "subject": "初等数学", "Answer": "B"}
        | dict(zip("ABCD", "1234", strict=True))
    ],
    "simpleqa": [
        {"metadata": "{}", "problem": "In which year was it?", "answer": "1957"},
        {"metadata": "{}", "problem": "Who was it?", "answer": "Ada Lovelace"},
    ],
    "c_simpleqa": [
        {
            "id": str(n),
            "primary_category": "中华文化",
            "secondary_category": "古诗词",
            "question": question,
            "answer": answer,
            "urls": [],
        }
        for n, (question, answer) in enumerate(
            (
                ("《静夜思》的作者是谁？", "李白"),
                ("《春晓》的作者是谁？", "孟浩然"),
                ("《登鹳雀楼》的作者是谁？", "王之涣"),
            )
        )
    ],
    "frames": [
        {
            "Prompt": "Which of the two was born first?",
            "Answer": "Jane Ballou",
            "reasoning_types": "Multiple constraints",
            "wiki_links": ["https://en.wikipedia.org/wiki/A", "https://en.wikipedia.org/wiki/B"],
        }
    ],
    "alpaca_eval": [
        {
            "instruction": f"Say {word}.",
            "output": word * 3,
            "generator": "gpt4_1106_preview",
            "dataset": "helpful_base",
        }
        for word in ("hello", "goodbye", "thanks")
    ],
    "arena_hard": [
        {"uid": uid, "category": "arena-hard-v0.1", "cluster": "c", "prompt": f"Say {uid}."}
        for uid in ("x", "y")
    ],
    "livecodebench": [
        LIVE
        | {
            "question_id": "1",
            "question_content": "Add one.",
            "starter_code": "",
            "public_test_cases": json.dumps(STDIN),
            "private_test_cases": packed(STDIN),
            "metadata": "{}",
        },
        LIVE
        | {
            "question_id": "2",
            "question_content": "Is n in a?",
            "starter_code": "class Solution:\n    def has(self, a: List[int], n: int) -> bool:\n",
            "public_test_cases": json.dumps(CALLS),
            "private_test_cases": "[]",
            "metadata": json.dumps({"func_name": "has"}),
        },
        LIVE
        | {
            "question_id": "3",
            "question_content": "Add one, once more.",
            "starter_code": "",
            "public_test_cases": json.dumps(STDIN),
            "private_test_cases": json.dumps(STDIN),
            "metadata": "{}",
        },
    ],
    "humaneval_mul": [
        {
            "task_id": "Python/0",
            "prompt": 'def same(x):\n    """Return x."""\n',
            "declaration": "def same(x):\n",
            "canonical_solution": "    return x\n",
            "test": "def check(same):\n    assert same(1) == 1\n\ncheck(same)",
            "example_test": "",
            "text": "",
        }
    ],
    "humaneval": [
        {
            "task_id": "HumanEval/0",
            "prompt": "def f(x):\n",
            "entry_point": "f",
            "canonical_solution": "    return x\n",
            "test": "def check(candidate):\n    assert candidate(1) == 1\n",
        }
    ],
    "mbpp": [{"task_id": 11, "text": "Add.", "code": "", "test_list": ["assert add(1, 1) == 2"]}],
    "codeforces": [
        {
            "id": f"7/{index}",
            "aliases": None,
            "contest_id": "7",
            "contest_name": "Codeforces Round 7 (Div. 2)",
            "contest_type": "CF",
            "contest_start": 1_700_000_000,
            "contest_start_year": 2023,
            "index": index,
            "title": "Any",
            "time_limit": 1.0,
            "memory_limit": 256.0,
            "description": "Print a number above n.",
            "input_format": "n",
            "output_format": "a number",
            "interaction_format": None,
            "examples": [{"input": "1", "output": "2"}],
            "note": None,
            "official_tests": [
                {"input": "1\n", "output": "2\n"},
                {"input": "5\n", "output": "6\n"},
            ],
            "editorial": None,
            "rating": 800,
            "tags": ["math"],
            "testset_size": 2,
            "official_tests_complete": True,
            "input_mode": "stdio",
            "generated_checker": checker,
            "executable": True,
            "generated_tests": 0,
        }
        for index, checker in (("A", None), ("B", ABOVE), ("C", None))
    ],
    "humanevalfix": [
        {
            "task_id": "Python/0",
            "declaration": "def same(x):\n",
            "buggy_solution": "    return x + 1\n",
            "canonical_solution": "    return x\n",
            "test": "def check(same):\n    assert same(1) == 1\n\ncheck(same)",
            "bug_type": "excess logic",
            "entry_point": "same",
        }
    ],
    "quixbugs": [
        {"name": "gcd", "buggy": "def gcd(a, b):\n    return a\n", "needs_node": False}
        | {"fixed": "import math\ngcd = math.gcd\n", "cases": [[[4, 6], 2]]},
        {"name": "_support", "node.py": ""},
    ],
    "bfcl": [
        {
            "id": "simple_0",
            "category": "simple_python",
            "question": [[{"role": "user", "content": "Add 1 and 2."}]],
            "function": [
                {
                    "name": "add",
                    "parameters": {
                        "type": "dict",
                        "properties": {key: {"type": "integer"} for key in "ab"},
                        "required": ["a", "b"],
                    },
                }
            ],
            "ground_truth": [{"add": {"a": [1], "b": [2]}}],
        }
    ],
    "aider_polyglot": [
        {
            "name": "add",
            "instructions": "# Instructions\n\nAdd two numbers.\n",
            "solution_files": {"add.py": "def add(a, b):\n    pass\n"},
            "test_files": {
                "add_test.py": "import unittest\nfrom add import add\n\n\n"
                "class AddTest(unittest.TestCase):\n    def test_add(self):\n"
                "        self.assertEqual(add(1, 2), 3)\n"
            },
            "example_files": {".meta/example.py": "def add(a, b):\n    return a + b\n"},
            "editor_files": {},
            "authors": [],
        }
    ],
    "swe_bench_verified": [
        {
            "instance_id": f"own__sums-{n}",
            "repo": "own/sums",
            "base_commit": "0" * 40,
            "problem_statement": "add() returns the difference.",
            "hints_text": "",
            "created_at": "2024-01-01T00:00:00Z",
            "version": "1.0",
            "patch": "--- a/sums/add.py\n+++ b/sums/add.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n"
            "-    return a - b\n+    return a + b\n",
            "test_patch": "--- a/tests/test_add.py\n+++ b/tests/test_add.py\n@@ -4,2 +4,5 @@\n"
            " def test_zero():\n     assert add(1, 0) == 1\n+\n+def test_add():\n"
            "+    assert add(1, 2) == 3\n",
            "FAIL_TO_PASS": '["tests/test_add.py::test_add"]',
            "PASS_TO_PASS": '["tests/test_add.py::test_zero"]',
            "environment_setup_commit": "0" * 40,
            "difficulty": "<15 min fix",
        }
        for n in (1, 2, 3)
    ],
    "mgsm": [{"question": "What is 1 + 1?", "answer": "2"}],
    "math500": [
        {
            "problem": f"What is {n} + 1?",
            "solution": f"So $\\boxed{{{n + 1}}}$.",
            "answer": str(n + 1),
            "subject": "Algebra",
            "level": n,
            "unique_id": f"test/algebra/{n}.json",
        }
        for n in (1, 2)
    ],
}


MANY_TURNS = ("aider_polyglot", "swe_bench_verified")
"""Suites whose responses take several turns, and so need a chat template."""


def write_rows(folder: Path, *names: str) -> Path:
    """Write the rows of suites to the files that they name; return the folder."""
    folder.mkdir(exist_ok=True)
    for name in names:
        path, rows = folder / load_suite(name).file, ROWS[name]
        if name == "swe_bench_verified":
            for row in rows:
                write_repository(folder / "repositories" / row["instance_id"])
        if name == "ceval":
            solved = path.with_name("ceval_dev.jsonl")
            solved.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        if name == "arena_hard":
            answers = [
                {"uid": row["uid"], "ans_id": "", "model": "gpt-4-0314", "messages": [
                    {"role": "user", "content": row["prompt"]},
                    {"role": "assistant", "content": {"answer": "Yes, I say it."}},
                ]}
                for row in rows
            ]  # fmt: skip
            baseline = folder / "arena_hard_v0.1_gpt-4-0314.jsonl"
            baseline.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
        if path.suffix == ".json":
            path.write_text(json.dumps(rows))
            continue
        if path.name.endswith(".tsv"):
            path.write_text("".join("\t".join(row.values()) + "\n" for row in rows))
            continue
        if path.name.endswith(".csv"):
            import csv

            with path.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
            continue
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        if path.suffix == ".gz":
            import gzip

            path.write_bytes(gzip.compress(text.encode()))
        else:
            path.write_text(text)
    return folder


def write_repository(folder: Path) -> None:
    """Write the repository of the instance of SWE-bench, at its base commit."""
    for name, text in {
        "sums/__init__.py": "",
        "sums/add.py": "def add(a, b):\n    return a - b\n",
        "sums/other.py": "class Other:\n    def method(self):\n        return 1\n",
        "tests/test_add.py": "from sums.add import add\n\n\ndef test_zero():\n"
        "    assert add(1, 0) == 1\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
