"""The sizes of the pieces of work: full for the results, tiny to try the harness.

P prompts   G responses per prompt   T tokens of a response at most
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.lengths import chain_lengths, response_lengths
from benchmarks.models import model_directory
from benchmarks.work import Precision, SupervisedWork, Work, weights_dtype

NUM_CHAINS = 6  # 10,965 tokens, 3 rows of 4,096
MIXED: Precision = "bf16-mixed"
Size = tuple[int, int, int]
"""P, G and T."""


def grpo_work(
    model: str, folder: Path, size: Size, precision: Precision, tiny: bool = False, **settings: Any
) -> Work:
    """Return rollouts of recorded lengths, and the updates on them; one if nothing else is set."""
    if tiny:
        model = "mini" if model == "mini" else "tiny"
        size = min(size[0], 2), 4, 16
        if "train_batch_size" in settings:
            settings["train_batch_size"] = 4
    settings["lengths"] = response_lengths(*size)
    return even_work(model, folder, size, precision, **settings)


def even_work(
    model: str, folder: Path, size: Size, precision: Precision = MIXED, **settings: Any
) -> Work:
    """Return responses that are all as long as they may be, and one update on them.

    ``settings`` are fields of the work, which may say otherwise.
    """
    prompts, group, max_tokens = size
    whole = {"lengths": (max_tokens,) * (prompts * group), "train_batch_size": prompts * group}
    return Work(
        model=model_directory(model, folder, weights_dtype(precision)),
        num_prompts=prompts,
        group_size=group,
        max_tokens=max_tokens,
        precision=precision,
        **{**whole, **settings},
    )


def grpo_mini(folder: Path, precision: Precision = MIXED, tiny: bool = False) -> Work:
    """16 x 16 responses of the shipped base under the settings of ``configs/mini/r1_zero.yaml``."""
    shipped = {"learning_rate": 1.5e-4, "max_grad_norm": 0.05, "beta": 0.05}
    size = (16, 16, 512)
    return grpo_work("mini", folder, size, precision, tiny, train_batch_size=64, **shipped)


def grpo_135m(folder: Path, precision: Precision = MIXED, tiny: bool = False) -> Work:
    """4 x 8 responses, one update, no reference: what TRL does by default."""
    return grpo_work("135M", folder, (4, 8, 256), precision, tiny)


def rollout_mini(folder: Path, precision: Precision = "fp32", tiny: bool = False) -> Work:
    """16 x 16 responses of the shipped base."""
    return grpo_work("mini", folder, (16, 16, 512), precision, tiny)


def rollout_135m(folder: Path, precision: Precision = "bf16", tiny: bool = False) -> Work:
    """64 responses of a 135M model, in bfloat16."""
    return grpo_work("135M", folder, (4, 16, 256), precision, tiny)


def update_05b(
    folder: Path, precision: Precision = MIXED, tiny: bool = False, *, prompts: int = 4
) -> Work:
    """16 responses of 1,024 tokens of a 0.5B model, one update."""
    model, max_tokens = ("tiny-qwen", 32) if tiny else ("0.5B", 1024)
    return even_work(model, folder, (prompts, 4, max_tokens), precision)


def update_135m(folder: Path, precision: Precision = MIXED, tiny: bool = False) -> Work:
    """8 responses of 256 tokens of a 135M model, one update."""
    model, max_tokens = ("tiny", 32) if tiny else ("135M", 256)
    return even_work(model, folder, (2, 4, max_tokens), precision)


def real_work(model: str) -> Work:
    """The iteration of ``configs/real.yaml``, whose responses end by themselves."""
    return Work(
        model=model, problems="sums", temperature=0.6, num_prompts=8, group_size=16, max_tokens=16,
        lengths=None, precision=MIXED, train_batch_size=64, learning_rate=3e-5, betas=(0.9, 0.95),
    )  # fmt: skip


def sft_work(
    model: str,
    folder: Path,
    precision: Precision = MIXED,
    tiny: bool = False,
    *,
    max_seq_len: int = 4096,
    num_documents: int = NUM_CHAINS,
    device: str = "cpu",
) -> SupervisedWork:
    """Documents as long as the first of R1's chains, all in one update."""
    if tiny:
        model, max_seq_len, num_documents = "tiny", 64, 12
    lengths = chain_lengths(num_documents, max_seq_len * 64 if tiny else max_seq_len)
    if tiny:
        lengths = tuple(min(max(3, length // 100), max_seq_len) for length in lengths)
    return SupervisedWork(
        model=model_directory(model, folder, weights_dtype(precision)),
        lengths=lengths,
        max_seq_len=max_seq_len,
        precision=precision,
        device=device,
    )
