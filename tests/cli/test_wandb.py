"""A refusal of Weights & Biases, such as without a key, is one line."""

from __future__ import annotations

from typing import Any

import pytest
from lightning.pytorch.loggers import Logger


class UsageError(Exception):
    """wandb's own, raised where there is no key and no terminal to ask for one."""

    __module__ = "wandb.errors.errors"


class LikeWandb(Logger):
    """Begins its run when it is first asked for, as WandbLogger does."""

    name, version = "wandb", 0

    def __init__(self, save_dir: str, name: str, version: str) -> None:
        super().__init__()

    @property
    def experiment(self) -> Any:
        raise UsageError("api_key not configured (no-tty).\ncall wandb.login(key=[your_api_key])")

    def log_hyperparams(self, *arguments: Any, **named: Any) -> None: ...

    def log_metrics(self, *arguments: Any, **named: Any) -> None: ...


def test_without_a_key_a_run_ends_in_one_line(fit):
    logger = {"trainer": {"logger": {"class_path": "cli.test_wandb.LikeWandb"}}}
    says = r"^trainer.logger: Weights & Biases says: api_key not configured .*WANDB_MODE=offline$"
    with pytest.raises(ValueError, match=says) as caught:
        fit("run", logger)
    assert "\n" not in str(caught.value)
