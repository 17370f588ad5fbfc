"""Composing the config of a point: fragments over a base, and the run moved to a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Config = dict[str, Any]


def merge(base: Config, fragment: Config) -> Config:
    """Return the base with the fragment's values over it.

    Mappings merge, except that another ``class_path`` replaces the whole mapping: the arguments of
    one class mean nothing to the other. Lists are replaced; ``key+`` appends to the list ``key``.

    >>> merge({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b+": [2]})
    {'a': {'x': 1, 'y': 3}, 'b': [1, 2]}
    >>> merge({"class_path": "GRPO", "init_args": {"epsilon": 1}}, {"class_path": "DAPO"})
    {'class_path': 'DAPO'}
    """
    if fragment.get("class_path", base.get("class_path")) != base.get("class_path"):
        return fragment
    merged = dict(base)
    for key, value in fragment.items():
        if key.endswith("+") and isinstance(base.get(key[:-1]), list):
            merged[key[:-1]] = [*base[key[:-1]], *value]
        elif isinstance(value, dict) and isinstance(base.get(key), dict):
            merged[key] = merge(base[key], value)
        else:
            merged[key] = value
    return merged


def move_run(config: Config, folder: Path) -> Config:
    """Return the config with its run folder, ``trainer.default_root_dir``, moved to ``folder``.

    Every path in or under the old run folder moves along, whoever's ``dirpath`` it is; a logger
    that spells the old folder as ``save_dir`` and ``name`` is spelt anew.

    Raises:
        ValueError: if the config names no run folder, or keeps no evaluations there.
    """
    old = Path(config.get("trainer", {}).get("default_root_dir") or "")
    if not old.parts:
        raise ValueError("trainer.default_root_dir: the base must name its run folder, as runs/aha")
    moved = move_paths(config, old, folder)
    callbacks = moved["trainer"].get("callbacks") or []
    if not any(
        callback["class_path"].endswith("CurveWriter")
        and Path(callback["init_args"]["dirpath"]) == folder
        for callback in callbacks
    ):
        raise ValueError(
            f"trainer.callbacks: results are read from summary.json, so the base needs"
            f" r1lit.callbacks.CurveWriter with dirpath: {old}"
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
