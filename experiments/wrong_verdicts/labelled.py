"""Our verifier and math-verify alone, on solutions of models whose truth was labelled.

    python -m experiments.wrong_verdicts.labelled process_bench.jsonl.gz gsm8k_test.jsonl math.jsonl

ProcessBench says of each solution whether its final answer is right. The other tables have the gold
answers: columns ``question`` or ``problem``, and ``answer`` (after its last ``####``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from experiments.launch import command_line, reported
from experiments.tables import as_markdown, group_by
from experiments.wrong_verdicts.plain import PlainMathVerify
from r1lit.data.tables import read_rows
from r1lit.files import Record
from r1lit.problems import Problem
from r1lit.verifiers import MathVerifier, Verifier


def compared() -> dict[str, Verifier]:
    """Return what is compared, by name."""
    return {
        "ours": MathVerifier(),
        "ours, `last_expression`": MathVerifier(last_expression=True),
        "math-verify, our extraction": PlainMathVerify(),
        "math-verify, whole response": PlainMathVerify(whole_response=True),
    }


def gold_answers(rows: Iterable[Record]) -> dict[str, str]:
    """Return the gold answer of each problem that has one."""
    found = {}
    for row in rows:
        answer = str(row["answer"] or "").rpartition("####")[2].strip()
        if answer:
            found[str(row.get("question") or row["problem"]).strip()] = answer
    return found


def matched(solutions: Iterable[Record], gold: Mapping[str, str]) -> list[Record]:
    """Return the solutions whose problem has a gold answer, each with its data set and text."""
    return [
        {
            "data": row["id"].partition("-")[0],
            "text": "\n\n".join(row["steps"]),
            "is_right": row["final_answer_correct"],
            "problem": Problem(uid=row["id"], question=row["problem"], source="process_bench",
                               answer=gold[row["problem"].strip()], verifier="math"),
        }
        for row in solutions
        if row["problem"].strip() in gold
    ]  # fmt: skip


def as_table(solutions: Sequence[Record], verifiers: Mapping[str, Verifier]) -> str:
    """Return a row for each data set and verifier, as Markdown."""
    rows = []
    for data, own in group_by("data", solutions).items():
        for name, verifier in verifiers.items():
            texts = [one["text"] for one in own]
            verdicts = verifier.verify_batch(texts, [one["problem"] for one in own])
            pairs = [
                (one["is_right"], v.status == "right") for one, v in zip(own, verdicts, strict=True)
            ]
            refused = [paid for is_right, paid in pairs if is_right].count(False)
            paid = [paid for is_right, paid in pairs if not is_right].count(True)
            num_right = sum(is_right for is_right, _ in pairs)
            rows.append(
                [data, name, f"{refused} of {num_right}", f"{paid} of {len(own) - num_right}"]
            )
    return as_markdown(["data", "verifier", "right ones refused", "wrong ones accepted"], rows, 2)


@reported("experiments.wrong_verdicts.labelled")
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.wrong_verdicts.labelled", __doc__)
    parser.add_argument("process_bench", help="the table of labelled solutions")
    parser.add_argument("gold", nargs="+", help="tables of problems with their gold answers")
    options = parser.parse_args(arguments)
    gold = gold_answers(row for path in options.gold for row in read_rows(path))
    verifiers = compared()
    try:
        print(as_table(matched(read_rows(options.process_bench), gold), verifiers))
    finally:
        for verifier in verifiers.values():
            verifier.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
