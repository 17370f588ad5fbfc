"""r1lit's side: the real modules under a real trainer, with forced lengths.

P prompts   G responses per prompt   B = P*G rows   T response tokens   R rows decoding
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from benchmarks import problems
from benchmarks.hf_generate import warmup_lengths
from benchmarks.models import autocast, vocabulary_of
from benchmarks.work import SupervisedWork, Training, Work, weights_dtype
from benchmarks.worker import Gate
from r1lit.data import PackingOptions, R1DataModule
from r1lit.data.packing import encode_prompts
from r1lit.modules import GRPOModule, SFTModule
from r1lit.objectives import DrGRPO
from r1lit.policy import ModelSource, load_policy, load_tokenizer
from r1lit.rollout import (
    Completion,
    InProcessEngine,
    ModelSpec,
    OnFinished,
    Request,
    RolloutEngine,
    Sampling,
    VLLMEngine,
    texts_of,
)
from r1lit.rollout.in_process import StoppingCriterion

MANY = 10_000
PARTS = ("sync_s", "rollout_s", "grade_s", "update_s")


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


class Endless(ModelSpec):
    """A model none of whose tokens ends a response."""

    def end_ids(self) -> tuple[int, ...]:
        """Return none."""
        return ()


class ServedLengths(VLLMEngine):
    """Has a vLLM server draw ``lengths[s]`` tokens of sample ``s``, whatever they are."""

    def __init__(self, lengths: Sequence[int], **options: Any) -> None:
        super().__init__(serve=True, concurrency=len(lengths), **options)
        self.lengths = tuple(lengths)

    def bind(self, model: ModelSpec) -> None:
        """Have no token end a response."""
        super().bind(Endless(**vars(model)))

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Ask for each sample by itself, with its length as the limit."""
        single = [
            replace(
                request,
                samples=(sample,),
                sampling=replace(request.sampling, max_tokens=self.lengths[sample]),
            )
            for request in requests
            for sample in request.samples
        ]
        super().stream(single, on_finished)


class RandomTokens(RolloutEngine):
    """Draws every token evenly from the vocabulary: what a policy of random weights does.

    The first iteration is short. So an update's memory is measured without decoding.
    """

    def __init__(self, lengths: Sequence[int], vocabulary: int) -> None:
        self.lengths = lengths
        self.vocabulary = vocabulary

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return the completions; see ``RolloutEngine.generate``."""
        iteration = requests[0].iteration
        recorded = self.lengths if iteration else warmup_lengths(self.lengths)
        lengths = [recorded[sample] for request in requests for sample in request.samples]
        tokens_BT = random_tokens(len(lengths), max(lengths), self.vocabulary, iteration)
        return [
            Completion(
                token_ids=tokens_T[:length],
                logps=torch.full((length,), -math.log(self.vocabulary)),
                finish_reason="stop",
            )
            for tokens_T, length in zip(tokens_BT, lengths, strict=True)
        ]


def random_tokens(rows: int, width: int, vocabulary: int, seed: int) -> Tensor:
    """Return token ids without the special ones in front."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, vocabulary - 1, (rows, width), generator=generator)


def make_engine(
    work: Work,
    compile: bool = True,
    decode: bool = True,
    server: dict[str, Any] | None = None,
) -> RolloutEngine:
    """Return the engine, with forced lengths if there are some.

    Without ``decode`` the tokens are random; ``server`` are the options of a ``VLLMEngine``.
    """
    if work.lengths is None:
        return InProcessEngine(compile=compile)
    if server is not None:
        return ServedLengths(work.lengths, **server)
    if not decode:
        return RandomTokens(work.lengths, vocabulary_of(work))
    return ForcedLengths(work.lengths, compile=compile)


class HeldOut:
    """Held-out pass@1 every few iterations: the mean accuracy of 16 responses to each problem.

    It is the same for both sides and outside of the clock.
    """

    group_size = 16
    seed = 1 << 20

    def __init__(self, work: Work, every: int) -> None:
        self.work = work
        self.every = every
        self.num_iterations = 0
        self.tokenizer = load_tokenizer(work.model)
        held_out = problems.sources(work, "held_out")
        self.problems = [problem for source in held_out for problem in source.problems()]
        texts = problems.prompt_texts(work, self.tokenizer, self.problems)
        self.prompts = encode_prompts(self.tokenizer, texts)
        self.engine = InProcessEngine()
        self.grader = problems.make_grader(work)

    def __call__(self, policy: Any) -> dict[str, float]:
        """Return pass@1 if it is time, after one more iteration."""
        self.num_iterations += 1
        if self.num_iterations % self.every:
            return {}
        return {"pass_at_1": self.pass_at_1(policy)}

    def pass_at_1(self, policy: Any) -> float:
        """Return the share of right responses."""
        requests = make_requests(
            self.prompts, self.group_size, self.work, self.seed, iteration=self.num_iterations
        )
        self.engine.bind(ModelSpec(name=self.work.model, tokenizer=self.tokenizer, policy=policy))
        with autocast(self.work):
            texts = texts_of(self.engine.generate(requests), self.tokenizer)
        asked = [problem for problem in self.problems for _ in range(self.group_size)]
        verdicts = self.grader.verdicts(texts, asked)
        return sum(verdict.value for verdict in verdicts) / len(asked)


def evaluation(work: Work, every: int) -> Callable[[Any], dict[str, float]]:
    """Return what evaluates a policy after every few iterations, never if ``every`` is 0."""
    return HeldOut(work, every) if every else lambda policy: {}


class GateCallback(pl.Callback):
    """Holds the trainer before each batch until it is wanted, and reports what it took.

    ``more`` returns what is reported besides, of the trainer, its module and the batch.
    """

    def __init__(self, gate: Gate, more: Callable[[pl.Trainer, Any, Any], dict[str, Any]]) -> None:
        self.gate = gate
        self.more = more

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Wait, then start the clock."""
        self.gate.wait()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Stop the clock and report."""
        self.gate.stop()
        self.gate.report(**self.more(trainer, pl_module, batch))


def make_trainer(work: Training, callback: pl.Callback) -> pl.Trainer:
    """Return a trainer that only trains."""
    warnings.filterwarnings("ignore", module="lightning")
    return pl.Trainer(
        accelerator="gpu" if work.device == "cuda" else "cpu",
        devices=1,
        precision="bf16-mixed" if work.precision == "bf16-mixed" else "32-true",
        max_epochs=1,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def make_optimizer(work: Training):
    """Return what makes AdamW of the parameters, fused as the shipped configurations have it."""
    return partial(
        torch.optim.AdamW, lr=work.learning_rate, betas=work.betas, weight_decay=0.0, fused=True
    )


def make_scheduler(work: Training):
    """Return what makes the schedule of an optimiser: constant, or falling to a tenth."""
    return partial(
        torch.optim.lr_scheduler.LinearLR,
        start_factor=1.0,
        end_factor=0.1 if work.decay_updates else 1.0,
        total_iters=max(1, work.decay_updates),
    )


def model_source(work: Training, adapter: Any = None) -> ModelSource:
    """Return the work's model as r1lit names one, of which ``adapter`` alone may be trained."""
    return ModelSource(work.model, dtype=weights_dtype(work.precision), adapter=adapter)


def run_iterations(
    gate: Gate,
    *,
    work: Work,
    engine: RolloutEngine | None = None,
    compile: bool = True,
    decode: bool = True,
    server: dict[str, Any] | None = None,
    evaluate_every: int = 0,
    adapter: Any = None,
    **options: Any,
) -> None:
    """Make GRPO iterations: rollout, rewards, updates; see ``make_engine`` and ``evaluation``.

    ``adapter`` is peft's configuration of one; ``options`` are the module's own,
    ``micro_batch_tokens`` say.
    """
    engine = engine or make_engine(work, compile, decode, server)
    module = GRPOModule(
        model_source(work, adapter),
        objective=DrGRPO(max_tokens=work.max_tokens, epsilon=work.epsilon, beta=work.beta),
        rewards=problems.rewards(work),
        sampling=Sampling(temperature=work.temperature, max_tokens=work.max_tokens),
        train_batch_size=work.train_batch_size,
        engine=engine,
        grader=problems.make_grader(work),
        optimizer=make_optimizer(work),
        lr_scheduler=make_scheduler(work),
        max_grad_norm=work.max_grad_norm,
        seed=work.seed,
        **options,
    )
    evaluate = evaluation(work, evaluate_every)

    def logged(trainer: pl.Trainer, module: Any, batch: Any) -> dict[str, float]:
        metrics = trainer.callback_metrics
        parts = {p: float(metrics[f"time/{p}"]) for p in PARTS if f"time/{p}" in metrics}
        num_tokens = float(metrics["train/num_tokens"])
        return {**parts, "num_tokens": num_tokens, **evaluate(module.policy)}

    try:
        trainer = make_trainer(work, GateCallback(gate, logged))
        trainer.fit(module, datamodule=problems.data_module(work, MANY))
    finally:
        engine.close()


def make_requests(
    prompts: Sequence[tuple[int, ...]], group_size: int, work: Work, seed: int, iteration: int
) -> list[Request]:
    """Return one request a prompt."""
    sampling = Sampling(temperature=work.temperature, max_tokens=work.max_tokens)
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
    policy = load_policy(model_source(work)).to(work.device)
    engine = make_engine(work, compile)
    engine.bind(ModelSpec(name=work.model, tokenizer=tokenizer, policy=policy))
    loader = problems.prompt_loader(work, tokenizer, MANY)
    for iteration, _ in enumerate(gate):
        batch = loader.batch(iteration)
        requests = make_requests(batch.prompts, work.group_size, work, work.seed, iteration)
        gate.start()
        with autocast(work):
            completions = engine.generate(requests)
        gate.stop()
        gate.report(
            lengths=[completion.num_tokens for completion in completions],
            prompt_lengths=[len(prompt) for prompt in batch.prompts],
        )


def run_updates(gate: Gate, *, work: SupervisedWork, **options: Any) -> None:
    """Make supervised updates on packed rows; ``options`` are the module's own."""
    module = SFTModule(
        model_source(work),
        optimizer=make_optimizer(work),
        max_grad_norm=work.max_grad_norm,
        seed=work.seed,
        **options,
    )
    tokenizer = module.tokenizer
    data = R1DataModule(
        documents=[problems.RecordedDocuments(work, tokenizer)],
        packing=PackingOptions(
            max_seq_len=work.max_seq_len,
            documents_per_update=len(problems.encoded(work, tokenizer)),
            loss_on="all",
        ),
        num_iterations=MANY,
        seed=work.seed,
    )

    def counted(trainer: pl.Trainer, module: Any, batch: Any) -> dict[str, int]:
        num_tokens = int((batch.input_ids_RL != tokenizer.pad_token_id).sum())
        assert num_tokens == sum(work.lengths), "an update is of all documents"
        return {"num_tokens": num_tokens}

    make_trainer(work, GateCallback(gate, counted)).fit(module, datamodule=data)


def run_sync(gate: Gate, *, model: str, server: dict[str, Any]) -> None:
    """Change the weights, and time what it takes until a served vLLM draws with them.

    That is ``time/sync_s`` of a run: pause, transfer, the probe of log-probs.
    """
    policy = load_policy(model)
    engine = VLLMEngine(serve=True, **server)
    with tempfile.TemporaryDirectory(prefix="r1lit-bench-") as folder:
        spec = ModelSpec(
            name=model, tokenizer=load_tokenizer(model), policy=policy, folder=Path(folder)
        )
        engine.bind(spec)
        try:
            engine.update_weights(policy.named_weights(), 0)
            for version, _ in enumerate(gate, 1):
                with torch.no_grad():
                    for weight in policy.parameters():
                        weight.mul_(1.001)
                gate.start()
                engine.update_weights(policy.named_weights(), version)
                gate.stop()
                megabytes = sum(p.nbytes for p in policy.parameters()) / 2**20
                gate.report(megabytes=megabytes)
        finally:
            engine.close()
