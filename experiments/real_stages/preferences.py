"""Real preferences for the last stage: pairs for two reward models, and requests for RL.

    python -m experiments.real_stages.preferences harmless-base.jsonl.gz --to FOLDER

Of Anthropic's HH the shortest conversations of one turn. ``reward.jsonl`` and ``judge.jsonl`` hold
``prompt``, ``chosen`` and ``rejected`` for the model that rewards and for the one that only
measures; ``requests.jsonl`` and ``held_out.jsonl`` hold requests. No request is in two files.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.launch import command_line, reported
from r1lit.data import TablePairs
from r1lit.files import Record, write_records
from r1lit.seeding import permutation

HUMAN, ASSISTANT = "\n\nHuman:", "\n\nAssistant:"
SHARES = {"reward": 180, "judge": 180, "requests": 72, "held_out": 48}


def one_turn(path: str) -> list[Record]:
    """Return conversations of one turn, shortest first, with prompt, chosen and rejected."""
    found: dict[str, Record] = {}
    pairs = TablePairs(path, prompt=None, turn=ASSISTANT).examples()
    for pair in sorted(pairs, key=lambda p: len(str(p.question)) + max(map(len, p.responses))):
        question, (chosen, rejected) = str(pair.question), map(str.strip, pair.responses)
        is_one_turn = question.count(HUMAN) == 1 and ASSISTANT not in chosen
        if is_one_turn and chosen and rejected:
            request = question.removeprefix(HUMAN).removesuffix(ASSISTANT).strip()
            row = {"prompt": request, "chosen": chosen, "rejected": rejected}
            found.setdefault(request, row)
    return list(found.values())


def split(rows: Sequence[Record], seed: int = 0) -> dict[str, list[Record]]:
    """Return the rows of each file, drawn at random from the shortest.

    Raises:
        ValueError: if there are fewer conversations.
    """
    num = sum(SHARES.values())
    if len(rows) < num:
        raise ValueError(f"{len(rows)} conversations of one turn; {num} are needed")
    order = iter(permutation(num, seed, "preferences"))
    return {name: [rows[next(order)] for _ in range(share)] for name, share in SHARES.items()}


def as_request(row: Record) -> Record:
    """Return a problem without an answer, which reward models alone score."""
    return {"question": row["prompt"], "answer": "-", "kind": "general"}


@reported("experiments.real_stages.preferences")
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = command_line("experiments.real_stages.preferences", __doc__)
    parser.add_argument("path", type=Path, help="the table of chosen and rejected conversations")
    parser.add_argument("--to", type=Path, required=True, help="the folder to write")
    options = parser.parse_args(arguments)
    for name, rows in split(one_turn(str(options.path))).items():
        paired = name in ("reward", "judge")
        write_records(options.to / f"{name}.jsonl", rows if paired else map(as_request, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
