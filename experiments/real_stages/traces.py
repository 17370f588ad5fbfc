"""Real R1 responses for the cold start: the shortest to each question, some of them held out.

    python -m experiments.real_stages.traces r1_traces.jsonl --to runs/real_stages/traces

Rows with ``prompt``, ``thinking`` and ``output`` become ``train.jsonl`` and ``held_out.jsonl`` with
``prompt`` and ``response``, in which the thinking stands in tags. No question is in both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.launch import command_line, reported
from r1lit.files import Record, read_records, write_records

NUM_TRAINED, NUM_HELD_OUT = 24, 8


def shortest(rows: Sequence[Record], num: int) -> list[Record]:
    """Return the shortest response of each question, and the ``num`` shortest of those.

    Raises:
        ValueError: if there are fewer questions.
    """
    best: dict[str, Record] = {}
    for row in sorted(rows, key=_length):
        best.setdefault(row["prompt"], row)
    if len(best) < num:
        raise ValueError(f"{len(best)} questions have a response; {num} are needed")
    return [
        {
            "prompt": row["prompt"],
            "response": f"<think>\n{row['thinking'].strip()}\n</think>\n\n{row['output'].strip()}",
        }
        for row in list(best.values())[:num]
    ]


def _length(row: Record) -> int:
    return len(row["thinking"]) + len(row["output"])


@reported("experiments.real_stages.traces")
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.real_stages.traces", __doc__)
    parser.add_argument("path", type=Path, help="the table of R1's responses")
    parser.add_argument("--to", type=Path, required=True, help="the folder to write")
    options = parser.parse_args(arguments)
    rows = shortest(read_records(options.path), NUM_TRAINED + NUM_HELD_OUT)
    held_out = rows[3::4]  # of all lengths
    write_records(options.to / "held_out.jsonl", held_out)
    write_records(options.to / "train.jsonl", [row for row in rows if row not in held_out])
    return 0


if __name__ == "__main__":
    sys.exit(main())
