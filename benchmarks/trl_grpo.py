"""TRL's ``GRPOTrainer`` as a peer: same weights, prompts, rewards, lengths and updates.

P prompts   G responses per prompt   B = P*G rows   T response tokens
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    StoppingCriteriaList,
    TrainerCallback,
)
from transformers.generation.continuous_batching import ContinuousBatchingManager
from trl import GRPOConfig, GRPOTrainer

from benchmarks import problems
from benchmarks.devices import Stopwatch, device_memory, seed_all, weights_dtype
from benchmarks.hf_generate import NEVER, RecordedLengths, end_at, warmup_lengths
from benchmarks.ours import make_optimizer, make_scheduler
from benchmarks.work import Work
from benchmarks.worker import Gate
from r1lit.policy import Policy, load_tokenizer
from r1lit.verifiers import Grader


class GateCallback(TrainerCallback):
    """Holds the trainer before each iteration until it is wanted, and reports what it took."""

    def __init__(
        self,
        gate: Gate,
        work: Work,
        parts: dict[str, float],
        evaluate: Callable[[Any], dict[str, float]] | None,
    ) -> None:
        self.gate = gate
        self.evaluate = evaluate
        self.work = work
        self.parts = parts

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait before the iteration's first update, then start the clock."""
        if state.global_step % self.work.updates_per_iteration == 0:
            self.gate.wait()
            self.parts.clear()
            self._stopwatch = Stopwatch(self.work.device)

    def on_step_end(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Report after the iteration's last update."""
        if state.global_step % self.work.updates_per_iteration == 0:
            seconds = self._stopwatch.seconds()
            parts = dict(self.parts)
            if "rollout_s" in parts:
                parts["update_s"] = seconds - parts["rollout_s"] - parts["grade_s"]
            if self.evaluate is not None:
                parts |= self.evaluate(Policy(model))
            self.gate.report(seconds=seconds, **parts, **device_memory(self.work.device))


class Lengths:
    """The forced lengths of the iteration that is to come: short in the first, a warm-up.

    ``now`` is None where responses end by themselves.
    """

    def __init__(self, lengths: Sequence[int] | None) -> None:
        self.now = None if lengths is None else warmup_lengths(lengths)
        self._recorded = None if lengths is None else list(lengths)

    def next(self) -> None:
        """Go on to the recorded lengths."""
        self.now = self._recorded


def force_lengths(
    model: PreTrainedModel, work: Work, lengths: Lengths, parts: dict[str, float]
) -> None:
    """Make ``generate`` end each row at its recorded length, and time it."""
    generate: Callable[..., Tensor] = model.generate  # type: ignore[assignment]

    def forced(**inputs: Any) -> Tensor:
        assert lengths.now is not None
        width = inputs["input_ids"].shape[1]
        config = inputs["generation_config"]
        eos, pad = config.eos_token_id[0], config.pad_token_id
        config.eos_token_id = NEVER
        stopwatch = Stopwatch(work.device)
        tokens = generate(
            **inputs, stopping_criteria=StoppingCriteriaList([RecordedLengths(lengths.now, width)])
        )
        parts["rollout_s"] = stopwatch.seconds()
        config.eos_token_id = [eos]
        ended = end_at(tokens[:, width:], lengths.now, eos=eos, pad=pad, other=eos + 1)
        return torch.cat([tokens[:, :width], ended], dim=1)

    model.generate = forced  # type: ignore[assignment]


def force_batch_lengths(
    model: PreTrainedModel, work: Work, lengths: Lengths, parts: dict[str, float]
) -> None:
    """Do the same for transformers' continuous batching, where a limit goes with each request."""
    generate_batch: Callable[..., dict[str, Any]] = model.generate_batch  # type: ignore[assignment]
    add_request = ContinuousBatchingManager.add_request

    def add(manager: Any, input_ids: list[int], request_id: str, **options: Any) -> str | None:
        assert lengths.now is not None
        row = int(request_id.removeprefix("req_"))
        options |= {"eos_token_id": NEVER, "max_new_tokens": lengths.now[row]}
        return add_request(manager, input_ids, request_id=request_id, **options)

    def forced(*arguments: Any, **options: Any) -> dict[str, Any]:
        config = options["generation_config"]
        eos, pad = config.eos_token_id[0], config.pad_token_id
        stopwatch = Stopwatch(work.device)
        ContinuousBatchingManager.add_request = add  # type: ignore[method-assign, assignment]
        try:
            outputs = generate_batch(*arguments, **options)
        finally:
            ContinuousBatchingManager.add_request = add_request  # type: ignore[method-assign]
        parts["rollout_s"] = stopwatch.seconds()
        for output in outputs.values():
            tokens = output.generated_tokens
            row = torch.tensor([tokens])
            output.generated_tokens = end_at(
                row, [len(tokens)], eos=eos, pad=pad, other=eos + 1
            ).tolist()[0]
        return outputs

    model.generate_batch = forced  # type: ignore[assignment]


def reward_function(
    work: Work, lengths: Lengths, parts: dict[str, float], rows: list[Any]
) -> Callable[..., list]:
    """Return r1lit's grader and rewards as TRL wants them, timed; lengths are checked."""
    functions, grader = problems.rewards(work), Grader()

    def reward(
        completions: list[str], completion_ids: list[list[int]], index: list[int], **columns: Any
    ) -> list[float]:
        stopwatch = Stopwatch(work.device)
        num_tokens = [len(ids) for ids in completion_ids]
        assert lengths.now in (None, num_tokens), (num_tokens[:8], lengths.now)
        asked = [rows[i] for i in index]
        total = problems.total_rewards(functions, grader, completions, asked, num_tokens)
        lengths.next()
        parts["grade_s"] = stopwatch.seconds()
        parts["num_tokens"] = sum(num_tokens)
        return total

    return reward


def make_config(work: Work, micro_rows: int, folder: str, **options: Any) -> GRPOConfig:
    """Return TRL's settings for the work; ``options`` are the peer's own, found by trying."""
    return GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=micro_rows,
        gradient_accumulation_steps=work.train_batch_size // micro_rows,
        steps_per_generation=work.num_rows // micro_rows,
        num_generations=work.group_size,
        max_completion_length=work.max_tokens,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        max_grad_norm=work.max_grad_norm,
        beta=work.beta,
        epsilon=work.epsilon,
        loss_type="dr_grpo",
        scale_rewards="none",
        num_iterations=1,
        shuffle_dataset=False,
        remove_unused_columns=False,
        bf16=work.precision == "bf16-mixed",
        use_cpu=work.device == "cpu",
        seed=work.seed,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        num_train_epochs=1,
        **{"gradient_checkpointing": False, **options},
    )


def run_iterations(
    gate: Gate,
    *,
    work: Work,
    micro_rows: int,
    iterations: int = 64,
    rollout: Callable[[Lengths, dict[str, float]], Callable[..., Any]] | None = None,
    evaluate: Callable[[Any], dict[str, float]] | None = None,
    **options: Any,
) -> None:
    """Make GRPO iterations: rollout, rewards, updates; ``evaluate`` the policy after each.

    ``rollout`` makes a ``rollout_func`` that takes the place of ``generate``.
    """
    seed_all(work.seed)
    tokenizer = load_tokenizer(work.model)
    model = AutoModelForCausalLM.from_pretrained(
        work.model, dtype=weights_dtype(work.precision), trust_remote_code=False
    )
    model = model.to(work.device)  # type: ignore[arg-type]
    optimizer = make_optimizer(work)(model.parameters())
    loader = problems.prompt_loader(work, tokenizer, iterations)
    batches = [loader.batch(i) for i in range(iterations)]
    rows = [problem for batch in batches for problem in batch.problems]
    texts = [problems.prompt_text(tokenizer, problems.TEMPLATE, row.question) for row in rows]
    parts: dict[str, float] = {}
    lengths = Lengths(work.lengths)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward_function(work, lengths, parts, rows),
            args=make_config(work, micro_rows, folder, **options),
            train_dataset=Dataset.from_dict({"prompt": texts, "index": list(range(len(rows)))}),
            processing_class=tokenizer,
            callbacks=[GateCallback(gate, work, parts, evaluate)],
            optimizers=(optimizer, make_scheduler(work)(optimizer)),
            rollout_func=None if rollout is None else rollout(lengths, parts),
        )
        if rollout is None and work.lengths is not None:
            force_lengths(model, work, lengths, parts)
            force_batch_lengths(model, work, lengths, parts)
        trainer.train()
