r"""Labels of safe and unsafe responses by a judge, in the form of the paper's risk review.

    python -m r1lit.curation.safety_labels --responses '[runs/harmful/responses.jsonl]' \
        --output runs/labels.jsonl --judge.model r1lit.endpoint.ServedModel --judge.model.model NAME

R1's safety reward model learns from responses "annotated as 'safe' or 'unsafe' according to
predefined safety guidelines" (Nature 645:633, Methods). The guidelines of the annotation are not
published. The paper prints the prompt of its service's risk review (arXiv 2501.12948v2, Listing 8),
which this command sends word for word: eleven standards, a reason, and the standards violated.

``r1lit.data.TableLabels`` reads what the command writes: prompt, response, label, rules, uid.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser

from r1lit.console import run_script
from r1lit.endpoint.chat import key_of
from r1lit.endpoint.client import in_parallel
from r1lit.errors import check_at_least
from r1lit.files import Record, read_existing, write_records
from r1lit.refused import instantiated
from r1lit.text.extract import thinking_and_answer
from r1lit.verifiers.generative import GenerativeJudge

LISTING_8 = (Path(__file__).with_name("prompts") / "listing8.txt").read_text(encoding="utf-8")
"""The paper's prompt, byte for byte, with its slots {query} and {answer}."""
STANDARDS = frozenset(int(n) for n in re.findall(r"^(\d+)\. \[", LISTING_8, re.MULTILINE))
"""The numbers of its eleven safety standards."""
SAFE = (-1,)
"""The label of no violated standard."""
MAX_CHARACTERS = 40_000


class SafetyJudge(GenerativeJudge):
    """Prompts ``model`` with ``LISTING_8`` for the standards that a whole response violates.

    A reply without a readable list is requested again, up to ``attempts`` times.

    >>> judge = SafetyJudge(lambda prompt: "<target_rule>[-1]</target_rule>")
    >>> judge("How do I bake bread?", "Mix flour and water.")
    (-1,)
    """

    def __call__(self, query: str, answer: str) -> tuple[int, ...] | None:
        """Return the standards' numbers, (-1,) for a safe response, or None for no judgement."""
        if len(answer) > MAX_CHARACTERS:
            return None
        key = key_of(LISTING_8, self.name, query, answer)
        texts = {"query": query, "answer": answer}
        text = re.sub(r"\{(query|answer)\}", lambda slot: texts[slot[1]], LISTING_8)
        found = self.kept_or_requested(key, lambda fence: text, read_rules)
        return None if found is None else tuple(json.loads(found))


def read_rules(reply: str, fence: str) -> str | None:
    """Return the list in the last ``<target_rule>``, None if it is none of the standards'.

    >>> read_rules("<judge_reason>Drugs.</judge_reason> <target_rule>[7, 6]</target_rule>", "")
    '[6, 7]'
    >>> [read_rules(f"<target_rule>{x}</target_rule>", "") for x in ("[12]", "[-1, 6]", "none")]
    [None, None, None]
    """
    answer = thinking_and_answer(reply)[1]
    found = re.findall(r"<target_rule>\s*\[([-\d,\s]{1,80})\]\s*</target_rule>", answer)
    numbers = {number.strip() for number in found[-1].split(",")} if found else set()
    if not all(re.fullmatch(r"-1|\d{1,2}", number) for number in numbers):
        return None
    rules = {int(number) for number in numbers}
    known = rules == {*SAFE} or (rules and rules <= STANDARDS)
    return json.dumps(sorted(rules)) if known else None


def label_responses(
    responses: list[str], output: str, judge: SafetyJudge, num_threads: int = 8
) -> dict[str, Any]:
    """Label responses and return the counts.

    Args:
        responses: files as ``EvaluationModule`` writes them, or with question and response a line.
        output: the file to write; responses without a judgement are counted and left out.
        judge: its ``cache`` keeps judgements, so an interrupted command continues.
        num_threads: requests under way at a time.

    Raises:
        ValueError: if a file is missing or lacks a key, or no response got a judgement.
    """
    check_at_least("num_threads", num_threads, 1)
    records = [record for path in responses for record in read_existing(Path(path), "responses")]
    for number, record in enumerate(records, start=1):
        for key in ("question", "response"):
            if not isinstance(record.get(key), str):
                raise ValueError(f"responses: line {number} has no text under {key!r}")
    judged = in_parallel(
        lambda record, _: judge(record["question"], record["response"]), records, num_threads
    )
    counts = Counter(rule for rules in judged for rule in (rules or ("no judgement",)))
    labelled: list[Record] = [
        {
            "prompt": record["question"],
            "response": record["response"],
            "label": "safe" if rules == SAFE else "unsafe",
            "rules": list(rules),
            "uid": record.get("uid"),
        }
        for record, rules in zip(records, judged, strict=True)
        if rules is not None
    ]
    if not labelled:
        raise ValueError(f"judge: it gave no judgement of {len(records)} responses")
    write_records(Path(output), labelled)
    return {"responses": len(records), "labelled": len(labelled), "rules": dict(counts)}


def main(args: Sequence[str] | None = None) -> None:
    """Run the command; ``args`` is ``sys.argv[1:]`` if left out."""
    parser = ArgumentParser(prog="python -m r1lit.curation.safety_labels", exit_on_error=False)
    parser.add_argument("-c", "--config", action="config")
    parser.add_function_arguments(label_responses)
    given = instantiated(parser, args)
    print(label_responses(**{key: v for key, v in vars(given).items() if key != "config"}))


if __name__ == "__main__":
    run_script("safety_labels", main)
