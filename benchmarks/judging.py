"""What judging adds to a rollout, begun early and at the end.

``python -m benchmarks.judging``. Responses end evenly over ``--seconds``, in which the rollout
leaves the CPU free, as it does when an accelerator decodes; half give a gold answer of MATH, half a
changed one, and one in 256 hangs the verifier until its time limit. What is added is the time from
the last response's end to the verdicts and rewards of all, over the time before. Goal: 2 %.

P prompts   G responses per prompt   B = P*G rows   T response tokens
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from benchmarks.verifiers import THINKING, changed, golds
from r1lit.batches import Generation, Problem, PromptBatch
from r1lit.modules.rollout_worker import RolloutWorker, Timings
from r1lit.policy import load_tokenizer
from r1lit.rewards import Accuracy, Format
from r1lit.rollout import OnEnd, RolloutEngine, Sampling
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
        self,
        policy: Any,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Any,
        *,
        on_end: OnEnd | None = None,
        **options: Any,
    ) -> Generation:
        """Wait and hand over; see ``RolloutEngine.generate``."""
        tokens = [list(tokenizer(text)["input_ids"]) for text in self.texts]
        start = time.perf_counter()
        for row, said in enumerate(tokens):
            end = start + self.seconds * (row + 1) / len(tokens)
            time.sleep(max(0.0, end - time.perf_counter()))
            if self.early and on_end is not None:
                on_end([row], [said])
        response_BT = nn.utils.rnn.pad_sequence([torch.tensor(t) for t in tokens], True)
        lengths_B1 = torch.tensor([[len(said)] for said in tokens])
        return Generation(
            response_BT=response_BT,
            mask_BT=torch.arange(response_BT.shape[1]) < lengths_B1,
            logp_BT=torch.zeros(response_BT.shape),
            finished_B=torch.ones(len(tokens), dtype=torch.bool),
        )


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
    worker = RolloutWorker(
        engine=Paced([f"{THINKING}<answer> {s} </answer>" for s in said], seconds, early),
        grader=grader,
        rewards=[Accuracy(), Format()],
        tokenizer=load_tokenizer("models/mini"),
        sampling=Sampling(),
        seed=0,
    )
    timings = Timings()
    worker.collect(None, batch, range(len(answers)), timings)  # type: ignore[arg-type]
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
