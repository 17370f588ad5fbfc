"""r1lit's side: the real modules under a real trainer, with forced lengths.

P prompts   G responses per prompt   B = P*G rows   T response tokens   R rows decoding
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from benchmarks import problems
from benchmarks.devices import Stopwatch, autocast, device_memory, weights_dtype
from benchmarks.work import Precision, SupervisedWork, Work
from benchmarks.worker import Gate
from r1lit.modules import GRPOModule
from r1lit.objectives import DrGRPO
from r1lit.policy import ModelSource, load_policy, load_tokenizer
from r1lit.rollout import InProcessEngine, ModelSpec, Request, RolloutEngine, Sampling
from r1lit.rollout.in_process import StoppingCriterion

MANY = 10_000


class ForcedLengths(InProcessEngine):
    """Ends sample ``s`` of an iteration with token ``lengths[s]``, whatever that token is."""

    def __init__(self, lengths: Sequence[int], **options: Any) -> None:
        super().__init__(**options)
        self.lengths = tuple(lengths)

    def stopping_criterion(self, sampling: Sampling, samples: Sequence[int]) -> StoppingCriterion:
        """Return the rule that ends row ``r`` at its recorded length."""
        length_B = torch.tensor([self.lengths[sample] for sample in samples])

        def ended(token_R: Tensor, response_BT: Tensor, rows: Tensor, token: int) -> Tensor:
            return length_B.to(rows.device)[rows] == token + 1

        return ended


class GateCallback(pl.Callback):
    """Holds the trainer before each iteration until it is wanted, and reports what it took."""

    def __init__(
        self, gate: Gate, device: str, evaluate: Callable[[Any], dict[str, float]] | None = None
    ) -> None:
        self.gate = gate
        self.device = device
        self.evaluate = evaluate

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Wait, then start the clock."""
        self.gate.wait()
        self._stopwatch = Stopwatch(self.device)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Report the seconds, and the parts that the module has logged."""
        seconds = self._stopwatch.seconds()
        logged = trainer.callback_metrics
        parts = {
            name: float(logged[f"time/{name}"])
            for name in ("sync_s", "rollout_s", "grade_s", "update_s")
            if f"time/{name}" in logged
        }
        parts["num_tokens"] = float(logged["train/num_tokens"])
        if self.evaluate is not None:
            parts |= self.evaluate(pl_module.policy)
        self.gate.report(seconds=seconds, **parts, **device_memory(self.device))


def make_trainer(precision: Precision, device: str, callback: pl.Callback) -> pl.Trainer:
    """Return a trainer that only trains."""
    warnings.filterwarnings("ignore", module="lightning")
    return pl.Trainer(
        accelerator="gpu" if device == "cuda" else "cpu",
        devices=1,
        precision="bf16-mixed" if precision == "bf16-mixed" else "32-true",
        max_epochs=1,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def make_optimizer(work: Work | SupervisedWork):
    """Return what makes AdamW of the parameters, fused as the shipped configurations have it."""
    return partial(torch.optim.AdamW, **adamw_settings(work), fused=True)


def adamw_settings(work: Work | SupervisedWork) -> dict[str, Any]:
    """Return what AdamW is told on either side."""
    return {"lr": work.learning_rate, "betas": work.betas, "weight_decay": 0.0}


def make_scheduler(work: Work):
    """Return what makes the schedule of an optimiser: constant, or falling to a tenth."""
    end = 0.1 if work.decay_updates else 1.0
    return partial(
        torch.optim.lr_scheduler.LinearLR,
        start_factor=1.0,
        end_factor=end,
        total_iters=max(1, work.decay_updates),
    )


def run_iterations(
    gate: Gate,
    *,
    work: Work,
    engine: RolloutEngine | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    compile: bool = True,
    evaluate: Callable[[Any], dict[str, float]] | None = None,
    **options: Any,
) -> None:
    """Make GRPO iterations: rollout, rewards, updates; ``evaluate`` the policy after each.

    ``options`` are the module's own, ``micro_batch_tokens`` say.
    """
    engine = engine or make_engine(work, compile)
    dtype = str(weights_dtype(work.precision)).removeprefix("torch.")
    module = GRPOModule(
        ModelSource(work.model, dtype=dtype),
        objective=DrGRPO(max_tokens=work.max_tokens, epsilon=work.epsilon, beta=work.beta),
        rewards=problems.rewards(work),
        sampling=Sampling(temperature=1.0, max_tokens=work.max_tokens),
        train_batch_size=work.train_batch_size,
        engine=engine,
        optimizer=optimizer or make_optimizer(work),
        lr_scheduler=make_scheduler(work),
        max_grad_norm=work.max_grad_norm,
        seed=work.seed,
        **options,
    )
    trainer = make_trainer(work.precision, work.device, GateCallback(gate, work.device, evaluate))
    trainer.fit(module, datamodule=problems.data_module(work, MANY))


def make_engine(work: Work, compile: bool) -> RolloutEngine:
    """Return the engine, with forced lengths if there are some."""
    if work.lengths is None:
        return InProcessEngine(compile=compile)
    return ForcedLengths(work.lengths, compile=compile)


def make_requests(
    prompts: Sequence[tuple[int, ...]], group_size: int, work: Work, seed: int, iteration: int
) -> list[Request]:
    """Return one request a prompt, at temperature 1."""
    sampling = Sampling(temperature=1.0, max_tokens=work.max_tokens)
    return [
        Request(
            prompt=prompt,
            samples=tuple(range(p * group_size, (p + 1) * group_size)),
            sampling=sampling,
            seed=seed,
            iteration=iteration,
        )
        for p, prompt in enumerate(prompts)
    ]


def run_rollout(gate: Gate, *, work: Work, compile: bool = True) -> None:
    """Draw responses only."""
    tokenizer = load_tokenizer(work.model)
    dtype = str(weights_dtype(work.precision)).removeprefix("torch.")
    policy = load_policy(ModelSource(work.model, dtype=dtype)).to(work.device)
    engine = make_engine(work, compile)
    engine.bind(ModelSpec(name=work.model, tokenizer=tokenizer, policy=policy))
    loader = problems.prompt_loader(work, tokenizer, MANY)
    for iteration, _ in enumerate(gate):
        batch = loader.batch(iteration)
        requests = make_requests(batch.prompts, work.group_size, work, work.seed, iteration)
        stopwatch = Stopwatch(work.device)
        with autocast(work.precision, work.device):
            completions = engine.generate(requests)
        gate.report(
            seconds=stopwatch.seconds(),
            lengths=[completion.num_tokens for completion in completions],
            prompt_lengths=[len(prompt) for prompt in batch.prompts],
            **device_memory(work.device),
        )
