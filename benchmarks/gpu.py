"""r1lit beside TRL on one CUDA device: 0.5B to 1.5B architectures, random weights, bfloat16.

    python -m benchmarks.gpu                         # within eight minutes
    python -m benchmarks.gpu --device cpu --tiny     # the same code at tiny sizes, to try it

GRPO iteration (TRL generates with Hugging Face ``generate`` or with continuous batching) and packed
supervised training, with model-FLOP utilisation, share of the decoding roofline and peak device
memory, and beside the rates that others publish. Results go to ``results/gpu.json`` and ``gpu.md``
after each piece of work; a time limit leaves out what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks import sizes
from benchmarks.context import Context, make_parser, run_pieces
from benchmarks.results import Comparison, Entry, compare, of_numbers
from benchmarks.suite_training import compare_sft, grpo_entries, iterate, prompt_lengths
from benchmarks.work import Precision

ORDER = (
    ("grpo", "1.5B"), ("sft", "0.6B"), ("batching", "0.5B"), ("grpo", "0.5B"), ("sft", "1.5B")
)  # fmt: skip
MODELS = tuple(sorted({model for _, model in ORDER}))
PRECISION: Precision = "bf16"
OWN: dict[str, Any] = {"micro_batch_tokens": 16384}
TRL_GRPO: dict[str, Any] = {"micro_rows": 16}
TRL_SFT: dict[str, Any] = {"micro_rows": 1, "packing_strategy": "bfd"}
BATCHING: dict[str, Any] = {"use_transformers_continuous_batching": True}
# tokens a second of an update on one H100, as published: prime-rl's SFT at rows of 16,384 tokens
# (MFU 17 %) and verl's GRPO update (MFU 12.6 %)
PUBLISHED = {
    ("SFT", "0.6B"): ("prime-rl, published", 26_000),
    ("GRPO update", "1.5B"): ("verl, published", 10_900),
}


def grpo(context: Context, model: str, **peer: Any) -> list[Entry]:
    """GRPO iteration: 16 x 8 responses of up to 256 tokens, one update."""
    size, tiny = (16, 8, 256), context.tiny
    work = sizes.grpo_work(model, context.folder, size, PRECISION, tiny, device=context.device)
    theirs = {**TRL_GRPO, **peer}
    comparison = iterate(context, work, theirs, OWN)
    generation = "continuous batching" if peer else "HF generate"
    labels: dict[str, Any] = {"model": model, "peer": f"TRL GRPOTrainer, {generation}"}
    rows = [
        ("GRPO iteration, 16 x 8, up to 256 tokens", "seconds", 1.0),
        ("its rollout", "rollout_s", 1.0),
        ("its update", "update_s", 1.0),
    ]
    entries = grpo_entries(context, comparison, work, rows, theirs=theirs, **labels)
    tokens = sum(work.forced) + sum(prompt_lengths(work))
    rate = published(context, "GRPO update", model, 1000 * entries[-1].ours / tokens)
    return [*entries, peak(comparison, "GRPO iteration", labels), *rate]


def batching(context: Context, model: str) -> list[Entry]:
    """The same, where TRL generates with transformers' continuous batching."""
    return grpo(context, model, **BATCHING)


def published(context: Context, work: str, model: str, seconds: float) -> list[Entry]:
    """Return our ``seconds`` per 1,000 tokens beside a published rate, where there is one."""
    if context.tiny or (work, model) not in PUBLISHED:
        return []
    peer, rate = PUBLISHED[work, model]
    labels: dict[str, Any] = {"model": model, "peer": peer, "goal": 1.0}
    labels |= {"work": f"{work}, beside a published rate", "unit": "s per 1,000 tokens"}
    return [of_numbers([seconds], [1000 / rate], **labels)]


def sft(context: Context, model: str) -> list[Entry]:
    """Supervised training: the same documents in every update of both sides."""
    work = sizes.sft_work(
        model, context.folder, PRECISION, context.tiny,
        num_documents=24, max_seq_len=16_384, device=context.device,
    )  # fmt: skip
    title = "the same 24 documents an update, lengths of R1's chains, rows of 16,384 tokens"
    comparison, entry = compare_sft(context, work, TRL_SFT, OWN, model=model, title=title, goal=1.0)
    rate = published(context, "SFT", model, entry.ours)
    return [entry, peak(comparison, "SFT", {"model": model, "peer": entry.peer}), *rate]


def peak(comparison: Comparison, of: str, labels: dict[str, Any]) -> Entry:
    """Return the peak memory of both sides: the device's, or the process's where there is none."""
    key = "peak_device_mb" if "peak_device_mb" in comparison.ours[0] else "peak_rss_mb"
    work = f"peak memory, {of}"
    return compare(comparison, work=work, unit="MB", key=key, goal=1.0, **labels)


SUITE: dict[str, Callable[..., list[Entry]]] = {"grpo": grpo, "batching": batching, "sft": sft}


def main(arguments: list[str] | None = None) -> None:
    """Run the pieces asked for."""
    parser = make_parser(__doc__, list(SUITE), repeats=2)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--minutes", type=float, default=8, help="start no new piece after these")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device: no CUDA device is at hand; --device cpu --tiny tries the harness")
    pieces = {
        f"{name} {model}": partial(SUITE[name], model=model)
        for name, model in ORDER
        if name in (options.only or SUITE) and model in options.models
    }
    title = "r1lit beside TRL on one GPU"
    run_pieces(pieces, options, "gpu", title, arguments, options.minutes, device=options.device)


if __name__ == "__main__":
    main()
