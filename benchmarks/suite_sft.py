"""Supervised training on the same documents, beside TRL's ``SFTTrainer``."""

from __future__ import annotations

from benchmarks import peers, sizes
from benchmarks.context import Context, shape_of
from benchmarks.flops import training_flops
from benchmarks.results import Entry, compare
from benchmarks.timing import alternate_alone
from benchmarks.worker import Worker


def sft_135m(context: Context) -> list[Entry]:
    """Documents as long as R1's chains, 135M."""
    work = sizes.sft_work("135M", context.folder, tiny=context.tiny)
    comparison = alternate_alone(
        lambda: Worker("benchmarks.ours_sft:run_updates", work=work),
        lambda: Worker("benchmarks.trl_sft:run_updates", work=work, **peers.TRL_SFT),
        repeats=min(context.repeats, 2),
        show=context.show,
    )
    entry = compare(
        comparison,
        work="SFT, the same six documents an update, lengths of R1's chains",
        model="135M",
        peer="TRL SFTTrainer",
        goal=1.5,
        unit="s per 1,000 tokens",
        key="seconds_per_1000_tokens",
        settings=work.describe() | {"trl": peers.TRL_SFT},
    )
    shape = shape_of("tiny" if context.tiny else "135M")
    per_1000 = 1000 * training_flops(shape, work.lengths) / sum(work.lengths)
    rate = context.flops_per_second(work.precision)
    entry.extra["mfu_ours"] = round(per_1000 / entry.ours / rate, 4)
    entry.extra["mfu_theirs"] = round(per_1000 / entry.theirs / rate, 4)
    entry.extra["tokens_per_s_ours"] = round(1000 / entry.ours, 1)
    entry.extra["tokens_per_s_theirs"] = round(1000 / entry.theirs, 1)
    return [entry]
