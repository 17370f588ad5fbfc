"""Shares of the roofline that the parts of an iteration reach on this CPU, in float32.

    python -m benchmarks.roofline --threads 1      # rows of other numbers of threads stay
    python -m benchmarks.roofline --tiny

The iteration is that of ``configs/mini/aha.yaml``: 16 x 16 responses, with the lengths of
``lengths.json``, four updates of 64 rows. A part's roofline is the least time that arithmetic or
memory allows; the optimiser's is memory's alone. Arithmetic goes at the best rate of square
products just before, memory at the best rate of a sum in any repeat. The products of the policy's
linear layers are measured alone too, in three ways: as PyTorch makes them (MKL), and with weights
packed once for oneDNN and for MKL, which is what ``torch.compile`` does where weights are frozen.

Each repeat measures the peak, every part and every product, one after the other; the table has
medians over repeats. One thread is timed by its CPU seconds, so that other processes count less;
several by the clock, and then nothing else may run.

N tokens of a product
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from transformers import PreTrainedTokenizerBase

from benchmarks import problems
from benchmarks.context import RESULTS
from benchmarks.limits import bandwidth_gb
from benchmarks.ours import ForcedLengths
from benchmarks.results import ROOT, commit, installed, machine
from benchmarks.sizes import grpo_work
from benchmarks.work import Work
from r1lit.batches import PromptBatch, Rollout
from r1lit.data.loaders import PromptLoader, ShuffledSampler
from r1lit.data.packing import encode_prompts, render_prompt
from r1lit.device import threads
from r1lit.files import replace_json
from r1lit.modules.updates import micro_batches
from r1lit.policy import LogProbs, ModelSource, Policy, load_policy, load_tokenizer
from r1lit.policy.flops import Shape, decode_seconds, update_flops
from r1lit.policy.loading import load_config
from r1lit.rollout import ModelSpec, Sampling
from r1lit.rollout.model_inputs import model_inputs
from r1lit.rollout.worker import RolloutWorker, Timings
from r1lit.worlds import WorldSearch

FILE = RESULTS / "roofline.json"
MODEL = ROOT / "models" / "search"
MICRO_BATCH_TOKENS = 8192
PEAK_SIZES = (1024, 2048)
NUMS_TOKENS = (8192, 256, 64, 16)
"""Tokens of a micro-batch, and rows that decode together: all of them, fewer, the last ones."""
LEAST_S = 0.05


def clock() -> float:
    """Return CPU seconds of one thread, or else the wall's."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def seconds_of(function: Callable[[], object], repeats: int = 1) -> float:
    """Return the mean seconds of some calls."""
    started = clock()
    for _ in range(repeats):
        function()
    return (clock() - started) / repeats


def peak_flops() -> float:
    """Return the best rate of square products."""
    rates = []
    for size in PEAK_SIZES:
        a, b = torch.randn(size, size), torch.randn(size, size)
        product = partial(linear, a, b)
        product()
        rates += [2.0 * size**3 / seconds_of(product) for _ in range(5)]
    return max(rates)


# parts of an iteration


def prompts_of_aha(work: Work, tokenizer: PreTrainedTokenizerBase) -> PromptBatch:
    """Return the prompts of the first iteration, of problems as the recipe has them."""
    asked = WorldSearch(split="train", num_problems=384).problems()
    options = problems.SMALL_WORLD
    texts = [
        render_prompt(tokenizer, options.template, options.wording, problem.question)
        for problem in asked
    ]
    loader = PromptLoader(
        asked,
        encode_prompts(tokenizer, texts),
        ShuffledSampler(len(asked), work.num_prompts, work.seed),
        group_size=work.group_size,
        num_batches=1,
    )
    return next(iter(loader))


class Parts:
    """The parts of an iteration: each call makes one, and returns its seconds."""

    def __init__(self, work: Work, compile: bool) -> None:
        self.work = work
        self.policy: Policy = load_policy(work.model)
        self.policy.train()
        self.optimizer = torch.optim.AdamW(
            self.policy.parameters(), lr=0.0, weight_decay=0.0, fused=True
        )
        tokenizer = load_tokenizer(work.model)
        engine = ForcedLengths(work.forced, compile=compile, max_rows=256)
        engine.bind(ModelSpec(name=work.model, tokenizer=tokenizer, policy=self.policy))
        self.batch = prompts_of_aha(work, tokenizer)
        self.worker = RolloutWorker(
            engine=engine,
            grader=problems.make_grader(work),
            rewards=problems.rewards(work),
            tokenizer=tokenizer,
            sampling=Sampling(temperature=1.0, max_tokens=work.max_tokens),
            seed=work.seed,
            device=torch.device("cpu"),
            training=True,
        )
        self.collected: Rollout | None = None

    def rollout(self) -> float:
        """Sample the responses, and grade them."""

        def collect() -> None:
            self.collected = self.worker.collect(
                self.batch, range(self.batch.num_prompts), Timings()
            )

        return seconds_of(collect)

    def chunks(self) -> Iterator[Tensor]:
        """Yield the rows of each micro-batch of the iteration's updates."""
        assert self.collected is not None
        for rows_b in torch.arange(self.work.num_rows).split(self.work.train_batch_size):
            parts = micro_batches(
                self.collected, rows_b, MICRO_BATCH_TOKENS, packed=True, skip=False
            )
            yield from (rows_b[part] for part in parts)

    def loss(self, rows_b: Tensor) -> Tensor:
        """Return a loss of the log-probs of some rows."""
        assert self.collected is not None
        output = self.policy(model_inputs(self.collected, rows_b), LogProbs(temperature=1.0))
        return output.logp_K.sum()

    def forward(self) -> float:
        """Compute the log-probs of all responses, as a reference does."""

        @torch.no_grad()
        def compute() -> None:
            for rows_b in self.chunks():
                self.loss(rows_b)

        return seconds_of(compute)

    def backward(self) -> tuple[float, float]:
        """Compute gradients of all responses: seconds of the forward part, of the backward one."""
        forward = backward = 0.0
        for rows_b in self.chunks():
            started = clock()
            loss = self.loss(rows_b)
            between = clock()
            loss.backward()
            forward, backward = forward + between - started, backward + clock() - between
        return forward, backward

    def optimise(self) -> float:
        """Make the steps of the iteration's updates."""
        return seconds_of(self.optimizer.step) * self.work.updates_per_iteration


def least_seconds(work: Work, prompts: Sequence[int], peak: float, read: float) -> dict[str, float]:
    """Return each part's roofline in seconds."""
    shape = Shape.of(load_config(ModelSource(work.model)))
    update = update_flops(shape, prompts, work.forced)
    num_bytes = 7 * 4 * shape.num_parameters  # reads p, g, m, v; writes p, m, v
    return {
        "rollout": decode_seconds(
            shape,
            prompts,
            work.forced,
            bytes_per_number=4,
            bytes_per_second=read,
            flops_per_second=peak,
        ),
        "forward without gradients": update / 3 / peak,
        "forward": update / 3 / peak,
        "backward": update * 2 / 3 / peak,
        "optimiser": work.updates_per_iteration * num_bytes / read,
    }


def seconds_of_parts(parts: Parts) -> dict[str, float]:
    """Make an iteration; return each part's seconds."""
    seconds = {"rollout": parts.rollout(), "forward without gradients": parts.forward()}
    seconds["forward"], seconds["backward"] = parts.backward()
    seconds["optimiser"] = parts.optimise()
    return seconds


# products alone


def products(policy: Policy) -> list[nn.Linear]:
    """Return the linear layers of one decoder layer, and the head."""
    layers = [x for x in policy.model.modules() if isinstance(x, nn.Linear)]
    num_layers = policy.model.config.num_hidden_layers
    return [*layers[: (len(layers) - 1) // num_layers], layers[-1]]


@torch.no_grad()
def shares_of_products(weights: Sequence[Tensor], num_tokens: int, peak: float) -> dict[str, float]:
    """Return the share of the peak that the products of N tokens reach together, in each way."""
    flops = sum(2.0 * num_tokens * weight.numel() for weight in weights)
    repeats = max(1, round(LEAST_S * peak / flops))
    inputs = [torch.randn(num_tokens, weight.shape[1]) for weight in weights]
    onednn, mkl = torch.ops.mkldnn, torch.ops.mkl
    for_onednn = [onednn._reorder_linear_weight(w, num_tokens) for w in weights]
    for_mkl = [mkl._mkl_reorder_linear_weight(w, num_tokens) for w in weights]

    def plain() -> None:
        for x, weight in zip(inputs, weights, strict=True):
            linear(x, weight)

    def packed_by_onednn() -> None:
        for x, packed in zip(inputs, for_onednn, strict=True):
            onednn._linear_pointwise(x, packed, None, "none", [], "")

    def packed_by_mkl() -> None:
        for x, packed, weight in zip(inputs, for_mkl, weights, strict=True):
            mkl._mkl_linear(x, packed, weight, None, num_tokens)

    shares = {}
    ways = {"PyTorch": plain, "oneDNN packed": packed_by_onednn, "MKL packed": packed_by_mkl}
    for name, way in ways.items():
        way()
        shares[name] = flops / seconds_of(way, repeats) / peak
    return shares


# the table


def measure(num_threads: int, repeats: int, tiny: bool) -> list[dict[str, Any]]:
    """Return the rows of the table."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    peaks, reads, seconds = [], [], []
    with tempfile.TemporaryDirectory() as folder, threads(num_threads):
        size = (16, 16, 512)
        work = grpo_work("mini", Path(folder), size, "fp32", tiny=tiny, train_batch_size=64)
        work = replace(work, model=str(MODEL))
        parts = Parts(work, compile=not tiny)
        parts.rollout()  # compiles
        weights = [layer.weight.detach() for layer in products(parts.policy)]
        for repeat in range(repeats):
            peaks.append(peak_flops())
            reads.append(1e9 * bandwidth_gb("cpu", 64 if tiny else 256)["read_gb_per_s"])
            seconds.append(seconds_of_parts(parts))
            for num_tokens in NUMS_TOKENS:
                for way, share in shares_of_products(weights, num_tokens, peaks[-1]).items():
                    found[f"products of {num_tokens} tokens", way].append(share)
            print(f"repeat {repeat + 1} of {repeats}: {peaks[-1] / 1e9:.0f} GFLOP/s", flush=True)
    prompts, read = [len(prompt) for prompt in parts.batch.prompts], max(reads)
    of_parts: dict[tuple[str, str], list[float]] = defaultdict(list)
    for peak, took in zip(peaks, seconds, strict=True):
        for name, least in least_seconds(work, prompts, peak, read).items():
            of_parts[name, ""].append(least / took[name])
            of_parts[f"{name}, seconds", ""].append(took[name])
    found = of_parts | found
    common = {
        "threads": num_threads,
        "peak_gflops": round(median(peaks) / 1e9, 1),
        "read_gb_per_s": round(read / 1e9, 1),
        "machine": machine("cpu").rpartition(",")[0],
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": installed()["torch"],
        "commit": commit(),
        "date": datetime.now().isoformat(" ", "minutes"),
    }
    return [
        {"part": part, "way": way, "median": round(median(all_), 3), "least": round(min(all_), 3),
         "most": round(max(all_), 3), "repeats": len(all_), **common}
        for (part, way), all_ in found.items()
    ]  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return the shares as a Markdown table."""
    seconds = {
        (row["threads"], row["part"].removesuffix(", seconds")): row["median"]
        for row in rows
        if row["part"].endswith(", seconds")
    }
    lines = [
        "| threads | part | by | share of the roofline (least–most) | seconds |",
        "|---:|---|---|---:|---:|",
    ]
    for row in rows:
        if row["part"].endswith(", seconds"):
            continue
        took = seconds.get((row["threads"], row["part"]))
        share = f"{row['median']:.2f} ({row['least']:.2f}–{row['most']:.2f})"
        lines.append(
            f"| {row['threads']} | {row['part']} | {row['way'] or 'r1lit'} | {share} |"
            f" {'' if took is None else f'{took:.2f}'} |"
        )
    return "\n".join(lines)


def main(args: Sequence[str] | None = None) -> None:
    """Measure, and write ``results/roofline.json``; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="a small size, which is not written")
    given = parser.parse_args(args)
    rows = measure(given.threads, given.repeats, given.tiny)
    if not given.tiny:
        before = json.loads(FILE.read_text()) if FILE.exists() else []
        rows = [row for row in before if row["threads"] != given.threads] + rows
        replace_json(FILE, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
