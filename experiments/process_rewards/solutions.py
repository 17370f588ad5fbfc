"""Responses to Countdown problems, sampled once and kept, and the labels of their steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from r1lit.batches import Problem
from r1lit.curation.step_labels import Solution, cut_solution, labelled, monte_carlo_labels
from r1lit.files import JSONLFile, Record, read_records, write_records
from r1lit.policy import load_policy, load_tokenizer
from r1lit.rollout import InProcessEngine, ModelSpec, Request, RolloutEngine, Sampling, texts_of
from r1lit.text.prompts import encode_prompts, prompt_text
from r1lit.verifiers import Grader
from r1lit.worlds.countdown import SEPARATORS, first_wrong_step

TEMPLATE = "small_world"
AT_ONCE = 32  # solutions whose completions are sampled together


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """A response: as it is labelled, as text, and its answer as majority vote counts it."""

    solution: Solution
    text: str
    canonical: str | None


def bound_engine(policy: str) -> RolloutEngine:
    """Return an engine in this process with a policy's weights."""
    engine = InProcessEngine(max_rows=256)
    model = load_policy(policy).eval()
    engine.bind(ModelSpec(name=policy, tokenizer=load_tokenizer(policy), policy=model))
    return engine


def generate(
    engine: RolloutEngine,
    problems: Sequence[Problem],
    num_responses: int,
    sampling: Sampling,
    path: Path,
    seed: int = 0,
) -> list[list[Sampled]]:
    """Return so many responses to each problem; from ``path``, if they have been sampled before."""
    tokenizer = engine.model.tokenizer
    prompts = encode_prompts(
        tokenizer, [prompt_text(tokenizer, TEMPLATE, problem.question) for problem in problems]
    )
    if not path.exists():
        requests = [
            Request(
                prompt=prompt,
                samples=tuple(range(i * num_responses, (i + 1) * num_responses)),
                sampling=sampling,
                seed=seed,
            )
            for i, prompt in enumerate(prompts)
        ]
        completions = engine.generate(requests)
        texts = texts_of(completions, tokenizer)
        owners = [problem for problem in problems for _ in range(num_responses)]
        verdicts = Grader().verdicts(texts, owners)
        rows = [
            {"uid": owner.uid, "text": text,
             "token_ids": [] if c.token_ids is None else c.token_ids.tolist(),
             "right": verdict.status == "right", "canonical": verdict.canonical}
            for owner, c, text, verdict in zip(owners, completions, texts, verdicts, strict=True)
        ]  # fmt: skip
        _write(path, rows)
    rows = read_records(path)
    if len(rows) != len(problems) * num_responses:
        raise ValueError(f"{path}: {len(rows)} responses are of another run; remove the file")
    uids = [problem.uid for problem in problems for _ in range(num_responses)]
    others = [uid for row, uid in zip(rows, uids, strict=True) if row.get("uid", uid) != uid]
    if others:
        raise ValueError(
            f"{path}: {len(others)} of {len(rows)} responses are to other problems; they are of"
            " another run: remove the folder, or name another --output"
        )
    groups = []
    for i, problem in enumerate(problems):
        own = rows[i * num_responses : (i + 1) * num_responses]
        groups.append([_sampled(problem, prompts[i], row) for row in own])
    return groups


def _sampled(problem: Problem, prompt: tuple[int, ...], row: Record) -> Sampled:
    solution = Solution(
        problem=problem, prompt=prompt, token_ids=tuple(row["token_ids"]), is_right=row["right"]
    )
    return Sampled(solution=solution, text=row["text"], canonical=row["canonical"])


def count_right(
    engine: RolloutEngine,
    solutions: Sequence[Solution],
    sampling: Sampling,
    num_completions: int,
    path: Path,
    first_sample: int = 0,
) -> list[list[int]]:
    """Return right completions of each step; an interrupted count goes on from ``path``."""
    lines = JSONLFile(path, "path")
    lines.cut_torn_line()
    done = [row["right"] for row in lines.read()]
    while len(done) < len(solutions):
        chunk = solutions[len(done) : len(done) + AT_ONCE]
        counts = monte_carlo_labels(
            engine, chunk, separators=SEPARATORS, sampling=sampling, grader=Grader(),
            num_completions=num_completions, seed=len(done), first_sample=first_sample,
        )  # fmt: skip
        lines.append([{"right": own} for own in counts])
        done += counts
    return done


def steps_of(engine: RolloutEngine, solution: Solution) -> tuple[str, ...]:
    """Return the steps of a solution's text."""
    return cut_solution(engine, solution, SEPARATORS).steps


def true_labels(engine: RolloutEngine, solution: Solution) -> list[float]:
    """Return 1 for steps that may still lead to the answer, 0 from the first that cannot on."""
    steps = steps_of(engine, solution)
    first = first_wrong_step(solution.problem, steps)
    return [float(first < 0 or i < first) for i in range(len(steps))]


def write_tables(
    engine: RolloutEngine,
    solutions: Sequence[Solution],
    counts: Sequence[Sequence[int]],
    num_completions: int,
    folder: Path,
) -> None:
    """Write tables to learn from: ``soft`` labels, ``exact`` ones, ``outcome`` of responses."""
    tables: dict[str, list[Record]] = {"soft": [], "exact": [], "outcome": []}
    for solution, right in zip(solutions, counts, strict=True):
        steps = steps_of(engine, solution)
        if not steps:
            continue
        row = labelled(solution, steps, right, num_completions)
        first = first_wrong_step(solution.problem, steps)
        tables["soft"].append(row)
        tables["exact"].append({**row, "label": first})
        tables["outcome"].append(
            {"prompt": row["problem"], "response": "".join(steps), "label": solution.is_right}
        )
    for name, rows in tables.items():
        _write(folder / f"{name}.jsonl", rows)


def _write(path: Path, rows: Sequence[Record]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_records(path, rows)
