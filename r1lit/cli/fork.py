"""``r1lit fork``: continues a run from an iteration in another folder, with changed keys.

    r1lit fork runs/mine --at 40 -c change.yaml --run runs/mine_dapo
    r1lit-compare runs/mine_dapo runs/mine

The branch has the run's history up to there: its checkpoint, numbers and responses. Problems,
order of rows and every token's random number depend on (seed, iteration, sample) alone, so both
have the same ones: what differs between them afterwards is the change, and ``r1lit-compare`` pairs
them by sample. Without a change the branch is the run once more. The same command given again
continues a branch that was interrupted.

The checkpoint is ``checkpoints/iteration-<at>.ckpt`` (``keep_every_n_iterations`` of
IterationCheckpoint keeps such), or ``last.ckpt`` where that is of this iteration.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import yaml
from lightning.pytorch.utilities import rank_zero_only

from r1lit.callbacks.checkpoints import keep_copy
from r1lit.cli.composition import Config, move_paths, read
from r1lit.console import as_help
from r1lit.files import Record, replace_file, replace_json

WAIT_S = 600.0
NOT_COMPARED = ("run", "ckpt_path", "resume_changed")
HISTORY = ("metrics.jsonl", "summary.json", "responses.jsonl", "config.yaml")


def checkpoint_at(run: Path, at: int) -> Path:
    """Return the checkpoint of a run after ``at`` finished iterations.

    Raises:
        ValueError: if there is none, naming those there are.
    """
    folder = run / "checkpoints"
    kept = folder / f"iteration-{at}.ckpt"
    if kept.exists():  # a folder, if sharded
        return kept
    last, has = folder / "last.ckpt", [p.stem.partition("-")[2] for p in folder.glob("iteration-*")]
    if last.exists():
        has.append(str(iteration_of(last)))
        if has[-1] == str(at):
            return last
    there = ", ".join(sorted(has, key=int)) or "none"
    raise ValueError(
        f"at: {at}: {folder} has checkpoints of iterations {there}; keep more with"
        " keep_every_n_iterations of r1lit.callbacks.IterationCheckpoint"
    )


def iteration_of(checkpoint: Path) -> int:
    """Return how many iterations a checkpoint has finished; a sharded one (FSDP2) is a folder."""
    file = checkpoint / "meta.pt" if checkpoint.is_dir() else checkpoint
    loops = torch.load(file, map_location="cpu", mmap=True, weights_only=False)["loops"]
    return int(loops["fit_loop"]["epoch_loop.batch_progress"]["total"]["ready"])


def prepare(run: Path, branch: Path, fork: Record) -> bool:
    """Make the branch's folder with the run's history; return False where the same fork made it.

    Args:
        run: the run's folder.
        branch: the branch's folder.
        fork: what names the fork: ``run``, ``at`` and its changes. ``fork.json`` in the branch.

    Raises:
        ValueError: if the run has no such checkpoint, or the branch has one of another fork.
    """
    named, target = branch / "fork.json", branch / "checkpoints" / "last.ckpt"
    if target.exists():
        if named.is_file() and json.loads(named.read_text()) == fork:
            return False
        raise ValueError(
            f"run: {branch} has a checkpoint already, and not of this very command; continue with"
            f" `r1lit fit -c {branch / 'config.yaml'} --ckpt_path last`, or name another folder"
        )
    if not (run / "config.yaml").is_file():
        raise ValueError(f"run: {run} is no run folder: it has no config.yaml")
    source = checkpoint_at(run, fork["at"])
    target.parent.mkdir(parents=True, exist_ok=True)
    for name in HISTORY:
        if (run / name).is_file():
            shutil.copy2(run / name, branch / name)
    replace_json(named, fork)
    keep_copy(source, target)
    return True


def settings_of(run: Path, branch: Path) -> Config:
    """Return the run's configuration with its paths in the branch's folder."""
    config = yaml.safe_load((run / "config.yaml").read_text())
    own = Path(config.get("trainer", {}).get("default_root_dir") or run)
    moved = move_paths(move_paths(config, own, branch), run, branch)
    return {key: value for key, value in moved.items() if key not in NOT_COMPARED}


def wait_for(settings: Path, wait_s: float = WAIT_S) -> None:
    """Wait until rank 0 has made the branch's folder, of which the settings are the last file.

    Raises:
        ValueError: if they are not there in time.
    """
    end = time.monotonic() + wait_s
    while not settings.exists():
        if time.monotonic() > end:
            raise ValueError(f"run: rank 0 has not written {settings} in {wait_s:.0f} s")
        time.sleep(0.1)


def main(args: Sequence[str] | None = None) -> None:
    """Fork a run and train the branch; arguments that it does not know are those of ``fit``."""
    parser = argparse.ArgumentParser(
        prog="r1lit fork", description=as_help(__doc__), allow_abbrev=False
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("source", type=Path, metavar="RUN", help="a run folder of r1lit fit")
    parser.add_argument("--at", type=int, required=True, help="finished iterations")
    parser.add_argument("-c", action="append", default=[], metavar="FILE", help="what changes")
    parser.add_argument("--run", type=Path, required=True, help="the branch's folder")
    given, keys = parser.parse_known_args(args)
    from r1lit.cli import main as r1lit_main

    settings = given.run / "fork.yaml"
    if rank_zero_only.rank == 0:  # type: ignore[attr-defined]  # set from the environment
        changes = [*map(read, given.c), *keys]
        fork = {"run": str(given.source), "at": given.at, "changes": changes}
        if prepare(given.source, given.run, fork) or not settings.exists():
            replace_file(settings, yaml.safe_dump(settings_of(given.source, given.run)).encode())
    else:
        wait_for(settings)
    files = [str(settings), *given.c]
    r1lit_main(
        [
            "fit",
            *(part for file in files for part in ("-c", file)),
            *keys,
            *("--run", str(given.run), "--ckpt_path", "last", "--resume_changed", "true"),
        ]
    )
