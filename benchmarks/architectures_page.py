"""docs/ARCHITECTURES.md, from what ``benchmarks.architectures`` has measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

PAGE = Path(__file__).parents[1] / "docs" / "ARCHITECTURES.md"
PATHS = ("packed", "padded", "refused", "not made")
TEXT = """# Architectures

Made by `python -m benchmarks.architectures` with transformers {transformers} and PyTorch {torch}, on a CPU; checked by
`tests/speed/test_architectures.py` (`make test-slow`). It covers every causal language model of transformers that only decodes text.
Each is built at a tiny size with random weights, saved, and loaded as a run loads it. It is compared with the same model as Hugging Face loads it,
which reads one row at a time, without padding and without a cache.

{counts}

| path | what it means |
|---|---|
| packed | updates over packed tokens: no padding, a group's prompt once, no full logits ([PERFORMANCE.md](PERFORMANCE.md)) |
| padded | the model's own forward pass over padded rows; one document per row in supervised training and as a teacher |
| refused | an error at loading, with the reason |

The path is tested when a policy is loaded, always in float32, and printed in one line if it is not "packed". How the model decodes is tested before the first
rollout, against a plain forward pass with prompts of several lengths. It decodes with shared prompts, with Hugging Face's caches, or, if those give other log-probs, without a cache (slow).

- Rotary embeddings that depend on the longest row of a call (`longrope`, `dynamic`) are correct up to the length where they change. Longer rows are refused, in training and in
  rollouts. A `config.json` with `short_factor` equal to `long_factor` makes them constant.
- Dropout and other noise of training mode are off in reinforcement learning (`dropout: true` keeps them). All numbers here are in training mode.
- Under `bf16-mixed`, routers and experts decode in the dtype that training computes them in: routers in bfloat16, and experts in float32 if Hugging Face's grouped product, which autocast does not
  know, computes them. A token whose two best experts are nearly equal may go to different experts in training and in the rollout. Most of a mixture's mismatch has this cause.

The columns, from left to right:

- the maximum difference of a log-prob (nats) and the relative difference of all gradients, from the plain forward pass in float32
- the same for bf16-mixed, against float32: ours, then Hugging Face's own
- how much other documents of a row change a log-prob (nats)
- how the model decodes, and whether its greedy responses equal those of `generate`
- the sampler's mismatch with training (nats): maximum in float32, mean in bf16-mixed

`<` means below {smallest:g}.

| architecture | path | logp fp32 | grad fp32 | logp bf16, HF's | grad bf16, HF's | documents | decodes | generate | mismatch fp32 | bf16 |
|---|---|---|---|---|---|---|---|---|---|---|
{table}

## Why not packed

| architectures | why |
|---|---|
{reasons}

Where `generate` differs, our greedy responses are still the argmax of a plain forward pass. Those of `generate` are not, because its cache does not agree with the model's own forward pass. hrm_text
repeats its layers many times, so rounding alone moves its log-probs by nats in bf16 and by 1e-4 in float32.
"""  # noqa: E501
SMALLEST = 1e-4


def page(lines: Sequence[dict[str, Any]]) -> str:
    """Return the page as Markdown."""
    counts = Counter(line["path"] for line in lines)
    said = {
        "packed": "packed",
        "padded": "padded",
        "refused": "refused",
        "not made": "whose defaults make no tiny model (left out)",
    }
    reasons: dict[str, list[str]] = {}
    for line in lines:
        if line["why"]:
            reasons.setdefault(f"{line['path']}: {line['why']}", []).append(line["name"])
    measured = [line for line in lines if "logp_fp32" in line]
    order = sorted(measured, key=lambda line: (PATHS.index(line["path"]), line["name"]))
    return TEXT.format(
        transformers=transformers.__version__,
        torch=torch.__version__.split("+")[0],
        counts=f"{len(lines)} cases: "
        + ", ".join(f"{counts[path]} {said[path]}" for path in PATHS if counts[path])
        + ". None is silently wrong.",
        smallest=SMALLEST,
        table="\n".join(_row(line) for line in order),
        reasons="\n".join(
            f"| {', '.join(names)} | {reason.replace('|', '/')} |"
            for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1]))
        ),
    )


def _row(line: dict[str, Any]) -> str:
    cells = [
        line["name"],
        line["path"],
        _number(line["logp_fp32"]),
        _number(line["gradient_fp32"]),
        f"{_number(line['logp_bf16_ours'])}, {_number(line['logp_bf16_plain'])}",
        f"{_number(line['gradient_bf16_ours'])}, {_number(line['gradient_bf16_plain'])}",
        _number(line["leak"]),
        line["way"],
        line["generate"],
        _number(line["mismatch_fp32"]),
        _number(line["mismatch_bf16"]),
    ]
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    """Return a figure of two digits; below ``SMALLEST`` it varies with the machine.

    >>> _number(0.0312), _number(4.8e-7)
    ('0.031', '<')
    """
    return "<" if value < SMALLEST else f"{value:.2g}"
