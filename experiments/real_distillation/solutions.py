"""Right solutions of GSM8K by larger models, and the problems that both arms learn from.

    python -m experiments.real_distillation.solutions process_bench.jsonl.gz gsm8k.jsonl --to FOLDER

The shortest of ProcessBench's right solutions become ``documents.jsonl`` (prompt and response), and
their problems ``problems.jsonl`` (question and answer). ``held_out.jsonl`` has problems of GSM8K's
test split that ProcessBench does not have, whose gold solution takes at most two calculations.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.launch import command_line, reported
from r1lit.data.tables import read_rows
from r1lit.files import Record, write_records
from r1lit.seeding import generator

NUM_SOLUTIONS, NUM_HELD_OUT, MOST_STEPS = 96, 192, 2


def right_solutions(rows: Sequence[Record]) -> list[Record]:
    """Return the solutions of GSM8K's problems in which every step is right, the shortest first.

    Each problem comes once.
    """
    kept: dict[str, Record] = {}
    for row in rows:
        if row["id"].startswith("gsm8k") and row["label"] == -1 and row["final_answer_correct"]:
            text = "\n\n".join(step.strip() for step in row["steps"])
            found = {"prompt": row["problem"].strip(), "response": text}
            kept.setdefault(found["prompt"], found)
    return sorted(kept.values(), key=lambda row: len(row["response"]))


def tables(process_bench: Sequence[Record], gsm8k: Sequence[Record]) -> dict[str, list[Record]]:
    """Return documents, their problems, and held-out problems.

    Raises:
        ValueError: if a table has too few rows for them.
    """
    gold = {row["question"].strip(): row["answer"] for row in gsm8k}
    documents = [row for row in right_solutions(process_bench) if row["prompt"] in gold]
    known = {row["problem"].strip() for row in process_bench}
    easy = [q for q, text in gold.items() if q not in known and 0 < text.count("<<") <= MOST_STEPS]
    for name, rows, num in (("process_bench", documents, NUM_SOLUTIONS),
                            ("gsm8k", easy, NUM_HELD_OUT)):  # fmt: skip
        if len(rows) < num:
            raise ValueError(f"{name}: {len(rows)} rows can be used; {num} are needed")
    documents = documents[:NUM_SOLUTIONS]
    order = generator(0, "real distillation").permutation(len(easy))[:NUM_HELD_OUT]
    return {
        "documents": documents,
        "problems": [_problem(row["prompt"], gold) for row in documents],
        "held_out": [_problem(easy[i], gold) for i in sorted(order)],
    }


def _problem(question: str, gold: dict[str, str]) -> Record:
    answer = gold[question].rpartition("####")[2]
    return {"question": question, "answer": answer.strip().replace(",", "")}


@reported("experiments.real_distillation.solutions")
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.real_distillation.solutions", __doc__)
    parser.add_argument("process_bench", help="the table of ProcessBench")
    parser.add_argument("gsm8k", help="the table of GSM8K's test split")
    parser.add_argument("--to", type=Path, required=True, help="the folder to write")
    options = parser.parse_args(arguments)
    made = tables(read_rows(options.process_bench), read_rows(options.gsm8k))
    for name, rows in made.items():
        write_records(options.to / f"{name}.jsonl", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
