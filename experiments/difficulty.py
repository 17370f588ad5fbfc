"""Tasks ranked by difficulty for one model, to choose where reinforcement learning can start.

    python -m experiments.difficulty MODEL                  # every task of reasoning-gym that fits
    python -m experiments.difficulty MODEL --tasks gcd count_bits --data experiments/difficulty.yaml

A group whose responses are all right or all wrong gives no gradient. So a task suits where pass@8,
the chance that a group of eight holds a right response, lies between 5 and 60 %. Each task takes
``--num-problems`` problems with ``--num-samples`` responses; intervals are over problems. A line a
task is appended to ``<output>/tasks.jsonl``: a run that was killed goes on after the last of them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from jsonargparse import ArgumentParser
from tqdm import tqdm

from experiments.launch import command_line, reported
from experiments.tables import as_markdown
from r1lit.data.sources import ProblemSource
from r1lit.device import inference_dtype
from r1lit.files import Record, append_records, read_records
from r1lit.metrics.estimates import Graded, accuracy
from r1lit.policy import ModelSource, load_policy, load_tokenizer
from r1lit.problems import Problem, Verdict
from r1lit.refused import load_classes
from r1lit.rollout import InProcessEngine, ModelSpec, Request, Sampling
from r1lit.rollout.request import texts_of
from r1lit.seeding import permutation
from r1lit.text.extract import extract_final
from r1lit.text.prompts import CHAT, encode_prompts, prompt_text, turn_end
from r1lit.verifiers import Grader, Verifier
from r1lit.verifiers.base import DefaultVerifiers, conclude
from r1lit.verifiers.last_expression import last_expression, stated_answer

GYM = "reasoning_gym"
EASIEST, HARDEST = 0.60, 0.05
"""The range of pass@8 in which a task suits."""


class GymVerifier(Verifier):
    """Decides by reasoning-gym's own ``score_answer``: a score of 1 is right.

    Its scorers take an answer, not a response. The answer is the last ``<answer>`` or box; else, to
    a gold answer that is a number, the expression on which the response ends; else what follows
    ``the answer is``; else the last line.
    """

    needs_answer = False

    def __init__(self) -> None:
        self.entries: dict[str, tuple[Any, dict[str, Any]]] = {}

    def verify(self, response: str, problem: Problem) -> Verdict:
        """Decide about one response."""
        data, entry = self.entries[problem.uid]
        answer = answer_in(response, problem.answer)
        if answer is None:
            return conclude("unparsed", None, "no answer found")
        try:
            score = float(data.score_answer(answer, entry))
        except Exception as error:  # of what a model wrote; some of its scorers do not expect words
            return conclude("unparsed", None, f"the scorer raised {error!r}"[:200])
        return conclude("right" if score >= 1.0 else "wrong", answer[:200], f"{score:g}")


def answer_in(response: str, gold: str) -> str | None:
    r"""Return what a response answers where the gold answer looks like ``gold``.

    >>> answer_in("3 + 4 = 7", "12"), answer_in("Sure!\nthe quick fox", "fox")
    ('7', 'the quick fox')
    """
    answer = extract_final(response)
    if answer is None and is_number(gold):
        return last_expression(response)
    lines = [line.strip() for line in response.splitlines() if line.strip()]
    return answer or stated_answer(response) or (lines[-1] if lines else None)


def is_number(text: str) -> bool:
    """Return whether a text is one number."""
    try:
        return math.isfinite(float(text.replace(",", "")))
    except ValueError:
        return False


def gym_problems(name: str, num_problems: int, verifier: GymVerifier, seed: int) -> list[Problem]:
    """Return problems of one of reasoning-gym's tasks, known to the verifier by their uid."""
    from reasoning_gym import create_dataset

    with contextlib.redirect_stdout(io.StringIO()):
        data = create_dataset(name, size=num_problems, seed=seed)
        entries = [data[i] for i in range(num_problems)]
    problems = []
    for i, entry in enumerate(entries):
        uid = f"{name}-{seed}-{i}"
        verifier.entries[uid] = (data, entry)
        gold = str(entry["answer"] or "")
        problems.append(
            Problem(uid=uid, question=entry["question"], answer=gold, source=name, verifier=GYM)
        )
    return problems


def read_sources(path: Path) -> dict[str, ProblemSource]:
    """Return the sources of a YAML file, a mapping of names to classes.

    Raises:
        ValueError: if it is none.
    """
    content = yaml.safe_load(path.read_text())
    if not isinstance(content, dict):
        raise ValueError(f"--data: {path} is not a mapping of names to sources")
    load_classes()
    sources = {}
    for name, spec in content.items():
        parser = ArgumentParser(exit_on_error=False)
        parser.add_subclass_arguments(ProblemSource, "source")
        try:
            parsed = parser.parse_object({"source": spec})
        except Exception as error:
            raise ValueError(f"--data: {path}: {name}: {str(error).splitlines()[0]}") from error
        sources[name] = parser.instantiate_classes(parsed).source
    return sources


class Ranking:
    """Measures tasks with one model.

    Args:
        model: a Hugging Face folder, or a name on the hub; of one without a chat template, a base
            model, the prompt is R1-Zero's.
        sampling: how responses are sampled.
        num_samples: responses to a problem.
        wording: put around each question; it holds {question}.
        seed: of problems and responses.
    """

    def __init__(
        self, model: str, sampling: Sampling, num_samples: int, wording: str, seed: int
    ) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.tokenizer = load_tokenizer(model)
        policy = load_policy(ModelSource(model, dtype=inference_dtype(device))).eval().to(device)
        self.engine = InProcessEngine(max_rows=256)
        end = turn_end(self.tokenizer)
        self.engine.bind(
            ModelSpec(name=model, tokenizer=self.tokenizer, policy=policy, turn_end=end)
        )
        self.sampling = sampling
        self.num_samples = num_samples
        self.wording = wording
        self.seed = seed

    def prompts(self, problems: Sequence[Problem]) -> list[tuple[int, ...]]:
        """Return the problems' questions in the model's template, as token ids."""
        template = CHAT if self.tokenizer.chat_template else "r1_zero"
        asked = [self.wording.replace("{question}", problem.question) for problem in problems]
        texts = [prompt_text(self.tokenizer, template, question) for question in asked]
        return encode_prompts(self.tokenizer, texts)

    def measure(self, problems: Sequence[Problem], grader: Grader) -> dict[str, Any]:
        """Return accuracy, tokens and readable answers of one task, and its first response."""
        started = time.perf_counter()
        requests = [
            Request(prompt=ids, samples=tuple(range(self.num_samples)), sampling=self.sampling,
                    seed=self.seed)
            for ids in self.prompts(problems)
        ]  # fmt: skip
        completions = self.engine.generate(requests)
        texts = texts_of(completions, self.tokenizer)
        each = [problem for problem in problems for _ in range(self.num_samples)]
        verdicts = grader.verdicts(texts, each)
        graded = [
            Graded(verdict.value == 1.0, verdict.canonical, c.num_tokens, c.finished)
            for verdict, c in zip(verdicts, completions, strict=True)
        ]
        size = self.num_samples
        groups = [graded[i : i + size] for i in range(0, len(graded), size)]
        report = accuracy(groups, seed=self.seed)
        return {
            "num_problems": len(problems),
            "num_samples": size,
            "pass_at_1": report["pass_at_1"],
            "pass_at_k": report["pass_at_k"][str(size)],
            "cons_at_k": report["cons_at_k"][str(size)],
            "num_right": [sum(g.right for g in group) for group in groups],
            "readable": sum(v.status != "unparsed" for v in verdicts) / len(verdicts),
            "finished": sum(g.finished for g in graded) / len(graded),
            "tokens": sum(c.num_tokens for c in completions) / len(completions),
            "question": problems[0].question[:300],
            "gold": problems[0].answer[:100],
            "response": texts[0][:300],
            "seconds": round(time.perf_counter() - started, 1),
        }


def table(records: Sequence[Record]) -> str:
    """Return the tasks as a Markdown table, by pass@k; those in the range are bold."""
    rows = []
    for r in sorted(records, key=lambda r: (-r["pass_at_k"]["value"], r["task"])):
        many = r["pass_at_k"]
        name = f"**{r['task']}**" if HARDEST <= many["value"] <= EASIEST else r["task"]
        cells = [name, f"{r['pass_at_1']['value']:.3f}", f"{many['value']:.3f}"]
        cells += [f"{many['low']:.2f} to {many['high']:.2f}", f"{r['readable']:.2f}"]
        rows.append([*cells, f"{r['finished']:.2f}", f"{r['tokens']:.0f}"])
    headings = ["task", "pass@1", "pass@k", "95 % interval", "answers read", "finished", "tokens"]
    return as_markdown(headings, rows)


@reported("experiments.difficulty")
def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    options = parsed(arguments)
    settings = {
        key: getattr(options, key)
        for key in ("model", "num_problems", "num_samples", "max_tokens", "temperature", "seed")
    } | {"wording": options.wording}
    output = options.output or Path("runs/difficulty") / Path(options.model).name
    path = output / "tasks.jsonl"
    done = {r["task"]: r for r in read_records(path) if r["settings"] == settings}
    gym = GymVerifier()
    grader = Grader(DefaultVerifiers(last_expression=True))
    grader.verifiers[GYM] = gym
    sources = read_sources(options.data) if options.data else {}
    names = [*gym_names(options.tasks), *sources]
    todo = [name for name in names if name not in done]
    sampling = Sampling(temperature=options.temperature, max_tokens=options.max_tokens)
    size, wording = options.num_samples, options.wording
    ranking = Ranking(options.model, sampling, size, wording, options.seed) if todo else None
    for name in tqdm(todo, initial=len(names) - len(todo), total=len(names), unit="task"):
        assert ranking is not None
        count, seed = options.num_problems, options.seed
        if name in sources:
            problems = sources[name].problems()
            problems = [problems[i] for i in permutation(len(problems), seed, name)[:count]]
        else:
            problems = gym_problems(name, count, gym, seed)
        longest = max(map(len, ranking.prompts(problems)))
        if longest > options.max_prompt_tokens:
            tqdm.write(f"{name}: left out, a prompt of {longest} tokens (--max-prompt-tokens)")
            continue
        record = {"task": name, "settings": settings, **ranking.measure(problems, grader)}
        append_records(path, [record])
        done[name] = record
        tqdm.write(f"{name}: pass@{options.num_samples} {record['pass_at_k']['value']:.3f}")
    grader.close()
    print(table([done[name] for name in names if name in done]))
    return 0


def gym_names(tasks: list[str]) -> list[str]:
    """Return the tasks of reasoning-gym that are meant.

    Raises:
        ValueError: if it is not installed, or has no task of a name.
    """
    if not tasks:
        return []
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise ValueError("--tasks: reasoning-gym is missing; pip install 'r1lit[real]'") from error
    if tasks == ["all"]:
        return sorted(DATASETS)
    for name in tasks:
        if name not in DATASETS:
            raise ValueError(f"--tasks: reasoning-gym has no {name!r}; it has {sorted(DATASETS)}")
    return tasks


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = command_line("experiments.difficulty", __doc__)
    parser.add_argument("model", help="a Hugging Face folder or a name on the hub")
    parser.add_argument(
        "--tasks", nargs="*", default=["all"], help="of reasoning-gym; none, or all"
    )
    parser.add_argument("--data", type=Path, help="a YAML file of further sources by name")
    parser.add_argument("--num-problems", type=int, default=24)
    parser.add_argument("--num-samples", type=int, default=8)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--max-prompt-tokens", type=int, default=256)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--wording", default="{question}", help="put around each question")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    for key in ("num_problems", "num_samples", "max_tokens"):
        if getattr(options, key) < 1:
            raise ValueError(f"--{key.replace('_', '-')}: {getattr(options, key)} is below 1")
    if "{question}" not in options.wording:
        raise ValueError(f"--wording: {options.wording!r} does not hold {{question}}")
    return options


if __name__ == "__main__":
    sys.exit(main())
