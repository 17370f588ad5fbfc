"""Runs R1's pipeline: ``python -m experiments.r1``; ``make r1`` calls it.

    python -m experiments.r1 [pipeline.yaml] [--from STEP] [--only STEP ...] [--seed N] [--dry-run]
    python -m experiments.r1 --scale small_real [--dry-run]    # one GPU; with each step's cost
    python -m experiments.r1 --scale full [--dry-run]          # the paper's sizes

Steps that are finished, with the same configuration and inputs, are skipped; an interrupted one
goes on; one whose configuration or inputs have changed is made anew, and so is what reads what it
wrote, if that came out differently. The manifest, ``<run>/manifest.json``, has what each step read,
wrote, cost and scored. What a step prints is in ``<run>/logs/<step>.log``. The digest of a step is
of its configuration and of what it reads, not of the code: after a change of code say ``--from``.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.launch import command_line, reported
from experiments.pipeline import read_pipeline
from experiments.runner import check_configs, run_pipeline, unfinished, verdicts_of

HERE = Path(__file__).parent
PIPELINES = {
    "mini": HERE / "pipeline.yaml",
    "small_real": HERE / "small_real.yaml",
    "full": HERE / "full.yaml",
}


@reported("r1")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 1 if a step failed, 2 for bad input, 130 stopped."""
    parser = command_line("experiments.r1", __doc__)
    parser.add_argument("pipeline", nargs="?", type=Path, help="the file; that of --scale if unset")
    parser.add_argument(
        "--scale", choices=PIPELINES, default="mini", help="small_real: one GPU; full: as the paper"
    )
    parser.add_argument("--from", dest="begin", metavar="STEP", help="anew from this step or stage")
    parser.add_argument("--only", nargs="+", default=[], metavar="STEP", help="leave the others")
    parser.add_argument("--seed", type=int, help="another than the file's: in a folder of its own")
    parser.add_argument("--run", type=Path, help="another run folder")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    options = parser.parse_args(args)
    path = options.pipeline or PIPELINES[options.scale]
    pipeline = read_pipeline(path, options.seed, options.run)
    if options.dry_run and options.scale != "mini":
        from experiments.r1.dry_run import dry_run  # takes seconds to import

        for line in dry_run(pipeline, options.begin, options.only):
            print(line)
        return 0
    if options.dry_run:
        for step, verdict in verdicts_of(pipeline, options.begin, options.only):
            print(f"{step.stage:<28} {step.name:<24} {verdict}")
        return 0
    check_configs([(pipeline, unfinished(pipeline, options.begin, options.only))])
    return run_pipeline(pipeline, begin=options.begin, only=options.only)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main())
