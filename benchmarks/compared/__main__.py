"""Runs the tasks of docs/RECIPES.md in r1lit and in TRL, tiny, and fills docs/COMPARED.md.

    python -m benchmarks.compared [--only "LoRA"] [--base-url http://127.0.0.1:8000/v1]

Both sides do two iterations of 4 prompts x 4 responses of at most 64 tokens with the shipped base,
in float32 (supervised: the table, twice). The time is that of the commands from their start to
their end. `--base-url` is a server of the shipped base, which two of r1lit's tasks need:

    vllm serve models/mini --served-model-name big

What verl and OpenRLHF bring stands in `elsewhere.yaml`, from their own pages; they are not run.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from benchmarks.compared.tasks import BLOCK, PAGE, ROOT, SCRIPTS, SERVED, Task, ours, theirs
from experiments.page import write_into
from r1lit.cli.composition import merge
from r1lit.files import replace_json

RESULTS = ROOT / "benchmarks" / "results" / "compared.json"
PAGE_OUT = ROOT / "docs" / "COMPARED.md"
TABLES = "make_sums.py"
"""Writes the tables that both sides learn from."""
LIMIT_S = 300.0
TRAINER = {"accelerator": "cpu", "precision": "32-true", "enable_model_summary": False}
ROLLOUT = {"prompts_per_iteration": 4, "group_size": 4}
SMALL: dict[str, Any] = {
    "model": {"init_args": {"sampling": {"max_tokens": 64}, "train_batch_size": 16}},
    "data": {"init_args": {"rollout": ROLLOUT, "num_iterations": 2, "validation": None}},
    "trainer": {**TRAINER, "limit_val_batches": 0, "val_check_interval": 1},
}
HELD_OUT = {"class_path": "r1lit.worlds.WorldChain",
            "init_args": {"split": "held_out", "num_problems": 2}}  # fmt: skip
EVALUATED = {
    "data": {"init_args": {"validation": [HELD_OUT], "evaluation": {"num_samples": 2}}},
    "trainer": {"limit_val_batches": 1},
}
GRPO = (
    "--max_steps 2 --per_device_train_batch_size 16 --steps_per_generation 1 --num_generations 4"
    " --max_completion_length 64 --bf16 false"
)
TINY = {
    "sft.py": "--bf16 false",
    "reward": "--bf16 false",
    "merge.py": "",
    "teacher.py": "--max_steps 2 --per_device_train_batch_size 4 --max_completion_length 64"
    " --bf16 false",
}


def small(command: str, configs: Sequence[str]) -> dict[str, Any]:
    """Return the configuration that makes a command of r1lit tiny."""
    if command == "test":
        return {
            "model": {"init_args": {"dtype": "float32", "sampling": {"max_tokens": 64}}},
            "data": {"init_args": {"evaluation": {"num_samples": 4}}},
        }
    if "mini" in configs[0]:
        return SMALL
    if "distill" in configs[0]:
        change = {"sampling": {"max_tokens": 64}, "validation_sampling": None}
        return {**SMALL, "model": {"init_args": change},
                "data": {"init_args": {"rollout": {"prompts_per_iteration": 4},
                                       "num_iterations": 2}}}  # fmt: skip
    return {"trainer": TRAINER}


def our_command(line: str, folder: Path, number: int) -> list[str]:
    """Return a command line of docs/RECIPES.md, made tiny."""
    words = [word for word in shlex.split(line) if word != "PYTHONPATH=."]
    if words[0] == "python":
        path = folder / words[-1]
        sweep = yaml.safe_load(path.read_text())
        (folder / "small.yaml").write_text(yaml.safe_dump(merge(SMALL, EVALUATED)))
        path.write_text(yaml.safe_dump({**sweep, "base": [*sweep["base"], "small.yaml"]}))
        return [sys.executable, *words[1:]]
    command = [sys.executable, "-m", "r1lit.cli", *words[1:]]
    if words[1] == "merge":
        return command
    configs = [words[i + 1] for i, word in enumerate(words) if word == "-c"]
    name = f"small-{number}.yaml"
    (folder / name).write_text(yaml.safe_dump(small(words[1], configs)))
    return [*command, "-c", name]


def their_command(line: str) -> list[str]:
    """Return a command line of TRL's side, made tiny."""
    words = shlex.split(line)
    program = ["-m", "trl.cli.main"] if words[0] == "trl" else []
    return [sys.executable, *program, *words[1:], *TINY.get(words[1], GRPO).split()]


def run(task: Task, is_ours: bool, base_url: str) -> dict[str, Any]:
    """Run one side of a task in a folder of its own; return its seconds, or its error."""
    with tempfile.TemporaryDirectory(prefix="compared-") as name:
        folder = Path(name)
        (folder / "models").symlink_to(ROOT / "models")  # of TRL's side
        for _, file, text in BLOCK.findall(PAGE):
            if file and (is_ours or file.endswith((".jsonl", TABLES))):
                (folder / file).write_text(text.replace("http://127.0.0.1:8000/v1", base_url))
        subprocess.run([sys.executable, TABLES], cwd=folder, check=True)
        if not is_ours:
            for script in SCRIPTS.iterdir():
                if script.is_file():
                    (folder / script.name).write_text(script.read_text())
        path = os.pathsep.join([name, str(ROOT)])
        environment = os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
        started = time.perf_counter()
        for number, line in enumerate(task.commands):
            command = our_command(line, folder, number) if is_ours else their_command(line)
            log = folder / "log.txt"
            with log.open("w") as file:
                try:
                    done = subprocess.run(
                        command, cwd=folder, env=environment, stdout=file,
                        stderr=subprocess.STDOUT, timeout=LIMIT_S,
                    )  # fmt: skip
                except subprocess.TimeoutExpired:
                    return {"error": f"more than {LIMIT_S:.0f} s"}
            if done.returncode:
                print(log.read_text()[-3000:], file=sys.stderr)
                return {"error": log.read_text().strip().splitlines()[-1][:200]}
        return {"seconds": round(time.perf_counter() - started, 1)}


def cell(task: Task, result: dict[str, Any] | None) -> str:
    """Return a side's cell: its lines and those of its presets, its commands, its seconds."""
    if not task.commands:
        return "–"
    own, preset = task.lines()
    lines = f"{own} + {preset}" if preset else str(own)
    time_taken = "not run" if result is None else f"{result['seconds']:.0f} s"
    return f"{lines} · {len(task.commands)} · {time_taken}"


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the two tables, of lines and times and of what is missing, as Markdown."""
    tools = yaml.safe_load((Path(__file__).with_name("elsewhere.yaml")).read_text())
    mine, other = ours(), theirs()
    rows = [f"| task | r1lit | TRL | {' | '.join(tools)} |", "|---|---|---|" + "---|" * len(tools)]
    lacks = [f"| task | TRL | {' | '.join(tools)} |", "|---|---|" + "---|" * len(tools)]
    for name, task in mine.items():
        result = results.get(name, {})
        cells = [cell(task, result.get("r1lit")), cell(other[name], result.get("trl"))]
        for tool in tools.values():
            said = tool[name]
            link = f"[{said['lines'] or 'page'}]({tool['url']}{said['source']})"
            cells.append(link if said["source"] else "–")
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
        missing = [other[name].missing, *(tool[name]["missing"] for tool in tools.values())]
        lacks.append(f"| {name} | " + " | ".join(missing) + " |")
    return "\n".join([*rows, "", *lacks])


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status: 1 if a side of a task failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compared", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", nargs="+", choices=list(ours()), metavar="TASK")
    parser.add_argument("--base-url", default="", help="of a server, for two of r1lit's tasks")
    parser.add_argument("--output", type=Path, default=RESULTS, help="results, as JSON")
    parser.add_argument("--page", type=Path, default=PAGE_OUT, help="the page that is filled in")
    options = parser.parse_args(args)
    kept = json.loads(options.output.read_text()) if options.output.exists() else {}
    results: dict[str, dict[str, Any]] = kept.get("tasks", {})
    failed = False
    for name in options.only or ours():
        for side, task in (("r1lit", ours()[name]), ("trl", theirs()[name])):
            if not task.commands or (side == "r1lit" and name in SERVED and not options.base_url):
                continue
            result = run(task, side == "r1lit", options.base_url)
            print(f"{name}: {side} {result}", flush=True)
            if "error" in result:
                failed = True
                continue
            results.setdefault(name, {})[side] = result
            packages = {p: version(p) for p in ("r1lit", "trl", "transformers", "torch")}
            content = {"date": date.today().isoformat(), "cores": os.cpu_count(),
                       "packages": packages, "tasks": results}  # fmt: skip
            replace_json(options.output, content)
    if options.output.exists():
        content = json.loads(options.output.read_text())
        versions = ", ".join(f"{name} {v}" for name, v in content["packages"].items())
        note = f"{content['date']}, {content['cores']} cores; {versions}."
        write_into(options.page, f"{note}\n\n{table(content['tasks'])}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
