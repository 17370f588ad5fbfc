"""r1lit's side of supervised training: ``SFTModule`` under a real trainer."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl

from benchmarks.devices import Stopwatch, device_memory, weights_dtype
from benchmarks.documents import RecordedDocuments, encoded
from benchmarks.ours import MANY, make_optimizer, make_trainer
from benchmarks.work import SupervisedWork
from benchmarks.worker import Gate
from r1lit.data import PackingOptions, R1DataModule
from r1lit.modules import SFTModule
from r1lit.policy import ModelSource


class GateCallback(pl.Callback):
    """Holds the trainer before each update until it is wanted; counts its real tokens."""

    def __init__(self, gate: Gate, work: SupervisedWork, pad: int) -> None:
        self.gate = gate
        self.work = work
        self.pad = pad

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Wait, then start the clock."""
        self.gate.wait()
        self._num_tokens = int((batch.input_ids_RL != self.pad).sum())
        self._stopwatch = Stopwatch(self.work.device)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Report the update's seconds and tokens."""
        seconds = self._stopwatch.seconds()
        assert self._num_tokens == sum(self.work.lengths), "an update is of all documents"
        self.gate.report(
            seconds=seconds,
            num_tokens=self._num_tokens,
            seconds_per_1000_tokens=1000 * seconds / self._num_tokens,
            **device_memory(self.work.device),
        )


def run_updates(gate: Gate, *, work: SupervisedWork, **options: Any) -> None:
    """Make supervised updates on packed rows; ``options`` are the module's own."""
    dtype = str(weights_dtype(work.precision)).removeprefix("torch.")
    module = SFTModule(
        ModelSource(work.model, dtype=dtype),
        optimizer=make_optimizer(work),
        max_grad_norm=work.max_grad_norm,
        seed=work.seed,
        **options,
    )
    tokenizer = module.tokenizer
    lengths = [len(document) for document in encoded(work, tokenizer)]
    data = R1DataModule(
        documents=[RecordedDocuments(work, tokenizer)],
        packing=PackingOptions(
            max_seq_len=work.max_seq_len, documents_per_update=len(lengths), loss_on="all"
        ),
        num_iterations=MANY,
        seed=work.seed,
    )
    callback = GateCallback(gate, work, int(tokenizer.pad_token_id))
    make_trainer(work.precision, work.device, callback).fit(module, datamodule=data)
