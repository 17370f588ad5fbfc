"""Runs a study: makes what is missing, then its page.

    python -m experiments late_onset [--seeds 0,1] [--report] [--dry-run]
    python -m experiments reward_models pairs=hh.jsonl.gz labels=xstest.csv
    python -m experiments runs/mine/study.yaml
    python -m experiments objectives --launcher submitit --job timeout_min=600 gpus_per_node=1
    python -m experiments objectives --until-clear --most 20   # docs/STATISTICS.md
    python -m experiments wrong_length --until-clear --most 8 --measure response_length_wrong
    python -m experiments --list

Finished runs are skipped and interrupted ones go on. Started once more while it runs, the two share
the work. On a cluster every run of a grid is a task of one job array; see `experiments.submit`.
``r1``, ``paper`` and variants of R1's pipeline (``stages_skipped``) have options of their own:
``python -m experiments r1 --help``.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from experiments.launch import Launch, command_line, in_subprocess, reported
from experiments.study import HERE, Study, list_steps, make, read_study, report
from experiments.submit import submit_sweep
from experiments.sweep import parse_seeds
from experiments.until_clear import MOST, Question, settle
from experiments.variants import main as make_variants

VARIANTS = "variants.yaml"


def studies() -> dict[str, Path]:
    """Return the shipped studies by name: their file, or the folder of one with its own command."""
    files = [*HERE.rglob("study.yaml"), *HERE.rglob(VARIANTS), *HERE.glob("*/__main__.py")]
    found = {file.parent.relative_to(HERE).as_posix(): file for file in sorted(files)}
    return dict(sorted(found.items()))


def about(file: Path) -> str:
    """Return in a line what a study asks: its README's title, or its file's first comment."""
    page = file.with_name("README.md")
    lines = (page if page.exists() else file).read_text().splitlines()
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), "")


def file_of(name: str) -> Path:
    """Return the file of a study that a command names.

    Raises:
        ValueError: if there is no such study.
    """
    known = studies()
    if name in known:
        return known[name]
    if Path(name).is_file():
        return Path(name)
    raise ValueError(f"{name}: no study is called so; those are {', '.join(known)}")


def check_until_clear(options: argparse.Namespace, study: Study) -> None:
    """Refuse what ``--until-clear``, ``--most`` and ``--measure`` do not go with.

    Raises:
        ValueError: naming the option.
    """
    if not options.until_clear:
        for name in ("most", "measure"):
            if (given := getattr(options, name)) is not None:
                raise ValueError(f"--{name} {given}: it is for --until-clear, which is not given")
        return
    if options.seeds is not None:
        raise ValueError("--seeds and --until-clear exclude each other; it takes seeds from 0 on")
    if options.dry_run:
        raise ValueError("--dry-run and --until-clear exclude each other; --report says where it"
                         " stands, and how many seeds it takes is not known before")  # fmt: skip
    if options.launcher != "local":
        raise ValueError("--until-clear needs --launcher local: a seed waits for the one before")
    if "grid" not in study.content:
        raise ValueError(f"--until-clear: {study.path} has steps; it is for a study of one grid")


def settle_study(study: Study, options: argparse.Namespace, launch: Launch) -> int:
    """Run ``--until-clear``, print its table and return the exit status."""
    sweep = study.sweep()
    question = Question(
        variants=list(sweep.variants),
        against=options.against or next(iter(sweep.variants)),
        most=MOST if options.most is None else options.most,
        measure=options.measure,
    )
    status, table = settle(sweep, question, None if options.report else launch, study.recorded)
    print(table)
    return status


@reported("experiments")
def main(args: Sequence[str] | None = None, launch: Launch = in_subprocess) -> int:
    """Run the command; return its exit status: 1 if a run failed, 2 for bad input."""
    args = list(sys.argv[1:] if args is None else args)
    file = studies().get(args[0]) if args else None
    if file is not None and file.suffix == ".py":
        sys.argv = args
        runpy.run_module(f"experiments.{args[0].replace('/', '.')}", run_name="__main__")
    if (args and Path(args[0]).name == VARIANTS) or (file is not None and file.name == VARIANTS):
        return make_variants(file or Path(args[0]), args[1:])
    parser = command_line("experiments", __doc__)
    parser.add_argument("study", nargs="?", help="its name, or the path of its file")
    parser.add_argument("values", nargs="*", metavar="NAME=VALUE", help="arguments of the study")
    parser.add_argument("--list", action="store_true", help="name the studies")
    parser.add_argument("--seeds", help="instead of the file's, for example 0,1")
    parser.add_argument("--output", type=Path, help="the folder of the runs; else the file's")
    parser.add_argument("--readme", type=Path, help="the folder of README.md; else the file's, if"
                        " that README has a place for results, or else the output's")  # fmt: skip
    parser.add_argument("--report", action="store_true", help="run nothing, report what is there")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be made")
    parser.add_argument("--also", nargs="+", type=Path, default=[], metavar="FILE",
                        help="results.jsonl of runs that were made elsewhere")  # fmt: skip
    parser.add_argument("--against", help="the variant to compare the others with; else the first")
    parser.add_argument("--until-clear", action="store_true", help="make seeds one by one, until"
                        " a sequential test settles each comparison")  # fmt: skip
    parser.add_argument("--most", type=int, help="seeds at most, of --until-clear; else 20")
    parser.add_argument("--measure", metavar="KEY", help="what --until-clear compares: a number"
                        " of the last evaluation, not pass@1")  # fmt: skip
    parser.add_argument("--launcher", choices=("local", "submitit"), default="local")
    parser.add_argument("--cluster", help="of submitit: slurm, or local; found out if left out")
    parser.add_argument("--job", nargs="+", default=[], metavar="KEY=VALUE",
                        help="submitit's parameters of a task")  # fmt: skip
    options = parser.parse_intermixed_args(args)
    if options.list or options.study is None:
        for name, file in studies().items():
            print(f"{name:<34} {about(file)}")
        return 0
    submit = None
    if options.launcher == "submitit":
        submit = partial(submit_sweep, cluster=options.cluster, settings=options.job)
    elif options.cluster or options.job:
        raise ValueError("--cluster and --job are for --launcher submitit, and it is local")
    values = dict(value.partition("=")[::2] for value in options.values)
    study = read_study(
        file_of(options.study),
        seeds=None if options.seeds is None else parse_seeds(options.seeds),
        output=options.output,
        values=values,
    )
    check_until_clear(options, study)
    if options.dry_run:
        list_steps(study)
        return 0
    if options.until_clear:
        return settle_study(study, options, launch)
    status = 0 if options.report else make(study, launch, submit)
    is_sweep = "grid" in study.content
    if status and not (is_sweep and ("report" not in study.content or study.sweep().results())):
        return status
    print(report(study, options.also, options.readme, options.against))
    return status


if __name__ == "__main__":
    sys.exit(main())
