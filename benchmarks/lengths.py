"""Recorded lengths: of responses in a real run of r1lit, and of R1's own chains.

    python -m benchmarks.lengths runs/aha-seeds/r1-zero/seed-0/responses.jsonl \
        ../shared/data/r1_traces.jsonl

writes ``lengths.json`` anew from an evaluation in the middle of a run (64 problems x 16 responses)
and from R1's answers to real questions. No text is kept.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("lengths.json")
CHAINS = Path(__file__).parents[2] / "shared" / "data" / "r1_traces.jsonl"
ITERATION = 12
CHARACTERS_PER_TOKEN = 4


def response_lengths(num_prompts: int, group_size: int, max_tokens: int) -> tuple[int, ...]:
    """Return recorded lengths of P x G responses, prompt-major, clipped to ``max_tokens``.

    Each group's responses come from one recorded group of 16, so that long problems stay together;
    the recorded groups are taken at even spaces.
    """
    groups = json.loads(FILE.read_text())["responses"]
    size = len(groups[0])
    return tuple(
        min(groups[p * len(groups) // num_prompts][g % size], max_tokens)
        for p in range(num_prompts)
        for g in range(group_size)
    )


def chain_lengths(count: int, max_seq_len: int) -> tuple[int, ...]:
    """Return the lengths of ``count`` real chains in tokens, cut at ``max_seq_len``.

    From the data where it lies, from the recorded list elsewhere; both are the same numbers.
    """
    chains = read_chains(CHAINS) if CHAINS.exists() else json.loads(FILE.read_text())["chains"]
    return tuple(max(3, min(chains[i % len(chains)], max_seq_len)) for i in range(count))


def read_chains(path: Path) -> list[int]:
    """Return each chain's length, thinking and answer, at four characters a token."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        (len(record["thinking"]) + len(record["output"])) // CHARACTERS_PER_TOKEN
        for record in records
    ]


def read_responses(path: Path) -> list[list[int]]:
    """Return the lengths of the middle evaluation's groups in a run's ``responses.jsonl``."""
    records: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    middle = [r for r in records if r["split"] == "val" and r["iteration"] == ITERATION]
    groups: dict[str, list[int]] = {}
    for record in middle:
        groups.setdefault(record["uid"], []).append(record["num_tokens"])
    return list(groups.values())


def main(arguments: list[str]) -> None:
    """Write ``lengths.json``."""
    responses, chains = map(Path, arguments)
    recorded: dict[str, Any] = {
        "responses": read_responses(responses),
        "chains": read_chains(chains),
    }
    assert len({len(group) for group in recorded["responses"]}) == 1
    FILE.write_text(json.dumps(recorded).replace("], [", "],\n  [") + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
