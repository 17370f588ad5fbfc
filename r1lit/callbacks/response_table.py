"""Tables of responses to read: a JSONL file, with values of each token, and TensorBoard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from r1lit.batches import PromptBatch, Rollout, TokenValues
from r1lit.callbacks.base import (
    counted_iterations,
    finished_iterations,
    folder_of,
    rollout_of,
    split_of,
)
from r1lit.data.protocols import HasTokenizer
from r1lit.errors import check_at_least
from r1lit.evaluation.records import response_record
from r1lit.files import Record, append_records, keep_records
from r1lit.protocols import RollsOut
from r1lit.text.scored_text import pieces


class ResponseTable(Callback):
    """Writes responses to ``<dirpath>/responses.jsonl`` and, as text, to TensorBoard.

    One line a response: iteration, split (``train`` and ``val`` of a fit, ``validate`` or ``test``
    of such a command), what every graded response has (`r1lit.evaluation.records`), its prompt as
    sent, and its rewards by name. The iteration of a training response is that of its rollout; of
    an evaluated one, the number of finished iterations.

    A resumed run first drops the lines that it will write again, and so does `r1lit validate` or
    `r1lit test` on a run folder: those of the same split and iteration. On several ranks, rank 0
    writes its own responses.

    Args:
        dirpath: Where; the run folder if left out.
        every_n_iterations: Write training responses every this many iterations.
        num_responses: How many responses of a training rollout; as many go to TensorBoard.
        num_problems: How many problems of an evaluation, each with all its responses; None: all.
        tokens: Also write the whole reward, the advantage and, for each token, its text, its
            log-prob as sampled and in training, and the entropy before it, so that
            `r1lit view` can colour tokens. It costs a forward pass of the responses written.
    """

    def __init__(
        self,
        dirpath: str | None = None,
        every_n_iterations: int = 10,
        num_responses: int = 8,
        num_problems: int | None = None,
        tokens: bool = False,
    ) -> None:
        check_at_least("every_n_iterations", every_n_iterations, 1)
        self._given = None if dirpath is None else Path(dirpath)
        self.every_n_iterations = every_n_iterations
        self.num_responses = num_responses
        self.num_problems = num_problems
        self.tokens = tokens
        self._num_problems_written = 0

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Find the folder."""
        self.path = folder_of(self._given, trainer, self) / "responses.jsonl"

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Drop the lines that a killed run wrote past its checkpoint, or all before a fresh run."""
        resumed_at = finished_iterations(trainer, pl_module)
        if trainer.is_global_zero:
            keep_records(
                self.path,
                lambda line: (
                    resumed_at > 0 and line["iteration"] < resumed_at + (line["split"] != "train")
                ),
            )

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Say how many responses' tokens are wanted."""
        is_rollout = isinstance(batch, PromptBatch)
        wanted = is_rollout and batch.iteration % self.every_n_iterations == 0
        self._want_tokens(pl_module, self.num_responses if wanted else 0)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Write the first responses of this rollout."""
        rollout = rollout_of(outputs)
        if rollout is not None and rollout.iteration % self.every_n_iterations == 0:
            tokenizer = tokenizer_of(pl_module)
            lines = records(rollout, rollout.iteration, "train", self.num_responses, tokenizer)
            self._add_tokens(lines, rollout, outputs, tokenizer)
            self._write(trainer, lines, first=True)

    def on_validation_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start counting problems; outside a fit, drop what this evaluation writes again."""
        self._num_problems_written = 0
        split = split_of(trainer)
        if split != "val" and trainer.is_global_zero:
            again = (split, (counted_iterations(pl_module) or 0))
            if self.path.exists():
                keep_records(self.path, lambda line: (line["split"], line["iteration"]) != again)

    def on_validation_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Say how many responses' tokens are wanted."""
        rows = 0
        if isinstance(batch, PromptBatch) and not trainer.sanity_checking:
            rows = self._problems_left(batch.num_prompts) * batch.group_size
        self._want_tokens(pl_module, rows)

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Write the responses of this batch."""
        rollout = rollout_of(outputs)
        if rollout is None or trainer.sanity_checking:
            return
        num_problems = self._problems_left(rollout.num_prompts)
        iteration = counted_iterations(pl_module) or 0
        num, tokenizer = num_problems * rollout.group_size, tokenizer_of(pl_module)
        lines = records(rollout, iteration, split_of(trainer), num, tokenizer)
        self._add_tokens(lines, rollout, outputs, tokenizer)
        self._write(trainer, lines, first=self._num_problems_written == 0)
        self._num_problems_written += num_problems

    on_test_epoch_start = on_validation_epoch_start
    on_test_batch_start = on_validation_batch_start
    on_test_batch_end = on_validation_batch_end

    def _problems_left(self, num_prompts: int) -> int:
        """Return how many problems of a batch are to be written."""
        if self.num_problems is None:
            return num_prompts
        return max(0, min(num_prompts, self.num_problems - self._num_problems_written))

    def _want_tokens(self, pl_module: pl.LightningModule, num_rows: int) -> None:
        if self.tokens and isinstance(pl_module, RollsOut):
            pl_module.num_token_rows = num_rows

    def _add_tokens(
        self, lines: list[Record], rollout: Rollout, outputs: Mapping[str, Any], tokenizer: Any
    ) -> None:
        if self.tokens and lines:
            found = token_records(rollout, outputs.get("tokens"), tokenizer)
            for line, more in zip(lines, found, strict=False):
                if line["split"] != "train":  # an evaluation computes no advantage
                    del more["advantage"]
                line |= more

    def _write(self, trainer: pl.Trainer, lines: list[Record], first: bool) -> None:
        if not lines or not trainer.is_global_zero:
            return
        append_records(self.path, lines)
        for logger in trainer.loggers if first else ():
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text(
                    f"{lines[0]['split']}/responses",
                    "\n\n---\n\n".join(as_markdown(line) for line in lines[: self.num_responses]),
                    lines[0]["iteration"],
                )


def tokenizer_of(pl_module: pl.LightningModule) -> PreTrainedTokenizerBase | None:
    """Return a module's tokenizer, or None."""
    return pl_module.tokenizer if isinstance(pl_module, HasTokenizer) else None


def records(
    rollout: Rollout,
    iteration: int,
    split: str,
    limit: int,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> list[Record]:
    """Return the first ``limit`` responses of a rollout as records.

    With the tokenizer, each has its prompt as the policy got it.
    """
    num_prompts = -(-max(limit, 0) // rollout.group_size)
    prompts = (
        [tokenizer.decode(list(p)) for p in rollout.prompts[:num_prompts]] if tokenizer else []
    )
    rewards_B = {name: reward.flatten().tolist() for name, reward in rollout.rewards.items()}
    return [
        {
            "iteration": iteration,
            "split": split,
            **response_record(response, sample=b % rollout.group_size),
            **({"prompt": prompts[b // rollout.group_size]} if prompts else {}),
            "rewards": {name: reward_B[b] for name, reward_B in rewards_B.items()},
        }
        for b, response in enumerate(rollout.responses[: max(limit, 0)])
    ]


def as_markdown(record: Record) -> str:
    """Return a record as TensorBoard shows it: four-space blocks keep tags and line breaks."""
    rewards = ", ".join(f"{name} {reward:g}" for name, reward in record["rewards"].items())
    block = "\n".join("    " + line for line in record["response"].splitlines())
    return (
        f"**{record['question']}** (gold: {record['answer']})\n\n{block}\n\n"
        f"{record['status']} · {rewards} · {record['num_tokens']} tokens"
    )


DIGITS = 4


def token_records(rollout: Rollout, values: TokenValues | None, tokenizer: Any) -> list[Record]:
    """Return the fields to add to the lines of a rollout's first responses.

    Args:
        rollout: of P groups.
        values: of its first rows; without them, all rows have the rollout's own values only.
        tokenizer: decodes the tokens.

    Returns:
        ``reward``, the weighted sum; ``advantage``, the mean over tokens; and ``tokens``: ``text``
        of each, ``logp`` as sampled, and where the training forward ran, ``logp_trainer`` and
        ``entropy`` in nats. ``advantage`` is in ``tokens`` too where it differs between them.
    """

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    num_rows = len(rollout.responses) if values is None else len(values.logp_BT)
    reward_B = rollout.reward_PG.flatten()
    return [
        {"reward": rounded(reward_B[row : row + 1])[0], **_of_row(rollout, values, row, decode)}
        for row in range(num_rows)
    ]


def _of_row(
    rollout: Rollout, values: TokenValues | None, row: int, decode: Callable[[list[int]], str]
) -> Record:
    length = int(rollout.length_B[row])
    tokens: Record = {
        "text": pieces(decode, rollout.response_BT[row, :length].tolist()),
        "logp": rounded(rollout.logp_sampler_BT[row, :length]),
    }
    if values is not None:
        tokens["logp_trainer"] = rounded(values.logp_BT[row, :length])
        tokens["entropy"] = rounded(values.entropy_BT[row, :length])
    advantage_T = rollout.advantage_BT[row, :length]
    mean = rounded(advantage_T.float().mean().reshape(1))[0] if length else 0.0
    advantages = rounded(advantage_T)
    if len(set(advantages)) > 1:
        tokens["advantage"] = advantages
    return {"advantage": mean, "tokens": tokens}


def rounded(values: Tensor) -> list[float]:
    """Return numbers with as many digits as a colour needs."""
    return [round(value, DIGITS) for value in values.float().tolist()]
