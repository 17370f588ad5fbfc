"""TRL's ``GRPOTrainer`` and ``SFTTrainer`` as peers: same weights, inputs, lengths and updates.

P prompts   G responses per prompt   B = P*G rows   T response tokens
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel, StoppingCriteriaList, TrainerCallback, set_seed
from transformers.generation.continuous_batching import ContinuousBatchingManager
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

from benchmarks import problems
from benchmarks.hf_generate import NEVER, RecordedLengths, end_at, warmup_lengths
from benchmarks.models import load_plain, vocabulary_of
from benchmarks.ours import evaluation, make_optimizer, make_scheduler, random_tokens
from benchmarks.work import SupervisedWork, Training, Work
from benchmarks.worker import Gate, Stopwatch
from r1lit.policy import Policy, load_tokenizer


class GateCallback(TrainerCallback):
    """Holds the trainer before every few updates until they are wanted, and reports what they took.

    ``parts`` is what is found meanwhile; ``more`` returns what is reported besides, of the model.
    """

    def __init__(
        self,
        gate: Gate,
        num_updates: int,
        parts: dict[str, float],
        more: Callable[[Any], dict[str, float]],
    ) -> None:
        self.gate = gate
        self.num_updates = num_updates
        self.parts = parts
        self.more = more

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait before the first of these updates, then start the clock."""
        if state.global_step % self.num_updates == 0:
            self.gate.wait()
            self.parts.clear()

    def on_step_end(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Report after the last of them; an update is what is left of the time."""
        if state.global_step % self.num_updates == 0:
            seconds = self.gate.stop()
            if "rollout_s" in self.parts:
                own = seconds - self.parts["rollout_s"] - self.parts["grade_s"]
                self.parts["update_s"] = own
            self.gate.report(**self.parts, **self.more(model))


def common_settings(work: Training, folder: str) -> dict[str, Any]:
    """Return the settings that both of TRL's trainers get."""
    return {
        "output_dir": folder,
        "max_grad_norm": work.max_grad_norm,
        "bf16": work.precision == "bf16-mixed",
        "use_cpu": work.device == "cpu",
        "seed": work.seed,
        "report_to": [],
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
    }


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


def force_lengths(model: PreTrainedModel, lengths: Lengths, parts: dict[str, float]) -> None:
    """Make ``generate`` end each row at its recorded length, if there are some, and time it."""
    generate: Callable[..., Tensor] = model.generate  # type: ignore[assignment]

    def timed(**inputs: Any) -> Tensor:
        stopwatch = Stopwatch()
        tokens = generate(**inputs)
        parts["rollout_s"] = stopwatch.seconds()
        return tokens

    def forced(**inputs: Any) -> Tensor:
        assert lengths.now is not None
        width = inputs["input_ids"].shape[1]
        config = inputs["generation_config"]
        eos, pad = config.eos_token_id[0], config.pad_token_id
        config.eos_token_id = NEVER
        tokens = timed(
            **inputs, stopping_criteria=StoppingCriteriaList([RecordedLengths(lengths.now, width)])
        )
        config.eos_token_id = [eos]
        ended = end_at(tokens[:, width:], lengths.now, eos=eos, pad=pad, other=eos + 1)
        return torch.cat([tokens[:, :width], ended], dim=1)

    model.generate = timed if lengths.now is None else forced  # type: ignore[assignment]


def force_batch_lengths(model: PreTrainedModel, lengths: Lengths, parts: dict[str, float]) -> None:
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
        stopwatch = Stopwatch()
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
    functions, grader = problems.rewards(work), problems.make_grader(work)

    def reward(
        completions: list[str], completion_ids: list[list[int]], index: list[int], **columns: Any
    ) -> list[float]:
        stopwatch = Stopwatch()
        num_tokens = [len(ids) for ids in completion_ids]
        assert lengths.now in (None, num_tokens), (num_tokens[:8], lengths.now)
        asked = [rows[i] for i in index]
        total = problems.total_rewards(functions, grader, completions, asked, num_tokens)
        lengths.next()
        parts["grade_s"] = stopwatch.seconds()
        parts["num_tokens"] = sum(num_tokens)
        return total

    return reward


def random_rollout(
    work: Work, lengths: Lengths, parts: dict[str, float]
) -> Callable[[list[str], Any], dict[str, Any]]:
    """Return what takes the place of ``generate``: random tokens of the forced lengths."""
    vocabulary = vocabulary_of(work)

    def draw(prompts: list[str], trainer: Any) -> dict[str, Any]:
        assert lengths.now is not None
        parts["rollout_s"] = 0.0
        tokens = random_tokens(len(prompts), max(lengths.now), vocabulary, seed=0)
        rows = zip(tokens.tolist(), lengths.now, strict=True)
        return {
            "prompt_ids": trainer.processing_class(prompts)["input_ids"],
            "completion_ids": [row[:length] for row, length in rows],
            "logprobs": None,
        }

    return draw


def make_config(work: Work, micro_rows: int, folder: str, **options: Any) -> GRPOConfig:
    """Return TRL's settings for the work; ``options`` are the peer's own, found by trying."""
    return GRPOConfig(
        per_device_train_batch_size=micro_rows,
        gradient_accumulation_steps=work.train_batch_size // micro_rows,
        steps_per_generation=work.num_rows // micro_rows,
        num_generations=work.group_size,
        max_completion_length=work.max_tokens,
        temperature=work.temperature,
        top_p=1.0,
        top_k=0,
        beta=work.beta,
        epsilon=work.epsilon,
        loss_type="dr_grpo",
        scale_rewards="none",
        num_iterations=1,
        shuffle_dataset=False,
        remove_unused_columns=False,
        num_train_epochs=1,
        **{**common_settings(work, folder), **options},
    )


def run_iterations(
    gate: Gate,
    *,
    work: Work,
    micro_rows: int,
    iterations: int = 64,
    decode: bool = True,
    evaluate_every: int = 0,
    **options: Any,
) -> None:
    """Make GRPO iterations: rollout, rewards, updates; see ``ours.run_iterations``."""
    set_seed(work.seed)
    tokenizer = load_tokenizer(work.model)
    model = load_plain(work)
    optimizer = make_optimizer(work)(model.parameters())
    loader = problems.prompt_loader(work, tokenizer, iterations)
    rows = [problem for i in range(iterations) for problem in loader.batch(i).problems]
    texts = problems.prompt_texts(work, tokenizer, rows)
    parts: dict[str, float] = {}
    lengths = Lengths(work.lengths)
    evaluate = evaluation(work, evaluate_every)
    callback = GateCallback(
        gate, work.updates_per_iteration, parts, lambda model: evaluate(Policy(model))
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward_function(work, lengths, parts, rows),
            args=make_config(work, micro_rows, folder, **options),
            train_dataset=Dataset.from_dict({"prompt": texts, "index": list(range(len(rows)))}),
            processing_class=tokenizer,
            callbacks=[callback],
            optimizers=(optimizer, make_scheduler(work)(optimizer)),
            rollout_func=None if decode else random_rollout(work, lengths, parts),
        )
        if decode:
            force_lengths(model, lengths, parts)
            force_batch_lengths(model, lengths, parts)
        trainer.train()


class CountingTrainer(SFTTrainer):
    """Counts the real tokens that it trains on."""

    parts: dict[str, float]
    pad = 0

    def training_step(
        self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Tensor:
        """Count, then train."""
        count = int((inputs["input_ids"] != self.pad).sum())
        self.parts["num_tokens"] = self.parts.get("num_tokens", 0) + count
        return super().training_step(model, inputs, *args, **kwargs)


def run_updates(gate: Gate, *, work: SupervisedWork, micro_rows: int, **options: Any) -> None:
    """Make supervised updates; ``options`` are the peer's own settings, found by trying."""
    tokenizer = load_tokenizer(work.model)
    rows = [document.tokens.tolist() for document in problems.encoded(work, tokenizer)]
    parts: dict[str, float] = {}

    def checked(model: Any) -> dict[str, float]:
        assert parts["num_tokens"] == sum(work.lengths), "an update is of all documents"
        return {}

    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(
            per_device_train_batch_size=micro_rows,
            # as many passes as there may be: an epoch ends the update, so it is of all documents
            gradient_accumulation_steps=len(rows),
            max_length=work.max_seq_len,
            learning_rate=work.learning_rate,
            lr_scheduler_type="constant",
            weight_decay=0.0,
            num_train_epochs=1000,
            **{
                **common_settings(work, folder),
                "packing": True,
                "optim": "adamw_torch_fused",
                **options,
            },
        )
        trainer = CountingTrainer(
            model=load_plain(work),
            args=arguments,
            train_dataset=Dataset.from_dict({"input_ids": rows}),
            processing_class=tokenizer,
            callbacks=[GateCallback(gate, 1, parts, checked)],
        )
        trainer.parts, trainer.pad = parts, int(tokenizer.pad_token_id)
        trainer.train()
