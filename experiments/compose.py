"""Composing the config of a point: fragments over a base, and the run moved to a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from r1lit.cli import composition
from r1lit.cli.composition import Config, move_paths, read

__all__ = [
    "Config", "as_mapping", "check_keys", "fill_in", "merge", "merged", "move_evaluation",
    "move_paths", "move_run", "run_of", "value_at",
]  # fmt: skip
KINDS: dict[type, str] = {
    dict: "a mapping with an entry",
    list: "a list with an entry",
    str: "a path",
}


def check_keys(
    where: object, content: Config, kinds: Mapping[str, type], optional: Sequence[str] = ()
) -> None:
    """Check the keys of an experiment's file, or of a mapping in it.

    Raises:
        ValueError: for a key that is unknown, missing, empty or not of its kind.
    """
    known = [*kinds, *optional]
    for key in content:
        if key not in known:
            raise ValueError(f"{where}: unknown key {key!r}; known are {', '.join(known)}")
    for key, kind in kinds.items():
        value = content.get(key)
        if not value or not isinstance(value, kind):
            raise ValueError(f"{where}: {key}: {value!r} is not {KINDS[kind]}")


def as_mapping(where: str, value: Any) -> Config:
    """Return a fragment; without keys where nothing is given.

    Raises:
        ValueError: naming ``where``, if it is something else.
    """
    if not isinstance(value, dict | None):
        raise ValueError(f"{where}: {value!r} is not a mapping of keys to values")
    return value or {}


def value_at(node: Any, keys: str) -> Any:
    """Return what dotted keys name in mappings and lists; None where there is nothing.

    >>> value_at({"turns": [{"text": "a"}, {"text": "b"}]}, "turns.-1.text")
    'b'
    """
    for key in filter(None, keys.split(".")):
        if isinstance(node, Mapping):
            node = node.get(key)
        elif isinstance(node, list) and key.lstrip("-").isdigit():
            place = int(key)
            node = node[place] if -len(node) <= place < len(node) else None
        else:
            return None
    return node


def merge(base: Config, *fragments: Config) -> Config:
    """Return the base with the values of each fragment over it, in order."""
    return reduce(composition.merge, fragments, base)


def merged(files: object, where: str) -> Config:
    """Return YAML files merged in order, as by repeated ``-c``.

    Raises:
        ValueError: naming ``where``, and the file that cannot be read or is no YAML.
    """
    if not isinstance(files, list):
        raise ValueError(f"{where}: {files!r} is not a list of files")
    try:
        return merge({}, *map(read, map(str, files)))
    except ValueError as error:
        raise ValueError(f"{where}: {error}; paths are from {Path.cwd()}") from error


def fill_in(node: Any, values: Mapping[str, str | None]) -> Any:
    """Return a config with {name} replaced, for each name that has a value.

    >>> fill_in({"policy": "{student}", "n": [1]}, {"student": "models/small", "teacher": None})
    {'policy': 'models/small', 'n': [1]}
    """
    if isinstance(node, dict):
        return {key: fill_in(value, values) for key, value in node.items()}
    if isinstance(node, list):
        return [fill_in(value, values) for value in node]
    if isinstance(node, str):
        for name, value in values.items():
            node = node if value is None else node.replace(f"{{{name}}}", value)
    return node


def run_of(config: Config) -> str | None:
    """Return the run folder that a config names, as ``run`` or ``trainer.default_root_dir``."""
    return config.get("run") or as_mapping("trainer", config.get("trainer")).get("default_root_dir")


def move_run(config: Config, folder: Path) -> Config:
    """Return the config with its run folder moved to ``folder``.

    Every path in or under the old run folder moves along, whoever's ``dirpath`` it is; a logger
    that spells the old folder as ``save_dir`` and ``name`` is spelt anew.

    Raises:
        ValueError: if the config names no run folder, or keeps no evaluations there, or a callback
            has no class.
    """
    run = run_of(config)
    old = Path(run if isinstance(run, str) else "")
    if not old.parts:
        raise ValueError("run: the base must name its run folder, as runs/aha")
    moved = move_paths(config, old, folder)
    callbacks = as_mapping("trainer", moved.get("trainer")).get("callbacks") or []
    callbacks = callbacks if isinstance(callbacks, list) else [callbacks]
    for callback in callbacks:
        if not isinstance(callback, dict) or not isinstance(callback.get("class_path"), str):
            raise ValueError(f"trainer.callbacks: {callback!r} is not a mapping with a class_path")
    if not any(
        callback["class_path"].endswith("CurveWriter")
        and Path((callback.get("init_args") or {}).get("dirpath") or folder) == folder
        for callback in callbacks
    ):
        raise ValueError(
            f"trainer.callbacks: results are read from summary.json, so the base needs"
            f" r1lit.callbacks.CurveWriter, which writes to {old}"
        )
    return moved


def move_evaluation(config: Config, folder: Path) -> Config:
    """Return the config of ``r1lit test`` with its folder moved, which names its suite too."""
    suite = f"{folder.parent.name}"
    return merge(config, {"model": {"init_args": {"dirpath": str(folder), "suite": suite}}})
