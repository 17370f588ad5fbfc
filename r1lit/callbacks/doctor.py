"""The doctor in a run: measures what only a run can, and prints findings.

B rows (responses)   T response tokens
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import lightning.pytorch as pl
import torch
from lightning.pytorch import Callback
from torch import Tensor
from torch.distributed.tensor import DTensor

from r1lit.batches import Rollout, TokenValues
from r1lit.callbacks.base import finished_iterations, order_callbacks, rollout_of, run_folder
from r1lit.callbacks.curves import CurveWriter
from r1lit.errors import check_at_least
from r1lit.files import Record, append_records, keep_records
from r1lit.protocols import LearnsFromRewards, ReportsRewards, RollsOut, TrainsPolicy

if TYPE_CHECKING:
    from r1lit.doctor.rules import Finding

FIRST = 3
"""Iterations at the start that are measured whatever the interval."""
LONGER = 1.1
"""A run is looked at again once it is so much longer: its files are read whole."""
NUMBERS = 64
"""Numbers of each tensor that are compared."""
UNLIKELY = 1e-6
FILE = "doctor.jsonl"


class Doctor(Callback):
    """Looks at the run folder while a policy is trained on rollouts; the command line adds it.

    Each finding of ``r1lit doctor`` is printed once, with the iteration at which it began and the
    first recorded response that shows it. The run ends with one line: what is wrong, or that
    nothing was found. It needs ``CurveWriter``. A run whose files cannot be read goes on.

    At the first three iterations, and at every n-th, it also writes a line to ``doctor.jsonl``:
    how many of the policy's tensors have moved since training began; ``weight_norm``, of what is
    trained, as training began; ``num_copies``, how many responses equal another one of their group
    against all odds; and ``gain``, the correlation over tokens of a few responses between advantage
    and change of log-prob by the iteration's updates. It costs a forward pass of these responses.
    Updates that go the right way make it positive. With ``top_p`` or ``top_k`` the last two are not
    measured, with sharded weights the norm is not.

    Args:
        every_n_iterations: How often to measure and to look; seldomer after a hundred iterations,
            when a run is a tenth longer than it was at the last look.
        num_responses: of a rollout whose log-probs are computed again; 0 measures no gain.
    """

    position = 2

    def __init__(self, every_n_iterations: int = 10, num_responses: int = 16) -> None:
        check_at_least("Doctor.every_n_iterations", every_n_iterations, 1)
        check_at_least("Doctor.num_responses", num_responses, 0)
        self.every_n_iterations, self.num_responses = every_n_iterations, num_responses
        self._folder: Path | None = None
        self._start: dict[str, Tensor] = {}
        self._norm: Record = {}
        self._said: set[str] = set()
        self._failure: Exception | None = None
        self._next_look = 0

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Come after what writes the files, before the last lines."""
        order_callbacks(trainer)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Remember some of the weights; of a resumed run, what was found before."""
        learns = isinstance(pl_module, LearnsFromRewards | ReportsRewards)
        callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
        writes = any(isinstance(callback, CurveWriter) for callback in callbacks)
        trial = trainer.fast_dev_run  # type: ignore[attr-defined]
        self._folder = run_folder(trainer) if learns and writes and not trial else None
        if self._folder is None:
            return
        self._start = sampled(cast(TrainsPolicy, pl_module))
        self._norm = weight_norm(cast(TrainsPolicy, pl_module))
        if not trainer.is_global_zero:
            return
        finished = finished_iterations(trainer, pl_module)
        keep_records(self._folder / FILE, lambda line: line["iteration"] < finished)
        if finished > 0:
            self._said = {finding.rule.name for finding in self.look()}

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Measure, and say what is new."""
        rollout = rollout_of(outputs)
        if self._folder is None or rollout is None:
            return
        due = (rollout.iteration + 1) % self.every_n_iterations == 0
        if due or rollout.iteration < FIRST:
            numbers = self._numbers_of(rollout, trainer, pl_module)
            if trainer.is_global_zero:
                moved = how_many_moved(self._start, sampled(cast(TrainsPolicy, pl_module)))
                line = {"iteration": rollout.iteration, **moved, **self._norm, **numbers}
                append_records(self._folder / FILE, [line])
        finished = rollout.iteration + 1
        if due and finished >= self._next_look and trainer.is_global_zero:
            self._next_look = math.ceil(LONGER * finished)
            for finding in self.look():
                if finding.rule.name not in self._said:
                    self._said.add(finding.rule.name)
                    print(as_lines(finding), file=sys.stderr, flush=True)

    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Print one line."""
        self._start = {}
        if self._folder is not None and trainer.is_global_zero:
            print(f"doctor: {self.last_line()}", file=sys.stderr, flush=True)

    def last_line(self) -> str:
        """Return the first fault and where to read about it, or that no rule applies."""
        found = self.look()
        if self._failure is not None:
            return f"{self._folder} could not be looked at: {self._failure!r}"
        if not found:
            return "no rule applies"
        first, more = found[0], len(found) - 1
        others = f", and {more} more (r1lit doctor {self._folder})" if more else ""
        return f"{first.rule.name}: {first.rule.meaning}; {first.rule.link}{others}"

    def look(self) -> list[Finding]:
        """Return the findings so far; a run does not end because it cannot be looked at."""
        from r1lit.doctor.rules import examined  # a run loads no rule before it is looked at
        from r1lit.doctor.run import Run

        assert self._folder is not None
        self._failure = None
        try:
            return examined(Run(self._folder))
        except Exception as error:
            self._failure = error
            return []

    def _numbers_of(
        self, rollout: Rollout, trainer: pl.Trainer, module: pl.LightningModule
    ) -> Record:
        """Return ``num_copies``, ``gain``, and of how many tokens it is; some may be missing."""
        if not isinstance(module, RollsOut):
            return {}
        if module.sampling.top_p < 1 or module.sampling.top_k:  # sampled among fewer tokens
            return {}
        copies = {"num_copies": num_copies(rollout)}
        if not self.num_responses:
            return copies
        wanted = module.num_token_rows
        module.num_token_rows = self.num_responses
        try:
            with trainer.precision_plugin.forward_context():
                tokens = module.first_token_values(rollout, module.sampling)["tokens"]
        finally:
            module.num_token_rows = wanted
        return copies | gain_of(rollout, tokens)


def num_copies(rollout: Rollout) -> int:
    """Return how many responses equal an earlier one of their group, against all odds.

    Two of n independent responses are one text of log-prob l with a chance below n (n - 1) / 2
    exp(l). It counts where that is below one in a million.
    """
    pairs = math.comb(rollout.group_size, 2)
    logp_B = (rollout.logp_sampler_BT * rollout.sampled_BT).sum(1).tolist()
    seen: set[tuple[int, ...]] = set()
    count = 0
    for row, (ids, length) in enumerate(
        zip(rollout.response_BT.tolist(), rollout.length_B.tolist(), strict=True)
    ):
        text = (row // rollout.group_size, *ids[:length])
        count += text in seen and pairs * math.exp(logp_B[row]) < UNLIKELY
        seen.add(text)
    return count


def gain_of(rollout: Rollout, tokens: TokenValues) -> Record:
    """Return sum(A d) / sqrt(sum(A^2) sum(d^2)) over tokens, d the change of log-prob.

    There is no ``gain`` where all advantages are 0, or no log-prob has changed.
    """
    rows = len(tokens.logp_BT)
    mask_BT = rollout.loss_mask_BT[:rows]
    change_N = (tokens.logp_BT - rollout.logp_old_BT[:rows])[mask_BT].double()
    advantage_N = rollout.advantage_BT[:rows][mask_BT].double()
    scale = float((advantage_N.square().sum() * change_N.square().sum()).sqrt())
    gain = float((advantage_N * change_N).sum()) / scale if scale > 0 else None
    return {"num_tokens": len(change_N)} | ({} if gain is None else {"gain": gain})


@torch.no_grad()
def sampled(module: TrainsPolicy) -> dict[str, Tensor]:
    """Return some numbers of each tensor that is meant to be trained: an adapter's own, or all."""
    alone = module.adapter is not None
    found = {}
    for name, weight in module.policy.named_parameters():
        local = weight.to_local() if isinstance(weight, DTensor) else weight
        if local.numel() and (weight.requires_grad or not alone):
            step = max(1, local.numel() // NUMBERS)
            kind = "matrix" if weight.dim() > 1 else "other"
            numbers = local.detach().reshape(-1)[::step][:NUMBERS]
            found[f"{kind} {name}"] = numbers.float().cpu().clone()
    return found


@torch.no_grad()
def weight_norm(module: TrainsPolicy) -> Record:
    """Return ``weight_norm``, that of all weights that are trained; nothing of sharded ones."""
    trained = [weight for weight in module.policy.parameters() if weight.requires_grad]
    if any(isinstance(weight, DTensor) for weight in trained):
        return {}
    return {"weight_norm": float(torch.nn.utils.get_total_norm(trained))}


def how_many_moved(before: dict[str, Tensor], now: dict[str, Tensor]) -> dict[str, int]:
    """Return how many matrices, and how many norms and biases, differ in any number compared."""
    counts = {}
    for kind, name in (("matrix", "matrices"), ("other", "others")):
        own = [key for key in before.keys() & now.keys() if key.startswith(kind)]
        counts[f"num_{name}"] = len(own)
        counts[f"num_{name}_moved"] = sum(not torch.equal(before[k], now[k]) for k in own)
    return counts


def as_lines(finding: Finding) -> str:
    """Return a finding as a run's log has it."""
    rule = finding.rule
    return (
        f"doctor: {rule.name}, {finding.since}\n  seen    {finding.evidence}\n"
        f"  change  {rule.change}\n  see     {rule.link}"
    )
