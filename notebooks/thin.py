"""Thins a run to what the notebooks read: the small runs in ``notebooks/data``.

    python notebooks/thin.py aha runs/aha notebooks/data/aha
    python notebooks/thin.py r1 runs/r1 notebooks/data/r1
    python notebooks/thin.py rollout runs/rollout notebooks/data/rollout

Numbers of evaluations are kept as they are; responses are thinned by their order alone, never by
what they say. The README.md in the new folder says what was kept, and of which run.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from r1lit.files import Record, read_records, write_records

SHOWN = "iteration split uid sample source question answer response status num_tokens"
OF_A_STAGE = "uid sample question response status num_tokens groups eval_metrics"
STAGES = ("zero", "dev1", "dev2", "dev3", "r1")
NUM_GROUPS = 4  # with their tokens
OTHERS = 2  # problems of each kind but the general
DROPPED = 2  # of each filter


def thin_aha(run: Path, folder: Path) -> str:
    """Keep all numbers, and two responses to each problem at every second and the last evaluation."""
    for name in ("config.yaml", "summary.json", "metrics.jsonl"):
        shutil.copyfile(run / name, folder / name)
    evaluations = json.loads((run / "summary.json").read_text())
    times = [evaluation["iteration"] for evaluation in evaluations]
    times = sorted({*times[::2], times[-1]})
    kept = [
        only(line, SHOWN)
        for line in read_records(run / "responses.jsonl")
        if line["split"] == "val" and line["sample"] < 2 and line["iteration"] in times
    ]
    write_records(folder / "responses.jsonl", kept)
    config = yaml.safe_load((run / "config.yaml").read_text())
    return (
        f"`make aha`: {config['model']['init_args']['policy']}, seed {config['seed_everything']}."
        f" All numbers of all {evaluations[-1]['num_samples']} responses to a problem are there;"
        f" of the responses themselves, the first two at iterations {as_text(times)}."
    )


def thin_r1(run: Path, folder: Path) -> str:
    """Keep all numbers, and the first response to each general problem, and to a few others."""
    shutil.copyfile(run / "summary.json", folder / "summary.json")
    for path in (run / "eval" / stage / "responses.jsonl" for stage in STAGES):
        lines = [line for line in read_records(path) if line["sample"] == 0]
        by_kind: dict[str, list[Record]] = {}
        for line in sorted(lines, key=lambda line: line["uid"]):
            by_kind.setdefault(line["groups"]["kind"], []).append(line)
        kept = [
            only(line, OF_A_STAGE)
            for kind, own in by_kind.items()
            for line in (own if kind == "general" else own[:OTHERS])
        ]
        to = folder / path.relative_to(run)
        to.parent.mkdir(parents=True)
        write_records(to, kept)
    for path in sorted(run.rglob("dropped.jsonl")):
        to = folder / path.relative_to(run)
        to.parent.mkdir(parents=True)
        shutil.copyfile(path.with_name("card.json"), to.with_name("card.json"))
        by_filter: dict[str, list[Record]] = {}
        for line in read_records(path):
            by_filter.setdefault(line["filter"], []).append(line)
        write_records(to, [line for own in by_filter.values() for line in own[:DROPPED]])
    manifest = json.loads((run / "manifest.json").read_text())
    return (
        f"`make r1`: the stages from models/mini, seed {manifest['seed']}. All numbers of the"
        " stage table are there; of responses, each stage's first to every general problem and to"
        f" {OTHERS} of each other kind, and {DROPPED} that each filter dropped."
    )


def thin_rollout(run: Path, folder: Path) -> str:
    """Keep the numbers of every response, texts and tokens of the first groups."""
    lines = [line for line in read_records(run / "responses.jsonl") if line["split"] == "train"]
    uids = list(dict.fromkeys(line["uid"] for line in lines))
    kept = []
    for line in lines:
        more = " tokens" if line["uid"] in uids[:NUM_GROUPS] else ""
        kept.append(only(line, f"{SHOWN} rewards reward advantage{more}"))
    for line in kept:
        if "tokens" not in line:
            del line["response"]
    write_records(folder / "responses.jsonl", kept)
    shutil.copyfile(run / "config.yaml", folder / "config.yaml")
    config = yaml.safe_load((run / "config.yaml").read_text())
    return (
        f"the first rollout of {config['model']['init_args']['policy']}, seed"
        f" {config['seed_everything']}: {len(uids)} groups of {len(lines) // len(uids)}. Tokens"
        f" are those of the first {NUM_GROUPS} groups."
    )


KINDS: dict[str, Callable[[Path, Path], str]] = {
    "aha": thin_aha,
    "r1": thin_r1,
    "rollout": thin_rollout,
}


def only(line: Record, names: str) -> Record:
    """Return a line with those of its keys that are named, in the line's order."""
    return {key: value for key, value in line.items() if key in names.split()}


def as_text(numbers: Sequence[int]) -> str:
    """Return numbers as a list in words."""
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python notebooks/thin.py", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("run", type=Path, help="a finished run folder")
    parser.add_argument("folder", type=Path, help="what is there is replaced")
    options = parser.parse_args(args)
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    said = KINDS[options.kind](options.run, options.folder)
    text = f"A committed, thinned copy of {said}\n"
    (options.folder / "README.md").write_text(text)
    print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
