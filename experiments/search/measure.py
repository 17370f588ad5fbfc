r"""Accuracy of searches over a policy, and the tokens that they generate.

    python -m experiments.search.measure models/mini --value runs/search/seed-0/value/critic \
        --output searches.jsonl [--num-problems 32] [--widest 32]

A line of the output is one search for one problem: ``policy, search, width, noise, uid, right,
tokens``. Best-of-n, weighted best-of-n, majority vote and pass@n choose among the same draws: those
of n are the first n of ``--widest``. The others are made anew for every width and noise. What a
file holds already is not made again. Without ``--value`` there are majority vote and pass@n alone.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from experiments.launch import command_line, reported
from r1lit.files import Record, append_records, keep_records, read_records
from r1lit.modules.evaluation import sample_name
from r1lit.policy import ModelSource, load_policy, load_tokenizer
from r1lit.rollout import InProcessEngine, ModelSpec, Sampling
from r1lit.search import (
    DVTS,
    MCTS,
    BeamSearch,
    BestOfN,
    Noisy,
    Query,
    ScoredResponse,
    Scorer,
    Search,
    SearchResult,
    Step,
    ValueScorer,
    WeightedBestOfN,
)
from r1lit.search.algorithms import EqualWeights
from r1lit.search.generation import PartialResponse
from r1lit.text.prompts import encode_prompts, prompt_text
from r1lit.verifiers import DefaultVerifiers, Grader
from r1lit.worlds import WorldChain, WorldCountdown

SAMPLING = Sampling(temperature=1.0, max_tokens=576)
STEP = Step(separator=None, max_tokens=48)
NOISES = (0.0, 0.5, 1.0)  # standard deviations; a value is between 0 and 1
BEAM_WIDTH = 4
SIMULATIONS = 4  # of MCTS, for each response of the same width: four children of a step each

Chosen = tuple[list[PartialResponse], int]  # of one query: any of these is right, and its tokens


class Clipped(Scorer):
    """Another scorer's numbers, cut to 0 and 1, which weights and MCTS need."""

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer

    def score(self, responses: Sequence[PartialResponse]) -> list[float]:
        """Return one number a response."""
        return [min(1.0, max(0.0, value)) for value in self.scorer.score(responses)]


def choosers(value: Scorer | None, noise: float) -> dict[str, BestOfN | None]:
    """Return by name what chooses among whole responses; None counts any right one."""
    found: dict[str, BestOfN | None] = {}
    if noise == 0:
        found = {"majority": WeightedBestOfN(), "pass@n": None}
    if value is not None:
        noisy = Noisy(value, noise)
        found |= {"best-of-n": BestOfN(noisy), "weighted": WeightedBestOfN(Clipped(noisy))}
    return found


def searches(value: Scorer, noise: float, width: int) -> dict[str, Search]:
    """Return by name the searches that draw step by step, of one width."""
    scorer = Noisy(value, noise)
    return {
        "beam": BeamSearch(scorer, n=width, beam_width=BEAM_WIDTH, step=STEP),
        "DVTS": DVTS(scorer, n=width, beam_width=BEAM_WIDTH, step=STEP),
        "MCTS": MCTS(
            Clipped(scorer), num_simulations=SIMULATIONS * width, num_children=4, step=STEP
        ),
    }


def nested(
    results: Sequence[SearchResult], chooser: BestOfN | None, width: int
) -> Iterator[Chosen]:
    """Yield what is chosen among each query's first ``width`` draws."""
    for result in results:
        first = [candidate.response for candidate in result.candidates[:width]]
        tokens = sum(len(response.token_ids) for response in first)
        if chooser is None:
            yield first, tokens
            continue
        scores = chooser.scorer.score(first)
        pairs = zip(first, scores, strict=True)
        best = chooser.choose([ScoredResponse(response=r, score=s) for r, s in pairs])
        yield [best.response], tokens


def found_by(run: Callable[[], Sequence[SearchResult]]) -> Iterator[Chosen]:
    """Yield what a search finds for each query."""
    for result in run():
        yield [result.chosen.response], result.num_tokens


def _search_of(record: Record) -> tuple[str, int, float]:
    return record["search"], record["width"], record["noise"]


def measure(
    policy_path: str,
    value_path: str | None,
    output: Path,
    *,
    name: str,
    num_problems: int,
    widest: int,
    seed: int,
) -> None:
    """Make the searches that ``output`` does not hold, and append what they found.

    Raises:
        ValueError: if ``output`` holds searches of other problems under this name.
    """
    earlier = [record for record in read_records(output) if record["policy"] == name]
    tokenizer = load_tokenizer(policy_path)
    policy = load_policy(ModelSource(policy_path, dtype="bfloat16")).eval()
    engine = InProcessEngine(max_rows=1024)
    engine.bind(ModelSpec(name=policy_path, tokenizer=tokenizer, policy=policy))
    grader = Grader(DefaultVerifiers(last_expression=True))
    easy = max(1, num_problems // 4)
    problems = [
        *WorldCountdown(
            "held_out", num_problems - easy, min_attempts=30, max_attempts=40
        ).problems(),
        *WorldChain("held_out", easy).problems(),
    ]
    if earlier and {r["uid"] for r in earlier} != {problem.uid for problem in problems}:
        raise ValueError(
            f"{output}: holds searches of {name} on other problems than these {num_problems};"
            " take as many again, another name or another file"
        )
    sizes = Counter(map(_search_of, earlier))
    done = {search for search, size in sizes.items() if size == len(problems)}
    keep_records(output, lambda r: r["policy"] != name or _search_of(r) in done)
    texts = [prompt_text(tokenizer, "small_world", problem.question) for problem in problems]
    queries = [
        Query(problem=problem, prompt=prompt, sample=sample_name(problem, 0))
        for problem, prompt in zip(problems, encode_prompts(tokenizer, texts), strict=True)
    ]
    value = None if value_path is None else ValueScorer(ModelSource(value_path, dtype="bfloat16"))
    widths = [2**i for i in range(widest.bit_length()) if 2**i <= widest]

    def record(search: str, width: int, noise: float, make: Callable[[], Iterable[Chosen]]) -> None:
        if (search, width, noise) in done:
            return
        found = list(make())
        texts = [response.text for chosen, _ in found for response in chosen]
        asked = [response.query.problem for chosen, _ in found for response in chosen]
        verdicts = iter(grader.verdicts(texts, asked))
        rights = [max([next(verdicts).value for _ in chosen]) for chosen, _ in found]
        lines: list[Record] = [
            {
                "policy": name, "search": search, "width": width, "noise": noise,
                "uid": problem.uid, "right": float(right >= 1), "tokens": tokens,
            }
            for problem, right, (_, tokens) in zip(problems, rights, found, strict=True)
        ]  # fmt: skip
        append_records(output, lines)
        accuracy = sum(line["right"] for line in lines) / len(lines)
        print(f"{search} {width} noise {noise}: {accuracy:.3f}", flush=True)

    draws = BestOfN(EqualWeights(), n=widest).run(queries, engine, SAMPLING, seed)
    for noise in NOISES if value is not None else NOISES[:1]:
        for search, chooser in choosers(value, noise).items():
            for width in widths:
                record(search, width, noise, partial(nested, draws, chooser, width))
    for width in [width for width in widths if value is not None and width >= BEAM_WIDTH][::2]:
        assert value is not None
        for noise in NOISES:
            for label, stepwise in searches(value, noise, width).items():
                run = partial(stepwise.run, queries, engine, SAMPLING, seed)
                record(label, width, noise, partial(found_by, run))
    grader.close()


@reported("measure")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 2 for bad input."""
    parser = command_line("experiments.search.measure", __doc__)
    parser.add_argument("policy", help="a directory")
    parser.add_argument("--value", help="a directory of a critic")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--name", default="base", help="of the policy")
    parser.add_argument("--num-problems", type=int, default=32)
    parser.add_argument("--widest", type=int, default=32, help="responses a problem, at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(args)
    measure(
        options.policy,
        options.value,
        options.output,
        name=options.name,
        num_problems=options.num_problems,
        widest=options.widest,
        seed=options.seed,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
