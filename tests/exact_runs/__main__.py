"""Record the short runs, or compare them with those of a commit."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NAMES = sorted({path.stem for path in HERE.glob("*.yaml")} - {"base"})


def record(name: str, folder: Path) -> dict[str, Any]:
    """Run one YAML; return what it logged but times, and digests of what it sampled and saved."""
    from exact_runs import Digests
    from r1lit.cli import main

    policy = folder / "policy_with_dropout"
    shutil.copytree(ROOT / "models" / "mini", policy)
    config = json.loads((policy / "config.json").read_text())
    (policy / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.1}))
    own = folder / f"{name}.yaml"
    text = (HERE / f"{name}.yaml").read_text()
    own.write_text(text.replace("POLICY_WITH_DROPOUT", str(policy)))
    run = folder / "run"
    cli = main(["fit", "-c", str(HERE / "base.yaml"), "-c", str(own), "--run", str(run)])
    [digests] = [c for c in cli.trainer.callbacks if isinstance(c, Digests)]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timed = ("seconds", "time/", "memory/", "speed/", "train/tokens_per_second", "train/mfu")
    logged = [{k: v for k, v in line.items() if not k.startswith(timed)} for line in lines]
    return {"logged": logged, "rollouts": digests.iterations, "weights": digests.weights}


def record_all(tree: Path, out: Path, names: list[str]) -> dict[str, Any]:
    """Record a tree's own YAMLs by its own code; each in a process of its own."""
    environment = os.environ | {"PYTHONPATH": f"{tree}:{tree / 'tests'}", "OMP_NUM_THREADS": "1"}
    found = {}
    for name in names:
        path = out / f"{name}.json"
        command = [sys.executable, "-m", "exact_runs", "--record", name, "--out", str(path)]
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{tree}: {name} failed\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        found[name] = json.loads(path.read_text())
    return found


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """Return the places where two records differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for key in dict.fromkeys((*old, *new))
            for line in differences(old.get(key), new.get(key), f"{where}/{key}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        pairs = enumerate(zip(old, new, strict=True))
        return [line for i, (a, b) in pairs for line in differences(a, b, f"{where}[{i}]")]
    return [] if old == new or (old != old and new != new) else [f"{where}: {old} -> {new}"]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="exact_runs", description=__doc__)
    parser.add_argument("--against", help="a commit to compare the tree with")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--record", choices=NAMES, help="run one here")
    parser.add_argument("--out", type=Path, help="the file of --record")
    args = parser.parse_args()
    if args.record:
        with TemporaryDirectory() as folder:
            args.out.write_text(json.dumps(record(args.record, Path(folder))))
        return
    with TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "-q", "--detach", str(tree), args.against], check=True)
        try:
            sides = []
            for name, where in (("old", tree), ("new", ROOT)):
                Path(folder, name).mkdir()
                sides.append(record_all(where, Path(folder, name), args.only))
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    lines = differences(*sides)
    print(*lines, sep="\n")
    print(f"{len(args.only)} runs, {len(lines)} differences from {args.against}")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
