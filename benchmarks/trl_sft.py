"""TRL's ``SFTTrainer`` as a peer, on the same documents."""

from __future__ import annotations

import tempfile
from typing import Any

from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import SFTConfig, SFTTrainer

from benchmarks.devices import Stopwatch, device_memory, weights_dtype
from benchmarks.documents import encoded
from benchmarks.work import SupervisedWork
from benchmarks.worker import Gate
from r1lit.policy import load_tokenizer


class CountingTrainer(SFTTrainer):
    """Counts the real tokens that it trains on."""

    num_tokens = 0
    pad = 0

    def training_step(
        self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Tensor:
        """Count, then train."""
        self.num_tokens += int((inputs["input_ids"] != self.pad).sum())
        return super().training_step(model, inputs, *args, **kwargs)


class GateCallback(TrainerCallback):
    """Holds the trainer before each update until it is wanted, and reports what it took."""

    trainer: CountingTrainer

    def __init__(self, gate: Gate, work: SupervisedWork) -> None:
        self.gate = gate
        self.work = work

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Wait, then start the clock."""
        self.gate.wait()
        self.trainer.num_tokens = 0
        self._stopwatch = Stopwatch(self.work.device)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Report the update's seconds and tokens."""
        seconds = self._stopwatch.seconds()
        assert self.trainer.num_tokens == sum(self.work.lengths), "an update is of all documents"
        self.gate.report(
            seconds=seconds,
            num_tokens=self.trainer.num_tokens,
            seconds_per_1000_tokens=1000 * seconds / self.trainer.num_tokens,
            **device_memory(self.work.device),
        )


def run_updates(gate: Gate, *, work: SupervisedWork, micro_rows: int, **options: Any) -> None:
    """Make supervised updates; ``options`` are the peer's own settings, found by trying."""
    tokenizer = load_tokenizer(work.model)
    model = AutoModelForCausalLM.from_pretrained(
        work.model, dtype=weights_dtype(work.precision), trust_remote_code=False
    )
    rows = [document.tokens.tolist() for document in encoded(work, tokenizer)]
    callback = GateCallback(gate, work)
    with tempfile.TemporaryDirectory() as folder:
        arguments = SFTConfig(
            output_dir=folder,
            per_device_train_batch_size=micro_rows,
            # as many passes as there may be: an epoch ends the update, so it is of all documents
            gradient_accumulation_steps=len(rows),
            max_length=work.max_seq_len,
            learning_rate=work.learning_rate,
            lr_scheduler_type="constant",
            max_grad_norm=work.max_grad_norm,
            weight_decay=0.0,
            bf16=work.precision == "bf16-mixed",
            use_cpu=work.device == "cpu",
            seed=work.seed,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            num_train_epochs=1000,
            **{
                "packing": True,
                "gradient_checkpointing": False,
                "optim": "adamw_torch_fused",
                **options,
            },
        )
        trainer = CountingTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict({"input_ids": rows}),
            processing_class=tokenizer,
            callbacks=[callback],
        )
        trainer.pad = int(tokenizer.pad_token_id)
        callback.trainer = trainer
        trainer.train()
