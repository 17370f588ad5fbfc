"""The time that grading adds to a rollout, begun early and at the end.

``python -m benchmarks.async_grading``. Responses end evenly over ``--seconds``, while the rollout
leaves the CPU free, as it does when an accelerator decodes; half give a gold answer of MATH, half a
changed one, and one in 256 hangs the verifier until its time limit. The time added is that from
the last response's end to the verdicts and rewards of all, over the time before. Goal: 2 %.

P prompts   G responses per prompt
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.verifiers import THINKING, changed, golds
from r1lit.batches import Problem, PromptBatch
from r1lit.modules.rollouts import RolloutWorker, Timings
from r1lit.policy import load_tokenizer
from r1lit.rewards import Accuracy, Format
from r1lit.rollout import (
    Completion,
    ModelSpec,
    OnFinished,
    Request,
    RolloutEngine,
    Sampling,
)
from r1lit.verifiers import Grader, MathVerifier

GOAL = 0.02
GROUP_SIZE = 16
HANGS = "(10^{9})!"


class Paced(RolloutEngine):
    """Says ``texts``, one a row, each ending a little after the one before."""

    def __init__(self, texts: Sequence[str], seconds: float, early: bool) -> None:
        self.texts = texts
        self.seconds = seconds
        self.early = early

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Wait and hand over; see ``RolloutEngine.generate``."""
        completions = []
        tokens = [list(self.model.tokenizer(text)["input_ids"]) for text in self.texts]
        start = time.perf_counter()
        for row, ids in enumerate(tokens):
            end = start + self.seconds * (row + 1) / len(tokens)
            time.sleep(max(0.0, end - time.perf_counter()))
            completions.append(Completion(token_ids=torch.tensor(ids), finish_reason="stop"))
            if self.early and on_finished is not None:
                on_finished([row], completions[-1:])
        return completions


def measure(grader: Grader, answers: Sequence[str], seconds: float, early: bool) -> float:
    """Return the seconds that judging adds to a rollout of ``seconds``."""
    rows = [(answer, g) for answer in answers for g in range(GROUP_SIZE)]
    said = [a if g % 2 else changed(a) for a, g in rows]
    said[::256] = [HANGS] * len(said[::256])
    batch = PromptBatch(
        iteration=0,
        problems=tuple(Problem(uid=a, question="", answer=a, source="") for a in answers),
        prompts=((0,),) * len(answers),
        group_size=GROUP_SIZE,
        num_prompts=len(answers),
        positions=tuple(range(len(answers))),
    )
    tokenizer = load_tokenizer("models/mini")
    engine = Paced([f"{THINKING}<answer> {s} </answer>" for s in said], seconds, early)
    engine.bind(ModelSpec(name="models/mini", tokenizer=tokenizer))
    worker = RolloutWorker(
        engine=engine,
        grader=grader,
        rewards=[Accuracy(), Format()],
        tokenizer=tokenizer,
        sampling=Sampling(),
        seed=0,
        device=torch.device("cpu"),
    )
    timings = Timings()
    worker.collect(batch, range(len(answers)), timings)
    return timings.grade


def main() -> None:
    """Print one line each for judging early and at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    grader = Grader({"math": MathVerifier()})
    distinct = golds(arguments.data)["math distinct"]
    grader.verdicts(
        ["<answer> x </answer>"] * 2, [Problem(uid="", question="", answer="y", source="")] * 2
    )
    for early in (True, False):
        answers = distinct[early :: len(distinct) // arguments.prompts][: arguments.prompts]
        added = measure(grader, answers, arguments.seconds, early)
        print(
            f"judged {'early' if early else 'at the end'}: {added:.2f} s added to"
            f" {arguments.seconds:.0f} s, {100 * added / arguments.seconds:.1f} % (goal {GOAL:.0%})"
            f" for {len(answers) * GROUP_SIZE} responses"
        )
    grader.close()


if __name__ == "__main__":
    main()
