"""Agreement of the larger model with the oracles on held-out responses, and its reward model.

    python -m experiments.model_in_the_loop.agreement runs/model_in_the_loop/seed-0 [--truth]

It reads the responses and comparisons of the pipeline's steps, asks the larger model for verdicts
and refined chains, and writes ``agreement.json``. Replies are kept beside it, so that a repeated
call asks for what is missing only. With ``--truth`` it writes ``truth.json``: of two reward models,
one trained on pairs that the larger model compared and one on the annotators', the accuracy over
all pairs of responses to a held-out request that differ in true helpfulness.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from experiments.launch import command_line, reported
from r1lit.batches import Problem, Response
from r1lit.curation import Candidate, CodeBlocks, Context, EngineRefiner, LongParagraphs
from r1lit.files import Record, read_existing, replace_json
from r1lit.metrics.language import language_consistency
from r1lit.policy import load_tokenizer
from r1lit.rewards import RewardModel
from r1lit.rollout import LocalModel, ModelSpec, Sampling
from r1lit.search.scorers import UNGRADED
from r1lit.text.extract import thinking_and_answer
from r1lit.text.scored_text import scored_part
from r1lit.verifiers import GenerativeVerifier
from r1lit.worlds import WorldGrader
from r1lit.worlds.grading import helpfulness, request_asked
from r1lit.worlds.requests import problem_of

THREADS = 64
GREEDY = Sampling(temperature=0.0, max_tokens=200)
REFINING = Sampling(temperature=0.6, top_p=0.95, max_tokens=640)
CONSISTENT = 0.9


def agreement(run: Path, seed: int = 0) -> dict[str, Any]:
    """Return the numbers of one run: ``judge``, ``preference`` and ``refiner``.

    Raises:
        ValueError: if a step before has not written its file.
    """
    requests = read_existing(run / "requests" / "responses.jsonl", "run")
    chains = read_existing(run / "chains" / "responses.jsonl", "run")
    model = str(run / "larger" / "policy")
    return {
        "judge": judged(run, model, [*requests, *chains]),
        "preference": {
            name: compared(
                read_existing(run / f"compared_{name}" / "judgements.jsonl", "run"), requests
            )
            for name in ("model", "oracle")
        },
        "refiner": refined(run, model, chains, seed),
    }


def problem_in(record: Record) -> Problem:
    """Return the problem of a response, its meta read from the question again."""
    question, answer = record["question"], record["answer"]
    if record["source"] not in ("countdown", "chain"):
        return problem_of(request_asked(question), answer)
    language = "zh" if re.search(r"[\u4e00-\u9fff]", question) else "en"
    meta: dict[str, Any] = {"kind": "reasoning", "language": language}
    verifier = "math"
    if record["source"] == "countdown":
        *numbers, target = map(int, re.findall(r"\d+", question))
        meta |= {"numbers": numbers, "target": target}
        verifier = "countdown"
    return Problem(
        uid=record["uid"], question=question, answer=answer, source=record["source"],
        verifier=verifier, meta=meta,
    )  # fmt: skip


def judged(run: Path, model: str, records: Sequence[Record]) -> dict[str, Any]:
    """Return agreement of the judge with the oracle by kind of problem, and what it cost.

    Finished responses count. The oracle's verdict is the line's own; a response that the model
    gives no verdict on is not right by it.
    """
    judge = GenerativeVerifier(
        LocalModel(model, sampling=GREEDY), cache=str(run / "verdicts.sqlite"), num_threads=THREADS
    )
    finished = [record for record in records if record["finished"]]
    verdicts = judge.verify_batch(
        [record["response"] for record in finished], [problem_in(r) for r in finished]
    )
    pairs: dict[str, list[tuple[bool, bool]]] = {}
    undecided: dict[str, int] = {}
    for record, verdict in zip(finished, verdicts, strict=True):
        kind = record["source"] if record["source"] in ("countdown", "chain") else "requests"
        pairs.setdefault(kind, []).append((record["status"] == "right", verdict.status == "right"))
        undecided[kind] = undecided.get(kind, 0) + (verdict.status not in ("right", "wrong"))
    return {
        "kinds": {
            kind: {**agreement_of(own), "undecided": undecided[kind] / len(own)}
            for kind, own in pairs.items()
        },
        "cost": judge.costs.totals,
    }


def agreement_of(pairs: Sequence[tuple[bool, bool]]) -> dict[str, float | None]:
    """Return accuracy and Cohen's kappa of pairs (oracle's verdict, model's).

    Kappa is (observed - chance) / (1 - chance), where chance is the agreement of two raters who
    know only how often each says "right"; None where both always say the same.

    >>> agreement_of([(True, True), (True, False), (False, False), (False, False)])["kappa"]
    0.5
    """
    num = len(pairs)
    oracle, model = (sum(pair[i] for pair in pairs) / num for i in (0, 1))
    accuracy = sum(a == b for a, b in pairs) / num
    chance = oracle * model + (1 - oracle) * (1 - model)
    return {
        "num": num,
        "accuracy": accuracy,
        "kappa": (accuracy - chance) / (1 - chance) if chance < 1 else None,
        "right_by_oracle": oracle,
        "right_by_model": model,
    }


def compared(judgements: Sequence[Record], requests: Sequence[Record]) -> dict[str, float]:
    """Return how often the mean judgement of a pair has the sign of the true difference.

    Pairs without a true difference are left out; a mean of 0 has no sign and agrees with none.
    ``first_preferred`` is over all judgements that prefer one, both orders alike: 0.5 is unbiased.
    """
    records = {(record["uid"], record["sample"]): record for record in requests}
    by_pair: dict[str, list[Record]] = {}
    for line in judgements:
        by_pair.setdefault(line["key"], []).append(line)
    same = ties = num = 0
    for own in by_pair.values():
        first, second = (records[own[0]["uid"], sample] for sample in own[0]["samples"])
        truth = true_helpfulness(first) - true_helpfulness(second)
        if truth == 0:
            continue
        mean = sum(line["difference"] for line in own) / len(own)
        num, same, ties = num + 1, same + (mean * truth > 0), ties + (mean == 0)
    sided = [line for line in judgements if line["difference"]]
    first_won = sum((line["difference"] > 0) != line["turned"] for line in sided)
    return {
        "num_pairs": num,
        "num_judgements": len(judgements),
        "same_sign": same / max(1, num),
        "ties": ties / max(1, num),
        "first_preferred": first_won / max(1, len(sided)),
    }


def true_helpfulness(record: Record) -> float:
    """Return the noise-free helpfulness of a response to a request, 0 to 1."""
    return helpfulness(
        request_asked(record["question"]), scored_part(record["response"], "summary")
    )


def refined(run: Path, model: str, chains: Sequence[Record], seed: int) -> dict[str, Any]:
    """Return what becomes of right, finished chains in the refiner, as shares of them."""
    right = [r for r in chains if r["finished"] and r["status"] == "right"]
    right.sort(key=lambda record: (record["uid"], record["sample"]))
    problems, responses = [problem_in(r) for r in right], [r["response"] for r in right]
    refiner = EngineRefiner(policy=model, sampling=REFINING, cache=str(run / "refined.jsonl"))
    spec = ModelSpec(name=model, tokenizer=load_tokenizer(model))
    refiner.begin(Context(seed=seed, folder=run, model=spec))
    began = time.perf_counter()
    made = [one.text for one in refiner.refine(problems, responses)]
    seconds = time.perf_counter() - began
    verdicts = WorldGrader().verdicts([text or "" for text in made], problems)
    kept = [v.status == "right" for v in verdicts]
    rows = list(zip(made, problems, strict=True))
    readable = [text is not None and is_readable(text, problem) for text, problem in rows]
    after = [text is not None and in_one_language(text, problem) for text, problem in rows]
    before = [in_one_language(text, p) for text, p in zip(responses, problems, strict=True)]
    num = max(1, len(right))
    return {
        "num": len(right),
        "replied": sum(text is not None for text in made) / num,
        "keeps_answer": sum(kept) / num,
        "readable": sum(readable) / num,
        "one_language": sum(after) / num,
        "one_language_before": sum(before) / num,
        "all_three": sum(map(all, zip(kept, readable, after, strict=True))) / num,
        "seconds": seconds,
    }


def in_one_language(text: str, problem: Problem) -> bool:
    """Return whether nine tenths of the chain's words are in the problem's language.

    A chain without a word, numbers alone, is in every language.
    """
    thinking = thinking_and_answer(text)[0]
    if not re.search(r"[^\W\d_]", thinking):
        return True
    return language_consistency(thinking, problem.meta["language"]) >= CONSISTENT


def is_readable(text: str, problem: Problem) -> bool:
    """Return whether the curation's rules of readability keep a text."""
    candidate = Candidate(
        problem=problem, sample=0, text=text, status="right", reason="", num_tokens=0, finished=True
    )
    rules = (LongParagraphs(max_words=900), CodeBlocks())
    return all(rule.reason(candidate) is None for rule in rules)


def truth(run: Path) -> dict[str, Any]:
    """Return for ``model`` and ``oracle`` the reward model's accuracy, and its pairs' numbers.

    Raises:
        ValueError: if a step before has not written its file.
    """
    records = [
        r for r in read_existing(run / "requests" / "responses.jsonl", "run") if r["finished"]
    ]
    responses = [
        Response(
            text=r["response"], problem=problem_in(r), verdict=UNGRADED, num_tokens=r["num_tokens"],
            finished=True,
        )
        for r in records
    ]  # fmt: skip
    helpful = [true_helpfulness(r) for r in records]
    numbers = {}
    for name in ("model", "oracle"):
        rewards = RewardModel(str(run / f"reward_{name}" / "policy"))(responses)
        card = json.loads((run / f"pairs_{name}" / "card.json").read_text())
        numbers[name] = {
            **pair_accuracy(records, rewards, helpful),
            "training_pairs": card["pairs"],
            "compared": card["pairs_compared"],
            "training_right": share_of_right_pairs(
                read_existing(run / f"pairs_{name}" / "pairs.jsonl", "run")
            ),
        }
    return numbers


def pair_accuracy(
    records: Sequence[Record], rewards: Sequence[float], helpful: Sequence[float]
) -> dict[str, float]:
    """Return how often the more helpful of two responses to a request has the higher reward.

    Pairs of equal helpfulness are left out; each request counts alike.
    """
    rows_of: dict[str, list[int]] = {}
    for row, record in enumerate(records):
        rows_of.setdefault(record["uid"], []).append(row)
    shares, num = [], 0
    for rows in rows_of.values():
        right = [
            (rewards[i] - rewards[j]) * (helpful[i] - helpful[j]) > 0
            for i, j in combinations(rows, 2)
            if helpful[i] != helpful[j]
        ]
        if right:
            shares.append(sum(right) / len(right))
            num += len(right)
    return {
        "accuracy": sum(shares) / max(1, len(shares)),
        "num_pairs": num,
        "num_requests": len(shares),
    }


def share_of_right_pairs(pairs: Sequence[Record]) -> float | None:
    """Return the share of training pairs whose chosen response is truly the more helpful."""
    differences = [
        true_helpfulness({"question": pair["prompt"], "response": pair["chosen"]})
        - true_helpfulness({"question": pair["prompt"], "response": pair["rejected"]})
        for pair in pairs
    ]
    return sum(d > 0 for d in differences) / len(differences) if differences else None


@reported("agreement")
def main(args: Sequence[str] | None = None) -> int:
    """Measure one run and write ``agreement.json`` or ``truth.json``; return the exit status."""
    parser = command_line("experiments.model_in_the_loop.agreement", __doc__)
    parser.add_argument("run", type=Path, help="the run folder of one seed")
    parser.add_argument("--truth", action="store_true", help="of the reward models")
    parser.add_argument("--seed", type=int, default=0, help="of refined chains")
    options = parser.parse_args(args)
    name = "truth" if options.truth else "agreement"
    numbers = truth(options.run) if options.truth else agreement(options.run, options.seed)
    replace_json(options.run / f"{name}.json", numbers)
    print(numbers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
