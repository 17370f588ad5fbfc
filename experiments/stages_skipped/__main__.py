"""Runs R1's pipeline with a stage left out, or another cold start, and reports what it costs.

    python -m experiments.stages_skipped [variants.yaml] [--seeds 0,1] [--only no-rl-1 ...] [--report]

A variant is a pipeline of `experiments.r1`, written to ``<output>/<variant>/seed-<seed>.yaml`` and
run in the folder beside it: finished steps are skipped, an interrupted one goes on. What it does
not make it reads from the run of ``make r1`` of the same seed. At the end the table of README.md is
made; ``--report`` makes it of what is there.
"""  # noqa: E501

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from experiments.compose import Config, as_mapping, check_keys, merge, merged, move_paths
from experiments.launch import command_line, reported
from experiments.page import with_others, write_into
from experiments.pipeline import Pipeline, read_pipeline
from experiments.r1.shape import Summary, combine
from experiments.r1.stages import STAGES, read_stage
from experiments.r1.table import as_table
from experiments.runner import run_pipeline
from experiments.sweep import checked_seeds, folder_name, parse_seeds
from experiments.tables import group_by, seed_table
from r1lit.cli import composition
from r1lit.files import Record, replace_file
from r1lit.metrics.seeds import paired_shift

HERE = Path(__file__).parent
FULL = "all stages"
KEYS = {"pipeline": str, "output": str, "seeds": list, "variants": dict}
COMPARED = ("reasoning_pass_at_1", "instruction_following", "helpfulness_true", "safety")


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
    """Return the rows of a seed: each stage that was evaluated, of the whole run and variants."""
    runs = {FULL: read_pipeline(Path(suite["pipeline"]), seed).run}
    runs |= {variant: output / variant / f"seed-{seed}" for variant in suite["variants"]}
    rows = []
    for variant, run in runs.items():
        for name in STAGES:
            stage = read_stage(run / "eval" / name)
            if stage is not None:
                rows.append({**stage, "name": f"{variant}: {name}"})
    return {"stages": rows}


def differences(summaries: Sequence[Summary]) -> str:
    """Return each variant less the whole pipeline at the same stage, paired by seed, as Markdown.

    Nothing where fewer than two seeds have both.
    """
    by_name = [{stage["name"]: stage for stage in summary["stages"]} for summary in summaries]
    found = []
    for name in dict.fromkeys(name for rows in by_name for name in rows):
        variant, stage = name.split(": ")
        whole = f"{FULL}: {stage}"
        both = [rows for rows in by_name if name in rows and whole in rows]
        for key in COMPARED if variant != FULL else ():
            pairs = [(r[name][key], r[whole][key]) for r in both]
            known = [a - b for a, b in pairs if a is not None and b is not None]
            found += [([name, key], paired_shift(known))] if len(known) > 1 else []
    return seed_table(found, [f"less {FULL}", "measure"])


def report(rows: Sequence[Record]) -> str:
    """Return the Markdown of the rows of all seeds, with their ``seed``.

    A row a variant and stage, and what they differ by.
    """
    summaries: list[Summary] = [{"stages": own} for own in group_by("seed", rows).values()]
    num = len(summaries)
    over = "problems; 1 seed" if num == 1 else f"{num} seeds"
    parts = [f"Mean ± standard error over {over}.", as_table(combine(summaries))]
    return "\n\n".join(part for part in (*parts, differences(summaries)) if part)


@reported("stages_skipped")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 1 if a step failed, 2 for bad input."""
    parser = command_line("experiments.stages_skipped", __doc__)
    parser.add_argument("suite", nargs="?", type=Path, default=HERE / "variants.yaml")
    parser.add_argument("--seeds", help="instead of the file's, for example 0,1")
    parser.add_argument("--only", nargs="+", metavar="VARIANT", help="make these alone")
    parser.add_argument("--report", action="store_true", help="run nothing, report what is there")
    parser.add_argument("--output", type=Path, help="instead of the file's")
    parser.add_argument("--also", nargs="+", type=Path, default=[], metavar="FILE",
                        help="results.jsonl of runs that were made elsewhere")  # fmt: skip
    parser.add_argument("--readme", type=Path, default=HERE, help="the folder of README.md")
    options = parser.parse_args(args)
    suite = composition.read(str(options.suite))
    check_keys(options.suite, suite, KEYS)
    for name, own in suite["variants"].items():
        where = f"{options.suite}: variants.{name}"
        folder_name(f"{options.suite}: variants", name)
        check_keys(where, as_mapping(where, own), {"steps": dict})
    output = options.output or Path(suite["output"])
    seeds = (
        parse_seeds(options.seeds)
        if options.seeds
        else checked_seeds(options.suite, suite["seeds"])
    )
    wanted = options.only or list(suite["variants"])
    for variant in wanted:
        if variant not in suite["variants"]:
            raise ValueError(f"--only: {variant!r} is none of {', '.join(suite['variants'])}")
    for seed in seeds if not options.report else ():
        for variant in wanted:
            status = run_pipeline(pipeline_of(suite, output, variant, seed))
            if status:
                return status
    found = {seed: summarise(suite, output, seed) for seed in seeds}
    rows = [{"seed": seed, **row} for seed, own in found.items() for row in own["stages"]]
    rows = with_others(rows, options.also, ("seed", "name"))
    if not rows:
        raise ValueError(f"{output}: no stage of a variant is evaluated yet")
    text = report(rows)
    write_into(options.readme / "README.md", text, raw=rows)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
