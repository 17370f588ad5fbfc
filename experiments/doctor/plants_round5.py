"""Plants of the fifth round's faults that no key of a configuration can make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from r1lit.batches import Problem, Response, Rollout, Verdict
from r1lit.data.sources import ProblemSource
from r1lit.objectives.advantages import AdvantageEstimator, GroupCentered
from r1lit.policy import Policy
from r1lit.problems import Status
from r1lit.rewards import RewardFunction
from r1lit.rollout import InProcessEngine
from r1lit.rollout.request import Completion, OnFinished, Request
from r1lit.seeding import generator
from r1lit.text.prompts import SMALL_WORLD
from r1lit.verifiers import Grader
from r1lit.worlds.chain import Chain, draw_from, question, results, uid


class ShiftedAnswers(ProblemSource):
    """Problems whose answers stand one row too low, as after a table's column was shifted.

    Args:
        source: the problems as they should be.
    """

    def __init__(self, source: ProblemSource) -> None:
        self.source = source

    def problems(self) -> list[Problem]:
        """Return each problem with the answer of the one before it."""
        problems = self.source.problems()
        return [
            replace(problem, answer=problems[place - 1].answer)
            for place, problem in enumerate(problems)
        ]


class RepeatedRows(ProblemSource):
    """A few problems many times, as in a table that was joined wrongly: each row has its own id.

    Args:
        source: of the few problems.
        times: how often each comes.
    """

    def __init__(self, source: ProblemSource, times: int) -> None:
        self.source = source
        self.times = times

    def problems(self) -> list[Problem]:
        """Return every problem ``times`` times."""
        return [
            replace(problem, uid=f"{problem.uid}-row-{row}")
            for row in range(self.times)
            for problem in self.source.problems()
        ]


class SolvedChains(ProblemSource):
    """Chains whose prompts go on with their solution, as of a table whose column has both.

    The question is templated already and ends in the worked steps; only the answer is left out.

    Args:
        num_problems: how many.
    """

    def __init__(self, num_problems: int = 180) -> None:
        self.num_problems = num_problems

    def problems(self) -> list[Problem]:
        """Return chains, each with its own worked steps in the question."""
        random, chains = generator(0, "solved chains"), dict[str, Chain]()
        while len(chains) < self.num_problems:
            chain = draw_from("train", random)
            chains[uid(chain)] = chain
        return [self._problem(key, chain) for key, chain in chains.items()]

    def _problem(self, key: str, chain: Chain) -> Problem:
        value, steps = chain
        shown = []
        for (operation, operand), after in zip(steps, results(chain), strict=True):
            shown.append(f"{value} {operation} {operand} = {after}.")
            value = after
        prompt = SMALL_WORLD.replace("{question}", question(chain))
        return Problem(
            uid=key,
            question=f"{prompt} <think> {' '.join(shown)}",
            answer=str(value),
            source="chain",
            verifier="math",
        )


class Prefilled(ProblemSource):
    """Questions that are templated already, up to an opened ``<think>`` that no reward expects.

    Args:
        source: the questions without a template.
    """

    def __init__(self, source: ProblemSource) -> None:
        self.source = source

    def problems(self) -> list[Problem]:
        """Return the problems with whole prompts as questions."""
        return [
            replace(p, question=f"{SMALL_WORLD.replace('{question}', p.question)} <think>")
            for p in self.source.problems()
        ]


def decided(verdict: Verdict, status: Status, reason: str) -> Verdict:
    """Return a verdict with another status, and the value that goes with it."""
    return replace(verdict, status=status, value=float(status == "right"), reason=reason)


class GoldAnywhere(Grader):
    """A grader that takes a response for right if the gold number stands anywhere in its text."""

    def verdicts(self, texts: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Return right for every text that contains the answer, of Countdown the target."""
        own = super().verdicts(texts, problems)
        gold = [str(p.meta.get("target", p.answer)) for p in problems]
        return [
            decided(verdict, "right", "") if answer in re.findall(r"\d+", text) else verdict
            for verdict, text, answer in zip(own, texts, gold, strict=True)
        ]


class ReadsPrompt(Grader):
    """A grader that reads the first answer of prompt and response: the template's own example."""

    def verdicts(self, texts: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Return what is decided about the first answer of the whole text, of a thinker's text."""
        whole = [SMALL_WORLD + text if "<think>" in text else text for text in texts]
        answers = [text[text.rfind("<answer>", 0, text.find("</answer>")) :] for text in whole]
        firsts = [answer.partition("</answer>")[0] + "</answer>" for answer in answers]
        shown = zip(whole, answers, firsts, strict=True)
        read = [first if "<answer>" in answer else text for text, answer, first in shown]
        return super().verdicts(read, problems)


class SlowOnLong(Grader):
    """A grader that runs out of time on the longest thinking, as a slow judge does.

    Args:
        num_words: of a response from which on there is no verdict.
    """

    def __init__(self, num_words: int = 60) -> None:
        super().__init__()
        self.num_words = num_words

    def verdicts(self, texts: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Return the verdicts, those of long responses as time-outs."""
        own = super().verdicts(texts, problems)
        return [
            replace(
                verdict, status="timeout", value=0.0, canonical=None, reason="no verdict in 5 s"
            )
            if len(text.split()) >= self.num_words
            else verdict
            for verdict, text in zip(own, texts, strict=True)
        ]


class UnsteadyService(Grader):
    """A grader whose service refuses one request in six, whatever it is about."""

    num_asked = 0

    def verdicts(self, texts: Sequence[str], problems: Sequence[Problem]) -> list[Verdict]:
        """Return the verdicts, every sixth as an error."""
        verdicts = []
        for verdict in super().verdicts(texts, problems):
            self.num_asked += 1
            if self.num_asked % 6 == 0:
                verdict = replace(
                    verdict, status="error", value=0.0, canonical=None, reason="HTTP 503"
                )
            verdicts.append(verdict)
        return verdicts


class Reflection(RewardFunction):
    """Pays for words that look like a change of mind, whether or not anything comes of them.

    Args:
        weight: multiplies the reward.
    """

    name = "reflection"
    words = ("Wait", "But", "However", "Let me", "Wrong", "让我")

    def __call__(self, responses: Sequence[Response]) -> list[float]:
        """Return the number of such words, at most 4."""
        return [float(min(4, sum(r.text.count(w) for w in self.words))) for r in responses]


class LastTokenOnly(AdvantageEstimator):
    """Advantages at the last token of a response alone, as a reward without its returns."""

    min_group_size = 2

    def estimate(self, rollout: Rollout) -> Tensor:
        """Return the group's advantages at each last token, 0 elsewhere."""
        advantage_BT = GroupCentered().estimate(rollout)
        number_T = torch.arange(advantage_BT.shape[1], device=advantage_BT.device)
        return torch.where(number_T == rollout.length_B[:, None] - 1, advantage_BT, 0.0)


class UncopiedMasters(torch.optim.AdamW):
    """AdamW on master weights that are never copied back into the policy.

    Args:
        params: the policy's.
        **options: of AdamW.
    """

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Make the step, and leave the weights as they were."""
        weights = [p for group in self.param_groups for p in group["params"]]
        before = [weight.detach().clone() for weight in weights]
        loss = super().step(closure)
        with torch.no_grad():
            for weight, old in zip(weights, before, strict=True):
                weight.copy_(old)
        return loss


class SharedSeeds(InProcessEngine):
    """An engine of two replicas with the same seed: each response of a group comes twice."""

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return completions, of which the second half of each group repeats the first."""
        same = [
            replace(r, samples=r.samples[: len(r.samples) // 2] * 2) if len(r.samples) > 1 else r
            for r in requests
        ]
        return super().generate(same, on_finished)


class QuantizedEngine(InProcessEngine):
    """An engine that samples from weights of few bits, without saying so to the trainer.

    Args:
        bits: of a weight, with one scale a row.
        max_rows: as of ``InProcessEngine``.
        compile: as of ``InProcessEngine``.
    """

    def __init__(self, bits: int = 4, max_rows: int | None = None, compile: bool = False) -> None:
        super().__init__(max_rows, compile)
        self.levels = 2 ** (bits - 1) - 1

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return completions of the coarse weights."""
        assert self.model.policy is not None
        with self.quantized(self.model.policy):
            return super().generate(requests, on_finished)

    @contextmanager
    def quantized(self, policy: Policy) -> Iterator[None]:
        """Round the policy's matrices, and bring them back afterwards."""
        matrices = [p for p in policy.parameters() if p.ndim == 2]
        kept = [p.detach().clone() for p in matrices]
        with torch.no_grad():
            for p in matrices:
                scale = p.abs().amax(-1, keepdim=True).clamp(min=1e-8) / self.levels
                p.copy_((p / scale).round() * scale)
            try:
                yield
            finally:
                for p, old in zip(matrices, kept, strict=True):
                    p.copy_(old)


class NeverStops(InProcessEngine):
    """An engine that ignores the end of a text, as a server does under ``ignore_eos``."""

    def stopping_criterion(self, *args: Any) -> Callable[[Tensor, Tensor, Tensor, int], Tensor]:
        """Return a criterion that ends no row."""
        return lambda token_R, *_: torch.zeros_like(token_R, dtype=torch.bool)
