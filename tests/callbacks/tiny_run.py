"""A run in a second: a real Trainer, real rollouts, no language model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import Logger

from r1lit.batches import Problem, Response, Rollout, Verdict
from r1lit.seeding import generator

SOURCES = ("countdown", "arithmetic")


def response(
    text: str,
    right: bool,
    *,
    uid: str = "p0",
    source: str = "countdown",
    num_tokens: int = 4,
    finished: bool = True,
    canonical: str | None = "auto",
    kind: str | None = "reasoning",
) -> Response:
    key = ("7" if right else "8") if canonical == "auto" else canonical
    return Response(
        text=text,
        problem=Problem(
            uid=uid,
            question=f"{uid}: 3 + 4 = ?",
            answer="7",
            source=source,
            meta={} if kind is None else {"kind": kind},
        ),
        verdict=Verdict(
            value=float(right),
            status="right" if right else "wrong",
            canonical=key,
            reason="" if right else "another number",
        ),
        num_tokens=num_tokens,
        finished=finished,
    )


def rollout_of(responses: list[Response], group_size: int, iteration: int = 0) -> Rollout:
    num_rows, num_prompts = len(responses), len(responses) // group_size
    right_B = torch.tensor([r.verdict.value for r in responses])
    right_PG = right_B.view(num_prompts, group_size)
    form_PG = torch.tensor([float("<think>" in r.text) for r in responses]).view_as(right_PG)
    reward_PG = right_PG + 0.1 * form_PG
    return Rollout(
        iteration=iteration,
        group_size=group_size,
        prompts=((1, 2),) * num_prompts,
        responses=tuple(responses),
        response_BT=torch.ones(num_rows, 3, dtype=torch.long),
        length_B=torch.full((num_rows,), 3),
        loss_mask_BT=torch.ones(num_rows, 3, dtype=torch.bool),
        logp_sampler_BT=torch.zeros(num_rows, 3),
        logp_old_BT=torch.zeros(num_rows, 3),
        rewards={"accuracy": right_PG, "format": form_PG},
        reward_PG=reward_PG,
        advantage_BT=(reward_PG - reward_PG.mean(1, keepdim=True)).view(-1, 1).expand(-1, 3),
    )


class StatefulLoader:
    """Yields (iteration, number) and remembers how many it has yielded."""

    def __init__(self, num_batches: int) -> None:
        self.num_batches = num_batches
        self.num_yielded = 0

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self):
        while self.num_yielded < self.num_batches:
            i = self.num_yielded
            self.num_yielded += 1
            yield i, float(generator(0, "batch", i).random())

    def state_dict(self) -> dict[str, int]:
        return {"num_yielded": self.num_yielded}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.num_yielded = state["num_yielded"]


class TinyModule(pl.LightningModule):
    """Two updates an iteration by hand; what it answers depends on its weight and on counters."""

    def __init__(self, num_train: int = 6, num_val: int = 2, group_size: int = 4) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.tensor(0.5))
        self.register_buffer("iteration", torch.tensor(0))
        self.register_buffer("reference", torch.tensor(0.5))
        self.num_train, self.num_val, self.group_size = num_train, num_val, group_size

    def exported(self) -> dict[str, Any]:
        return {"policy": self.policy}

    def refresh_reference(self) -> None:
        self.reference = self.weight.detach().clone()

    def answer(self, stage: str, index: int, num_prompts: int) -> Rollout:
        rng = generator(0, stage, index, int(self.iteration), f"{float(self.weight.detach()):.6f}")
        responses = []
        for p in range(num_prompts):
            for _ in range(self.group_size):
                right = bool(rng.random() < 0.3 + 0.05 * int(self.iteration))
                waits = "wait, " * int(rng.poisson(0.2 * int(self.iteration)))
                responses.append(
                    response(
                        f"<think> but {waits}three and four </think> {7 if right else 8}",
                        right,
                        uid=f"{stage}{index}-{p}",
                        source=SOURCES[p % 2],
                        num_tokens=int(rng.integers(3, 20)),
                        finished=bool(rng.random() < 0.9),
                    )
                )
        return rollout_of(responses, self.group_size, int(self.iteration))

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        iteration, number = batch
        assert iteration == int(self.iteration), (iteration, int(self.iteration))
        rollout = self.answer("train", iteration, num_prompts=4)
        optimizer = self.optimizers()
        for _ in range(2):
            optimizer.zero_grad()
            self.weight.grad = torch.tensor(number) - self.weight.detach()
            optimizer.step()
        values = {f"train/reward/{name}": r.mean() for name, r in rollout.rewards.items()}
        self.log_dict({"train/loss": self.weight.detach(), **values}, batch_size=1)
        self.log("train/kl_reference", (self.weight - self.reference).detach().abs(), batch_size=1)
        self.iteration += 1
        return {"rollout": rollout}

    def validation_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        rollout = self.answer("val", int(batch), num_prompts=2)
        stage = "test" if self.trainer.testing else "val"
        values = {f"{stage}/reward/{name}": r.mean() for name, r in rollout.rewards.items()}
        self.log_dict(values, batch_size=len(rollout.responses))
        return {"rollout": rollout}

    test_step = validation_step

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD([self.weight], lr=0.1, momentum=0.9)

    def train_dataloader(self) -> StatefulLoader:
        return StatefulLoader(self.num_train)

    def val_dataloader(self) -> torch.utils.data.DataLoader:
        return torch.utils.data.DataLoader(range(self.num_val), batch_size=None)

    test_dataloader = val_dataloader


class FileLogger(Logger):
    """Appends what Lightning logs, with its step, to a file that outlives a killed process."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    @property
    def name(self) -> str:
        return "file"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, *arguments: Any, **named: Any) -> None: ...

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def by_step(self) -> dict[tuple[int, str], float]:
        """What a reader of the log sees: for each step and key, the value logged last."""
        return {
            (line["step"], key): value
            for line in self.lines()
            for key, value in line.items()
            if key not in ("step", "epoch")
        }


def trainer_of(folder: Path, callbacks: list[pl.Callback], **named: Any) -> pl.Trainer:
    folder.mkdir(parents=True, exist_ok=True)
    defaults: dict[str, Any] = {
        "logger": FileLogger(folder / "logged.jsonl"),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": any(isinstance(c, pl.callbacks.Checkpoint) for c in callbacks),
        "val_check_interval": 2,
        "max_epochs": 1,
    }
    return pl.Trainer(
        accelerator="cpu",
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        default_root_dir=folder,
        callbacks=callbacks,
        **(defaults | named),
    )
