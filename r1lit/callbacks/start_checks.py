"""Faults of a training that can be known before its first iteration, in a line each."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback
from lightning.pytorch.utilities import rank_zero_warn

from r1lit.batches import Response, Rollout
from r1lit.callbacks.base import rollout_of
from r1lit.problems import Problem, Verdict
from r1lit.protocols import HasEnvironments, HasProblems, HasRewards, LearnsFromRewards
from r1lit.rewards import RewardFunction, score
from r1lit.user_code import OwnCodeError

FEW = 0.5
FAR = 2.0
"""Factor between a divisor of the loss and the longest response from which it is named."""


class StartChecks(Callback):
    """Refuses and warns of settings under which nothing can be learnt, before the first rollout.

    Refused: temperature 0, and own rewards that return no number for each of two made-up
    responses. Warned of: a loss divided by another length than responses may have, problems with
    one prompt under many names, games that all begin alike, and environments whose first turn is
    the last. After the first iteration it warns if ``limits.max_turns`` has cut every episode.

    The command line adds it to every run, and ``plan``, which prints what memory the run needs; it
    is called with the tokens of the longest prompt.
    """

    def __init__(self) -> None:
        self.plan: Callable[[int | None], None] | None = None
        self._is_first = True

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Check the module's settings and print the plan, before weights are loaded.

        Raises:
            ValueError: naming key, value and what would be right.
        """
        if stage == "fit" and self.plan is not None:
            data = trainer.datamodule  # type: ignore[attr-defined]
            prompts = data.prompt_ids if isinstance(data, HasProblems) else {}
            self.plan(max((len(p) for own in prompts.values() for p in own), default=None))
        if stage != "fit" or not (isinstance(pl_module, LearnsFromRewards) and pl_module.rewards):
            return
        if pl_module.sampling.temperature == 0:
            raise ValueError(
                "sampling.temperature: 0 gives all responses of a group the same tokens, so nothing"
                " can be learnt from them; 1 samples (evaluations take validation_sampling)"
            )
        warn_of_divisor(pl_module)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check problems and rewards, which are read by now.

        Raises:
            ValueError: naming the reward function and what it returned.
        """
        data = trainer.datamodule  # type: ignore[attr-defined]
        problems = data.problems.get("train", ()) if isinstance(data, HasProblems) else ()
        if not problems:
            return
        warn_of_same_prompts(problems, data.prompt_ids["train"])
        warn_of_other_answers(problems, data.prompt_ids["train"])
        if isinstance(data, HasEnvironments):
            warn_of_environments(problems, data)
        if isinstance(pl_module, HasRewards):
            try_rewards(pl_module.rewards, problems)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *_: Any
    ) -> None:
        """Look once at how episodes have ended."""
        rollout = rollout_of(outputs) if self._is_first else None
        self._is_first = False
        if rollout is not None:
            warn_of_cut_episodes(rollout)


def warn_of_divisor(module: LearnsFromRewards) -> None:
    """Warn if the objective divides by a length far from the longest that a response can be."""
    divisor = getattr(module.objective, "max_tokens", None)
    if not divisor:
        return
    longest = max(module.sampling.max_tokens, *module.max_tokens_from.values(), 0)
    factor = divisor / longest
    if not 1 / FAR <= factor <= FAR:
        rank_zero_warn(
            f"objective.max_tokens: {divisor} divides the loss of each response, which has at most"
            f" {longest} tokens (sampling.max_tokens, max_tokens_from), so gradients are"
            f" {max(factor, 1 / factor):.3g} times {'smaller' if factor > 1 else 'larger'} than"
            f" with {longest}"
        )


def warn_of_same_prompts(problems: Sequence[Problem], prompts: Sequence[tuple[int, ...]]) -> None:
    """Warn if less than half of a source's problems have a prompt of their own."""
    of_source: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for problem, prompt in zip(problems, prompts, strict=True):
        of_source[problem.source].append(prompt)
    for source, own in of_source.items():
        counts = Counter(own)
        if len(own) > 1 and len(counts) <= FEW * len(own):
            alike, count = counts.most_common(1)[0]
            question = problems[prompts.index(alike)].question
            rank_zero_warn(
                f"data.train: the {len(own)} problems of {source!r} have {len(counts)} different"
                f" prompt{'s' * (len(counts) > 1)} under {len(own)} names; {count} of them ask"
                f" {' '.join(question.split())[:60]!r}"
            )


def warn_of_other_answers(problems: Sequence[Problem], prompts: Sequence[tuple[int, ...]]) -> None:
    """Warn if one prompt stands with different gold answers: what is right once is wrong then."""
    first: dict[tuple[int, ...], Problem] = {}
    clashes: dict[tuple[int, ...], Problem] = {}
    for problem, prompt in zip(problems, prompts, strict=True):
        if problem.environment or problem.verifier == "none":
            continue
        before = first.setdefault(prompt, problem)
        is_same = (before.verifier, before.meta) == (problem.verifier, problem.meta)
        if is_same and before.answer != problem.answer:
            clashes.setdefault(prompt, problem)
    if clashes:
        prompt, problem = next(iter(clashes.items()))
        rank_zero_warn(
            f"data.train: {len(clashes)} of {len(first)} prompts have different gold answers:"
            f" {first[prompt].uid!r} has {first[prompt].answer[:40]!r}, and {problem.uid!r}, of the"
            f" same prompt, {problem.answer[:40]!r}"
        )


def warn_of_environments(problems: Sequence[Problem], data: HasEnvironments) -> None:
    """Warn of games that begin alike, and of episodes that have no second turn."""
    seeds: dict[str, list[Any]] = defaultdict(list)
    for problem in problems:
        if problem.environment:
            seeds[problem.environment].append(problem.meta.get("seed", 0))
    if not seeds:
        return
    from r1lit.environments import StepEpisodes

    for name, own in seeds.items():
        environment = data.environments[name]
        alike = len(own) > 1 and len(set(own)) == 1
        if alike and isinstance(environment, StepEpisodes) and environment.takes_seed():
            rank_zero_warn(
                f"data.environments: all {len(own)} games of {name!r} begin alike, by the seed"
                f" {own[0]}; give each problem a seed of its own in meta, as TableProblems does"
                " with meta: [seed] and such a column"
            )
        if data.limits.max_turns == 1 and environment.tools:
            rank_zero_warn(
                "data.limits.max_turns: 1 ends an episode at its first turn, so that no tool's"
                " result is ever read; 2 is the least"
            )


def warn_of_cut_episodes(rollout: Rollout) -> None:
    """Warn if the limit of turns has ended every episode of an iteration."""
    ends = [response.transcript.ended for response in rollout.responses if response.transcript]
    if ends and set(ends) == {"turns"}:
        rank_zero_warn(
            f"data.limits.max_turns: it has cut all {len(ends)} episodes of the first iteration, so"
            " none came to its own end; allow more turns"
        )


def try_rewards(rewards: Sequence[RewardFunction], problems: Sequence[Problem]) -> None:
    """Call rewards that are not r1lit's own on two made-up responses, and check the numbers.

    A copy is called, so that one which counts its calls is not disturbed. One that cannot be
    copied, or crashes because the responses are not real, is left to the first rollout.

    Raises:
        ValueError: if it returns no finite number for each.
    """
    plain = [problem for problem in problems if not problem.environment][:2]
    own = [each for each in rewards if not _is_ours(each)]
    if not plain or not own:
        return
    responses = [_made_up(plain[i % len(plain)], right=i == 0) for i in range(2)]
    for reward in own:
        try:
            copied = copy.deepcopy(reward)
        except Exception:
            continue
        try:
            score([copied], responses)
        except OwnCodeError:
            continue


def _is_ours(reward: RewardFunction) -> bool:
    function = getattr(reward, "function", reward)
    function = getattr(function, "func", function)  # of a partial
    module = getattr(function, "__module__", None) or type(function).__module__
    return module.split(".")[0] == "r1lit"


def _made_up(problem: Problem, right: bool) -> Response:
    verdict = Verdict(
        value=float(right),
        status="right" if right else "wrong",
        canonical=problem.answer if right else None,
        reason="" if right else "another answer",
    )
    answer = problem.answer if right else "I do not know"
    text = f"<think> Let me see. </think> <answer> {answer} </answer>"
    return Response(text=text, problem=problem, verdict=verdict, num_tokens=16, finished=True)
