"""A module and a trainer small enough that a fit takes a fraction of a second."""

from __future__ import annotations

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from r1lit.batches import Problem
from r1lit.data import DocumentSource, ProblemSource


class ListProblems(ProblemSource):
    def __init__(self, questions, prefix="u", source="list"):
        self._problems = [
            Problem(uid=f"{prefix}{i}", question=q, answer="1", source=source)
            for i, q in enumerate(questions)
        ]

    def problems(self):
        return self._problems


class ListDocuments(DocumentSource):
    def __init__(self, documents):
        self._documents = documents

    def documents(self):
        return self._documents


def numbered(count, prefix="u", words="question"):
    return ListProblems([f"{words} {i}" for i in range(count)], prefix=prefix)


class Recorder(LightningModule):
    """Writes down the batches it is given, and makes one optimiser step for each."""

    def __init__(self, tokenizer, context_length=None):
        super().__init__()
        self.automatic_optimization = False
        self.tokenizer = tokenizer
        self.context_length = context_length
        self.layer = torch.nn.Linear(1, 1)
        self.seen, self.validated, self.tested, self.predicted = [], [], [], []

    def training_step(self, batch, batch_idx):
        self.seen.append(batch)
        optimizer = self.optimizers()
        self.manual_backward(self.layer(torch.ones(1)).sum())
        optimizer.step()
        optimizer.zero_grad()

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        self.validated.append(batch)

    def test_step(self, batch, batch_idx):
        self.tested.append(batch)

    def predict_step(self, batch, batch_idx):
        self.predicted.append(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class SaveEverywhere(Callback):
    """Saves after every iteration, after every validation, and after every epoch."""

    def __init__(self, folder):
        self.folder = folder
        self.saved = []

    def _save(self, trainer, when):
        path = self.folder / f"{when}-{len(self.saved)}.ckpt"
        trainer.save_checkpoint(path)
        self.saved.append((path, len(trainer.lightning_module.seen)))

    def on_train_batch_end(self, trainer, *args):
        self._save(trainer, "batch")

    def on_validation_end(self, trainer, *args):
        if not trainer.sanity_checking:
            self._save(trainer, "validation")

    def on_train_epoch_end(self, trainer, *args):
        self._save(trainer, "epoch")


def make_trainer(**options):
    quiet = {
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    return Trainer(**(quiet | options))
