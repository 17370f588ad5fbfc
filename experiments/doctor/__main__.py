"""Plants faults in short runs, asks ``r1lit doctor`` about each, and writes the table.

    python -m experiments doctor [--only NAME ...]      # make the runs, in one process
    python -m experiments doctor --judge                # findings.jsonl of those that are there
    python -m experiments doctor --draw                 # the figure of docs/TROUBLESHOOTING.md

A finished run is skipped. ``--runs`` names another folder of runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from experiments.launch import command_line
from r1lit.doctor.rules import findings
from r1lit.doctor.run import Run
from r1lit.files import read_records, write_records

HERE = Path(__file__).parent
RUNS = Path("runs/doctor")
HALVES = dict.fromkeys(("rules", "opened", "apart", "round3"), 15) | {
    "round4": 8, "round5": 20, "healthy": 10, "healthy_apart": 5, "healthy_round3": 5,
    "healthy_round4": 3, "healthy_round5": 6,
}  # fmt: skip
"""Each half and its planted runs; of round 2, ``rules`` and ``apart`` are the 30."""
BASE = ["configs/mini/r1_zero.yaml", str(HERE / "base.yaml")]
HEALTHY: dict[str, dict[str, Any]] = {
    **{f"seed_{n}": {"seed_everything": n} for n in range(5)},
    **{
        name.lower(): {"model.objective": {"class_path": f"r1lit.objectives.{name}"}}
        for name in ("GRPO", "DAPO", "CISPO", "SAPO", "DPPO")
    },
}
HEALTHY_APART: dict[str, dict[str, Any]] = {
    "seed_10": {"seed_everything": 10},
    "seed_11": {"seed_everything": 11},
    "learning_rate_half": {"seed_everything": 12, "model.optimizer.init_args.lr": 1e-4},
    "group_16": {
        "seed_everything": 13,
        "data.rollout.group_size": 16,
        "data.rollout.prompts_per_iteration": 4,
    },
    "longer": {
        "seed_everything": 14,
        "model.sampling.max_tokens": 320,
        "model.objective.init_args.max_tokens": 320,
    },
}
HEALTHY_ROUNDS: dict[str, dict[str, dict[str, Any]]] = {
    half: yaml.safe_load((HERE / f"{half}.yaml").read_text())
    for half in ("healthy_round3", "healthy_round5", "healthy_round4")
}
APART = {"data.num_iterations": 8}
"""What the runs that were kept apart in round 2, and those of rounds 3 and 5, have too."""


def planted() -> dict[str, dict[str, Any]]:
    """Return every fault by name: its half, its change, and the rules that name it."""
    rounds = ("", "_apart", "_round3", "_round4", "_round5")
    files = [f"faults{name}.yaml" for name in rounds]
    return {k: v for file in files for k, v in yaml.safe_load((HERE / file).read_text()).items()}


def nested(change: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted keys as a configuration; ``model.`` and ``data.`` stand for their init_args."""
    whole: dict[str, Any] = {}
    for key, value in change.items():
        head, *rest = key.split(".")
        parts = [head, "init_args", *rest] if head in ("model", "data") else [head, *rest]
        at = whole
        for part in parts[:-1]:
            at = at.setdefault(part, {})
        at[parts[-1]] = value
    return whole


def runs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each run's name and change: healthy ones first, then the faults."""
    for name, change in HEALTHY.items():
        yield f"healthy/{name}", change
    for half, changes in ({"healthy_apart": HEALTHY_APART} | HEALTHY_ROUNDS).items():
        longer = {} if half == "healthy_round4" else APART
        for name, change in changes.items():
            yield f"healthy/{name}", longer | change
    for name, fault in planted().items():
        longer = APART if fault["half"] in ("apart", "round3", "round5") else {}
        yield f"faults/{name}", longer | fault["change"]


def train(name: str, change: Mapping[str, Any], folder: Path) -> None:
    """Make one run, unless it is there."""
    from r1lit.cli import main

    if (folder / "done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "change.yaml").write_text(yaml.safe_dump(nested(change)))
    files = [part for file in [*BASE, str(folder / "change.yaml")] for part in ("-c", file)]
    try:
        main(["fit", *files, "--run", str(folder)])
        (folder / "done").touch()
    except ValueError as error:
        print(f"{name}: {error}", flush=True)


def healthy_half(name: str) -> str:
    """Return the half of a healthy run."""
    for half, names in HEALTHY_ROUNDS.items():
        if name in names:
            return half
    return "healthy_apart" if name in HEALTHY_APART else "healthy"


def judge(folder: Path) -> None:
    """Write the findings on each finished run to ``findings.jsonl``, and print the counts.

    Rows of runs that are not here stay as they are.
    """
    faults = planted()
    file = HERE / "findings.jsonl"
    known = {row["run"]: row for row in read_records(file)} if file.exists() else {}
    rows = []
    for name, _ in runs():
        if not (folder / name / "done").exists():
            rows += [known[name]] if name in known else []
            continue
        kind, short = name.split("/")
        fault = faults.get(short, {}) if kind == "faults" else {}
        seen = [rule.name for rule, _ in findings(Run(folder / name))]
        counted = seen[:1] if fault.get("first") else seen
        named = bool(set(counted) & set(fault["named"])) if fault else not seen
        half = fault.get("half") or healthy_half(short)
        rows.append({"run": name, "half": half, "ok": named, "seen": seen})
    write_records(file, rows)
    for half, num in HALVES.items():
        own = [row["ok"] for row in rows if row["half"] == half]
        print(f"{half}: {sum(own)} of {len(own)} made, {num} planted, are as planted")


DRAWN = {
    "healthy": "healthy/seed_0",
    "negated loss (wrong_way)": "faults/negated_loss",
    "entropy bonus of 1 (entropy_bonus)": "faults/entropy_bonus_huge",
    "weight decay of 100 (weight_decay)": "faults/weight_decay_huge",
}
"""The runs of the figure in docs/TROUBLESHOOTING.md; all have one seed."""
SHOWN = {
    "train/reward": "reward",
    "train/reward/accuracy": "accuracy",
    "train/entropy": "entropy, nats",
    "train/kl_reference": "KL to the reference, nats",
}
CURVES = HERE / "curves.jsonl"
FIGURE = HERE.parents[1] / "docs" / "images" / "troubleshooting.png"


def keep_curves(folder: Path) -> None:
    """Keep the numbers that the figure shows, of runs that are in a folder."""
    rows = [
        {"run": label, "iteration": line["iteration"], **{key: line[key] for key in SHOWN}}
        for label, name in DRAWN.items()
        for line in read_records(folder / name / "metrics.jsonl")
    ]
    write_records(CURVES, rows)


def draw() -> None:
    """Draw the kept numbers: one panel a metric, a healthy run next to sick ones."""
    from matplotlib.figure import Figure

    from r1lit.callbacks.figures import BLUE, GREEN, VERMILION, save_figure, tidy

    rows = read_records(CURVES)
    figure = Figure(figsize=(9, 5.4), dpi=120, layout="constrained")
    looks = zip(DRAWN, ("0.55", VERMILION, BLUE, GREEN), ("o", "v", "s", "^"), strict=True)
    styles = {label: (color, marker) for label, color, marker in looks}
    for axes, (key, title) in zip(figure.subplots(2, 2).flat, SHOWN.items(), strict=True):
        for label, (color, marker) in styles.items():
            own = [row for row in rows if row["run"] == label]
            xs, ys = [row["iteration"] for row in own], [row[key] for row in own]
            axes.plot(xs, ys, color=color, marker=marker, markersize=5, label=label)
        tidy(axes, title, xlabel="iteration")
        if key == "train/kl_reference":
            axes.set_yscale("log")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    save_figure(figure, FIGURE)


def command(args: list[str]) -> None:
    """Make the runs."""
    parser = command_line("experiments.doctor", __doc__)
    parser.add_argument("--only", nargs="+", help="names of runs")
    parser.add_argument("--judge", action="store_true", help="run the doctor, train nothing")
    parser.add_argument("--draw", action="store_true", help="draw the kept curves again")
    parser.add_argument("--keep", action="store_true", help="keep the curves of these runs first")
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder of the runs")
    options = parser.parse_args(args)
    if options.judge:
        return judge(options.runs)
    if options.keep:
        keep_curves(options.runs)
    if options.draw or options.keep:
        return draw()
    for name, change in runs():
        if options.only is None or name.split("/")[1] in options.only:
            train(name, change, options.runs / name)


if __name__ == "__main__":
    command(sys.argv[1:])
