"""Variants of R1's pipeline: each makes some of its steps otherwise, and is compared by stage.

    python -m experiments stages_skipped [--seeds 0,1] [--only no-rl-1 ...] [--report] [--dry-run]

A study of variants is a ``variants.yaml`` beside its README::

    pipeline: experiments/r1/pipeline.yaml
    output: runs/stages_skipped
    seeds: [0, 1, 2]
    variants:
      no-rl-1:
        against: [all stages]        # what it is compared with: other variants, or the whole
                                     # pipeline, which it is if left out
        steps:                       # those that it makes; the keys of a step that differ
          dev3: {}
          r1: {set: {...}}           # `set` is merged over the step's configs

A variant is a pipeline of `experiments.r1`, written to ``<output>/<variant>/seed-<seed>.yaml`` and
run in the folder beside it: finished steps are skipped, an interrupted one goes on. What it does
not make it reads from the run of ``make r1`` of the same seed. At the end the tables of README.md
are made; ``--report`` makes them of what is there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from experiments.compose import Config, as_mapping, check_keys, merge, merged, move_paths
from experiments.launch import command_line, reported
from experiments.page import START, with_others, write_into
from experiments.pipeline import Pipeline, read_pipeline
from experiments.r1.shape import Summary, combine
from experiments.r1.stages import EVALUATED, read_stage
from experiments.r1.table import as_table, seeds_table
from experiments.runner import check_configs, run_pipeline, unfinished, verdicts_of
from experiments.sweep import checked_seeds, folder_name, parse_seeds
from experiments.tables import as_markdown, group_by, mean_cell, seed_table
from r1lit.cli import composition
from r1lit.files import Record, replace_file
from r1lit.metrics.seeds import paired_shift

FULL = "all stages"
KEYS = {"pipeline": str, "output": str, "seeds": list, "variants": dict}
REASONING = ("reasoning_pass_at_1", "countdown_pass_at_1", "chain_pass_at_1")
COMPARED = (*REASONING, "instruction_following", "helpfulness_true", "safety")
Against = Mapping[str, Sequence[str]]
"""By variant, what it is compared with."""
COUNTS = "tokens.json"
"""In the folder of a step: the tokens of a training, which a table of its own shows."""


def read_variants(path: Path) -> Config:
    """Return the content of a study's file.

    Raises:
        ValueError: naming the key that is missing, unknown or wrong.
    """
    suite = composition.read(str(path))
    check_keys(path, suite, KEYS)
    for name, own in suite["variants"].items():
        where = f"{path}: variants.{name}"
        folder_name(f"{path}: variants", name)
        check_keys(where, as_mapping(where, own), {"steps": dict}, optional=("against",))
        known = [FULL, *(other for other in suite["variants"] if other != name)]
        against = own.get("against", [FULL])
        if not isinstance(against, list) or not {*against} <= {*known}:
            raise ValueError(f"{where}: against: {against!r} is no list of {', '.join(known)}")
    checked_seeds(path, suite["seeds"])
    return suite


def compose(pipeline: Path, changes: dict[str, Config | None], finished: Path) -> Config:
    """Return the content of a pipeline file that makes the changed steps alone.

    Args:
        pipeline: the whole pipeline's file.
        changes: by step, the keys that differ.
        finished: the run folder of the whole pipeline, which the other steps' outputs are read
            from.

    Raises:
        ValueError: if there is no such step, or a change is not a mapping.
    """
    content: dict[str, Any] = yaml.safe_load(pipeline.read_text())
    names = [step["name"] for step in content["steps"]]
    for name in changes:
        if name not in names:
            raise ValueError(f"variants: {pipeline} has no step {name!r}")
    made, kept = [], []
    for step in content["steps"]:
        if step["name"] not in changes:
            kept += step.get("writes", [])
            continue
        step = merge(step, as_mapping(f"variants: step {step['name']}", changes[step["name"]]))
        where = f"{pipeline}: step {step['name']}"
        config = merged(step.pop("config", []), f"{where}: config")
        fragment = as_mapping(f"{where}: set", step.get("set"))
        config.pop("seed_everything", None)  # the pipeline's
        for old, new in (content.get("moves") or {}).items():
            config = move_paths(config, Path(old), Path(new))
        made.append({**step, "set": merge(config, fragment)} if config else step)
    for path in map(Path, kept):
        made = move_paths(made, path, finished.resolve() / path.relative_to(content["run"]))
    return {"run": content["run"], "steps": made}


def pipeline_of(suite: Config, output: Path, variant: str, seed: int) -> Pipeline:
    """Return the pipeline of a variant and a seed, having written its file."""
    whole = Path(suite["pipeline"])
    finished = read_pipeline(whole, seed).run
    content = compose(whole, suite["variants"][variant]["steps"], finished)
    path = output / variant / f"seed-{seed}.yaml"
    replace_file(path, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
    return read_pipeline(path, seed, path.with_suffix(""))


def summarise(suite: Config, output: Path, seed: int) -> Summary:
    """Return the rows of a seed: each stage that was evaluated, of the variants and the whole run.

    Of the whole run, only stages that a variant evaluates too. A stage whose step counted its
    tokens has them under ``tokens``.
    """
    of_whole = {step for own in suite["variants"].values() for step in own["steps"]}
    runs = {FULL: read_pipeline(Path(suite["pipeline"]), seed).run}
    runs |= {variant: output / variant / f"seed-{seed}" for variant in suite["variants"]}
    rows = []
    for variant, run in runs.items():
        for name in EVALUATED:
            stage = read_stage(run / "eval" / name)
            if stage is None or (variant == FULL and f"eval_{name}" not in of_whole):
                continue
            counts = run / name / COUNTS
            counted = {"tokens": json.loads(counts.read_text())} if counts.exists() else {}
            rows.append({**stage, "name": f"{variant}: {name}", **counted})
    return {"stages": rows}


def differences(summaries: Sequence[Summary], against: Against) -> str:
    """Return each variant less what it is compared with at the same stage, paired by seed.

    Markdown; nothing where fewer than two seeds have both.

    Args:
        summaries: one a seed.
        against: by variant, what it is compared with.
    """
    found = []
    for name in _names(summaries):
        variant, stage = name.split(": ")
        controls = [] if variant == FULL else against.get(variant, [FULL])
        for control, key in product(controls, COMPARED):
            known = _paired(summaries, name, f"{control}: {stage}", key)
            found += [([name, control, key], paired_shift(known))] if len(known) > 1 else []
    return seed_table(found, ["variant and stage", "less", "measure"])


def against_zero(summaries: Sequence[Summary], against: Against) -> str:
    """Return each variant's R1 less its R1-Zero in reasoning, paired by seed, as Markdown.

    R1-Zero is the variant's own, or that of what it is compared with. Nothing where fewer than two
    seeds have both.
    """
    names, found = _names(summaries), []
    for variant in dict.fromkeys(name.split(": ")[0] for name in names):
        order = [variant, *against.get(variant, []), FULL]
        zero = next((f"{own}: zero" for own in order if f"{own}: zero" in names), "")
        for key in REASONING:
            known = _paired(summaries, f"{variant}: r1", zero, key)
            found += [([variant, zero, key], paired_shift(known))] if len(known) > 1 else []
    return seed_table(found, ["R1 of", "less", "measure"])


def _names(summaries: Sequence[Summary]) -> list[str]:
    return list(dict.fromkeys(row["name"] for summary in summaries for row in summary["stages"]))


def _paired(summaries: Sequence[Summary], name: str, control: str, key: str) -> list[float]:
    """Return the differences of a measure between two rows, of the seeds that have both."""
    found = []
    for summary in summaries:
        rows = {stage["name"]: stage.get(key) for stage in summary["stages"]}
        one, other = rows.get(name), rows.get(control)
        found += [one - other] if one is not None and other is not None else []
    return found


def tokens_table(rows: Sequence[Record]) -> str:
    """Return the tokens of each row's training, mean over seeds, as Markdown; or nothing."""
    counted = group_by("name", [row for row in rows if "tokens" in row])
    keys = dict.fromkeys(key for own in counted.values() for row in own for key in row["tokens"])
    keys.pop("limit", None)
    cells = [
        [name, *(mean_cell([row["tokens"].get(key) for row in own], ",.0f") for key in keys)]
        for name, own in counted.items()
    ]
    return as_markdown(["", *keys], cells) if cells else ""


def report(rows: Sequence[Record], against: Against) -> str:
    """Return the Markdown of the rows of all seeds, with their ``seed``.

    A row a variant and stage, what each is by seed, and what they differ by.
    """
    by_seed = group_by("seed", rows)
    summaries: list[Summary] = [{"stages": own} for own in by_seed.values()]
    num = len(summaries)
    over = "problems; 1 seed" if num == 1 else f"{num} seeds"
    parts = [f"Mean ± standard error over {over}.", as_table(combine(summaries))]
    parts += [seeds_table(summaries, list(map(str, by_seed))), tokens_table(rows)]
    parts += [differences(summaries, against), against_zero(summaries, against)]
    return "\n\n".join(part for part in parts if part)


def against_of(suite: Config) -> Against:
    """Return by variant what it is compared with."""
    return {name: own.get("against", [FULL]) for name, own in suite["variants"].items()}


@reported("experiments")
def main(file: Path, args: Sequence[str]) -> int:
    """Run the command; return its exit status: 1 if a step failed, 2 for bad input."""
    parser = command_line(f"experiments {file.parent.name}", __doc__)
    parser.add_argument("--seeds", help="instead of the file's, for example 0,1")
    parser.add_argument("--only", nargs="+", metavar="VARIANT", help="make these alone")
    parser.add_argument("--report", action="store_true", help="run nothing, report what is there")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be made")
    parser.add_argument("--output", type=Path, help="instead of the file's")
    parser.add_argument("--also", nargs="+", type=Path, default=[], metavar="FILE",
                        help="results.jsonl of runs that were made elsewhere")  # fmt: skip
    parser.add_argument("--readme", type=Path, help="the folder of README.md; else the file's, if"
                        " that README has a place for results, or else the output's")  # fmt: skip
    options = parser.parse_args(args)
    suite = read_variants(file)
    output = options.output or Path(suite["output"])
    seeds = parse_seeds(options.seeds) if options.seeds else suite["seeds"]
    wanted = options.only or list(suite["variants"])
    for variant in wanted:
        if variant not in suite["variants"]:
            raise ValueError(f"--only: {variant!r} is none of {', '.join(suite['variants'])}")
    if not options.report:
        pipelines = [pipeline_of(suite, output, own, seed) for seed in seeds for own in wanted]
        if options.dry_run:
            for pipeline in pipelines:
                for step, verdict in verdicts_of(pipeline):
                    print(f"{verdict:<12} {pipeline.run} {step.name}", flush=True)
            return 0
        check_configs([(pipeline, unfinished(pipeline)) for pipeline in pipelines])
        for pipeline in pipelines:
            if status := run_pipeline(pipeline):
                return status
    found = {seed: summarise(suite, output, seed) for seed in seeds}
    rows = [{"seed": seed, **row} for seed, own in found.items() for row in own["stages"]]
    rows = with_others(rows, options.also, ("seed", "name"))
    if not rows:
        raise ValueError(f"{output}: no stage of a variant is evaluated yet")
    text = report(rows, against_of(suite))
    beside = file.with_name("README.md")
    has_place = beside.exists() and START in beside.read_text()
    folder = options.readme or (file.parent if has_place else output)
    write_into(folder / "README.md", text, raw=rows)
    print(text)
    return 0
