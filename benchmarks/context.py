"""One run of the benchmarks: its command line, and the context that every piece of work reads."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from benchmarks.results import Comparison, Entry, Report, Side, Step, alternate
from benchmarks.work import Precision, Work
from benchmarks.worker import Worker, WorkerError
from experiments.architectures import model_config
from r1lit.policy.flops import Shape, decode_seconds

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, kw_only=True)
class Context:
    """One run of the benchmarks: its folder of models, how often, how large, on what.

    ``limits`` holds the machine's own rates as ``limits.py`` reports them, none before a piece of
    work is about to begin.
    """

    folder: Path
    repeats: int = 3
    tiny: bool = False
    device: str = "cpu"
    vllm_python: str | None = None
    real_model: Path | None = None
    limits: dict[str, float] = field(default_factory=dict)

    @property
    def own(self) -> dict[str, Any]:
        """Settings of r1lit's side: tiny work is not worth compiling for."""
        return {"compile": False} if self.tiny else {}

    def show(self, line: str) -> None:
        """Print a line of progress."""
        say(f"  {line}")

    def alternate(
        self, ours: Side, theirs: Side, *, most: int | None = None, **options: Any
    ) -> Comparison:
        """Make steps by turns, ``most`` pairs at most; see ``results.alternate``."""
        repeats = self.repeats if most is None else min(self.repeats, most)
        return alternate(ours, theirs, repeats=repeats, show=self.show, **options)

    def steps(self, target: str, count: int, **settings: Any) -> list[Step]:
        """Return the steps of a side by itself, after one that does not count."""
        with Worker(target, **settings) as worker:
            worker.step()
            return [worker.step() for _ in range(count)]

    def shape(self, model: str) -> Shape:
        """Return the shape of what is measured under a model's name."""
        return shape_of("tiny" if self.tiny and model != "mini" else model)

    def flops_per_second(self, precision: Precision) -> float:
        """Return the measured rate of matrix products in the arithmetic's precision."""
        return 1e9 * self.limits["fp32_gflops" if precision == "fp32" else "bf16_gflops"]

    def mfu(self, flops: float, precision: Precision) -> Callable[[float], float]:
        """Return what makes seconds of ``flops`` a model-FLOP utilisation."""
        return partial(_share, flops / self.flops_per_second(precision))

    def roofline(
        self, model: str, work: Work, prompt_lengths: Sequence[int]
    ) -> Callable[[float], float]:
        """Return what makes a rollout's seconds its share of the roofline."""
        least = decode_seconds(
            self.shape(model),
            prompt_lengths,
            work.forced,
            bytes_per_number=4 if work.precision == "fp32" else 2,
            bytes_per_second=1e9 * self.limits["read_gb_per_s"],
            flops_per_second=self.flops_per_second(work.precision),
        )
        return partial(_share, least)


def _share(least: float, seconds: float) -> float:
    return round(least / seconds, 4)


@lru_cache
def shape_of(model: str) -> Shape:
    """Return a model's shape by its name."""
    return Shape.of(model_config(model))


Piece = Callable[[Context], list[Entry]]


def make_parser(doc: str | None, names: Sequence[str], repeats: int) -> argparse.ArgumentParser:
    """Return the options that both commands have; all of ``names`` are run if none is named."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=names)
    parser.add_argument("--repeats", type=int, default=repeats, help="pairs of steps, at most")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, to try the harness")
    parser.add_argument("--output", type=Path, help="the JSON to write")
    return parser


def run_pieces(
    pieces: Mapping[str, Piece],
    options: argparse.Namespace,
    command: str,
    title: str,
    arguments: Sequence[str] | None,
    minutes: float = float("inf"),
    **settings: Any,
) -> None:
    """Run pieces of work, none of which begins after ``minutes``; say at the end which failed.

    ``settings`` are the context's, besides the options of ``make_parser``.
    """
    started = time.perf_counter()
    typed = " ".join(sys.argv[1:] if arguments is None else arguments)
    device = settings.get("device", "cpu")
    path = options.output or RESULTS / f"{command}{'-tiny' if options.tiny else ''}.json"
    report = Report(path, title, f"python -m benchmarks.{command} {typed}", device)
    failed = []
    with tempfile.TemporaryDirectory(prefix="r1lit-bench-models-") as folder:
        context = Context(
            folder=Path(folder), repeats=options.repeats, tiny=options.tiny, **settings
        )
        for name, piece in pieces.items():
            if time.perf_counter() - started > 60 * minutes:
                say(f"{name} is left out: {minutes:g} minutes are over")
            elif not measure(name, piece, context, report):
                failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the other results are in {report.path}")


def measure(name: str, piece: Piece, context: Context, report: Report) -> bool:
    """Run a piece of work and write its entries; a side that died fails this piece alone.

    The machine's limits are measured right before it: what a shared machine has to give changes
    within minutes.
    """
    started = time.perf_counter()
    say(name)
    try:
        limits = measure_limits(context.device, context.tiny)
        say(f"  the machine's limits now: {limits}")
        entries = piece(replace(context, limits=limits))
    except (WorkerError, ValueError) as error:
        say(f"{name} failed: {error}")
        return False
    report.add(entries, limits)
    for entry in entries:
        say(f"  {entry.work}, {entry.model}, {entry.peer}: {entry.ratio_median:.2f}")
    say(f"  took {time.perf_counter() - started:.0f} s")
    return True


def measure_limits(device: str, tiny: bool) -> dict[str, float]:
    """Measure the machine's limits in a process of their own."""
    with Worker("benchmarks.limits:run", device=device, tiny=tiny) as worker:
        limits = worker.step()
    return {name: round(limits[name], 2) for name in limits if name.endswith(("flops", "per_s"))}


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)
