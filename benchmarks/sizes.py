"""The sizes of the pieces of work: full for the results, tiny to try the harness."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.lengths import chain_lengths, response_lengths
from benchmarks.models import model_directory
from benchmarks.work import Precision, SupervisedWork, Work

NUM_CHAINS = 6  # 10,965 tokens, 3 rows of 4,096


def grpo_work(
    model: str,
    folder: Path,
    *,
    prompts: int,
    group: int,
    max_tokens: int,
    precision: Precision,
    tiny: bool = False,
    **settings: object,
) -> Work:
    """Return rollouts of recorded lengths, and the updates on them."""
    if tiny:
        model = "mini" if model == "mini" else "tiny"
        prompts, group, max_tokens = min(prompts, 2), 4, 16
        if "train_batch_size" in settings:
            settings["train_batch_size"] = 4
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    return Work(
        model=model_directory(model, folder, dtype),
        num_prompts=prompts,
        group_size=group,
        max_tokens=max_tokens,
        lengths=response_lengths(prompts, group, max_tokens),
        precision=precision,
        **{"train_batch_size": prompts * group, **settings},  # type: ignore[arg-type]
    )


def grpo_mini(folder: Path, precision: Precision = "bf16-mixed", tiny: bool = False) -> Work:
    """16 x 16 responses of the shipped base under the settings of ``configs/mini/r1_zero.yaml``."""
    return grpo_work(
        "mini",
        folder,
        prompts=16,
        group=16,
        max_tokens=512,
        precision=precision,
        tiny=tiny,
        train_batch_size=64,
        learning_rate=1.5e-4,
        max_grad_norm=0.05,
        beta=0.05,
    )


def grpo_135m(folder: Path, precision: Precision = "bf16-mixed", tiny: bool = False) -> Work:
    """4 x 8 responses, one update, no reference: what TRL does by default."""
    return grpo_work(
        "135M", folder, prompts=4, group=8, max_tokens=256, precision=precision, tiny=tiny
    )


def rollout_mini(folder: Path, precision: Precision = "fp32", tiny: bool = False) -> Work:
    """16 x 16 responses of the shipped base."""
    return grpo_work(
        "mini", folder, prompts=16, group=16, max_tokens=512, precision=precision, tiny=tiny
    )


def rollout_135m(folder: Path, precision: Precision = "bf16", tiny: bool = False) -> Work:
    """64 responses of a 135M model, in bfloat16."""
    return grpo_work(
        "135M", folder, prompts=4, group=16, max_tokens=256, precision=precision, tiny=tiny
    )


def even_work(
    model: str,
    folder: Path,
    *,
    prompts: int,
    group: int,
    max_tokens: int,
    precision: Precision = "bf16-mixed",
) -> Work:
    """Return responses that are all as long as they may be, and one update on them."""
    return Work(
        model=model_directory(model, folder),
        num_prompts=prompts,
        group_size=group,
        max_tokens=max_tokens,
        lengths=(max_tokens,) * (prompts * group),
        precision=precision,
        train_batch_size=prompts * group,
    )


def update_05b(
    folder: Path, precision: Precision = "bf16-mixed", tiny: bool = False, *, small: bool = False
) -> Work:
    """16 responses of 1,024 tokens of a 0.5B model, one update; ``small`` has 4 of them."""
    return even_work(
        "tiny-qwen" if tiny else "0.5B",
        folder,
        prompts=1 if small else 4,
        group=4,
        max_tokens=32 if tiny else 1024,
        precision=precision,
    )


def update_135m(folder: Path, precision: Precision = "bf16-mixed", tiny: bool = False) -> Work:
    """8 responses of 256 tokens of a 135M model, one update."""
    model, max_tokens = ("tiny", 32) if tiny else ("135M", 256)
    return even_work(model, folder, prompts=2, group=4, max_tokens=max_tokens, precision=precision)


def sft_work(
    model: str,
    folder: Path,
    *,
    max_seq_len: int = 4096,
    num_documents: int = NUM_CHAINS,
    precision: Precision = "bf16-mixed",
    tiny: bool = False,
    device: str = "cpu",
) -> SupervisedWork:
    """Documents as long as the first of R1's chains, all in one update."""
    if tiny:
        model, max_seq_len, num_documents = "tiny", 64, 12
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    lengths = chain_lengths(num_documents, max_seq_len * 64 if tiny else max_seq_len)
    if tiny:
        lengths = tuple(max(3, length // 100) for length in lengths)
        lengths = tuple(min(length, max_seq_len) for length in lengths)
    return SupervisedWork(
        model=model_directory(model, folder, dtype),
        lengths=lengths,
        max_seq_len=max_seq_len,
        precision=precision,
        device=device,
    )
