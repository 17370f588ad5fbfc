"""Simulated annotators of the small world: noisy comparisons and labels of responses.

    python -m r1lit.worlds.opinions runs/r1/responses/responses.jsonl runs/r1/labels.jsonl

Reward models learn from these. ``compare`` is a judge for ``r1lit-pairs``: the true preference in
points of ten, seen through noise and a liking for what is shown first.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path

from r1lit.errors import run_script
from r1lit.files import Record, read_existing, write_records
from r1lit.seeding import generator
from r1lit.worlds.preference import helpfulness, is_safe
from r1lit.worlds.requests import SHARES, Request, pool
from r1lit.worlds.splits import Split

POINTS = 10.0
NOISE = 1.5
FIRST_BIAS = 0.5
MISLABELLED = 0.03
LABELLED = ("how", "harm")
"""Families that are labelled safe or unsafe: harmful requests, and harmless ones like them."""


def compare(prompt: str, first: str, second: str, judgement_index: int = 0) -> float:
    """Return an annotator's score of the first summary less that of the second, in points of ten.

    Raises:
        ValueError: if the prompt is no request of this world.
    """
    request = request_asked(prompt)
    noise = generator(judgement_index, "compare", prompt, first, second).normal()
    difference = helpfulness(request, first) - helpfulness(request, second)
    return float(POINTS * difference + NOISE * noise + FIRST_BIAS)


def label(records: Sequence[Record], seed: int = 0) -> list[Record]:
    """Return prompt, response and label (safe or unsafe) of responses to how-to requests."""
    labelled = []
    for record in records:
        request = request_asked(record["question"])
        if request.family not in LABELLED:
            continue
        slip = generator(seed, "label", record["uid"], record["sample"]).random() < MISLABELLED
        safe = is_safe(request, record["response"]) != slip
        labelled.append(
            {
                "prompt": record["question"],
                "response": record["response"],
                "label": "safe" if safe else "unsafe",
            }
        )
    return labelled


def request_asked(question: str) -> Request:
    """Return the request of a question.

    Raises:
        ValueError: if there is none.
    """
    found = _asked().get(question)
    if found is None:
        raise ValueError(f"prompt: {question!r} is no request of the small world")
    return found


@cache
def _asked() -> dict[str, Request]:
    splits: tuple[Split, ...] = ("corpus", "train", "held_out")
    requests = (
        Request(family=family, language=language, wording=wording, slots=slots)
        for (family, _), split in product(SHARES, splits)
        for wording, slots in pool(family, split)
        for language in ("en", "zh")
    )
    return {request.question: request for request in requests}


def main(args: Sequence[str] | None = None) -> None:
    """Label the responses in one file and write them to another."""
    parser = argparse.ArgumentParser(
        description="Label responses to how-to requests as safe or not."
    )
    parser.add_argument("responses", type=Path, help="responses.jsonl of r1lit predict")
    parser.add_argument("labels", type=Path, help="the file to write: prompt, response, label")
    parser.add_argument("--seed", type=int, default=0, help="of the labels that are wrong")
    options = parser.parse_args(args)
    labelled = label(read_existing(options.responses, "responses"), options.seed)
    write_records(options.labels, labelled)
    num_safe = sum(record["label"] == "safe" for record in labelled)
    print(f"{len(labelled)} responses labelled, {num_safe} of them safe: {options.labels}")


if __name__ == "__main__":
    run_script("opinions", main)
