"""Composing the config of a point: fragments over a base, and the run moved to a folder."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import Any

from r1lit import composition
from r1lit.composition import Config, read

__all__ = ["Config", "merge", "merged", "move_paths", "move_run", "run_of"]


def merge(base: Config, *fragments: Config) -> Config:
    """Return the base with the values of each fragment over it, in order."""
    return reduce(composition.merge, fragments, base)


def merged(files: Iterable[object], where: str) -> Config:
    """Return YAML files merged in order, as by repeated ``-c``.

    Raises:
        ValueError: naming ``where``, and the file that cannot be read or is no YAML.
    """
    try:
        return merge({}, *map(read, map(str, files)))
    except ValueError as error:
        raise ValueError(f"{where}: {error}; paths are from {Path.cwd()}") from error


def run_of(config: Config) -> str | None:
    """Return the run folder that a config names, as ``run`` or ``trainer.default_root_dir``."""
    return config.get("run") or config.get("trainer", {}).get("default_root_dir")


def move_run(config: Config, folder: Path) -> Config:
    """Return the config with its run folder moved to ``folder``.

    Every path in or under the old run folder moves along, whoever's ``dirpath`` it is; a logger
    that spells the old folder as ``save_dir`` and ``name`` is spelt anew.

    Raises:
        ValueError: if the config names no run folder, or keeps no evaluations there.
    """
    old = Path(run_of(config) or "")
    if not old.parts:
        raise ValueError("run: the base must name its run folder, as runs/aha")
    moved = move_paths(config, old, folder)
    callbacks = moved.get("trainer", {}).get("callbacks") or []
    if not any(
        callback["class_path"].endswith("CurveWriter")
        and Path(callback.get("init_args", {}).get("dirpath") or folder) == folder
        for callback in callbacks
    ):
        raise ValueError(
            f"trainer.callbacks: results are read from summary.json, so the base needs"
            f" r1lit.callbacks.CurveWriter, which writes to {old}"
        )
    return moved


def move_paths(node: Any, old: Path, new: Path) -> Any:
    """Return ``node`` with every path in or under ``old`` moved to ``new``.

    A logger that spells such a folder as ``save_dir`` and ``name`` is spelt anew.

    >>> move_paths({"dirpath": "runs/a/b", "policy": "runs/ab"}, Path("runs/a"), Path("runs/c"))
    {'dirpath': 'runs/c/b', 'policy': 'runs/ab'}
    """
    if isinstance(node, list):
        return [move_paths(item, old, new) for item in node]
    if isinstance(node, str):
        path = Path(node)
        return str(new / path.relative_to(old)) if path.is_relative_to(old) else node
    if isinstance(node, dict):
        moved = {key: move_paths(value, old, new) for key, value in node.items()}
        if isinstance(node.get("save_dir"), str) and node["save_dir"]:
            spelt = Path(node["save_dir"]) / (node.get("name") or "")
            if spelt.is_relative_to(old):
                spelt = new / spelt.relative_to(old)
                moved |= {"save_dir": str(spelt.parent), "name": spelt.name}
        return moved
    return node
