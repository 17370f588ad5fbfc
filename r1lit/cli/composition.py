"""Composing YAML files and the command line: one meaning, decided before anything is parsed.

Files are merged in the order of their ``-c``; keys on the command line come last.

    mapping          merged key by key
    list             replaced; ``key+`` appends to the list ``key``
    other class_path replaces the class and all its arguments: it starts from its own defaults
    run              the run folder, the same as ``trainer.default_root_dir``
    r1lit:NAME       what is shipped with r1lit: `r1lit.cli.shipped`
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from r1lit.cli import shipped
from r1lit.cli.renamed import refuse_old_class, refuse_old_key, refuse_old_names
from r1lit.errors import names

Config = dict[str, Any]
FOLDER = ("run", "trainer.default_root_dir")
OWN_FOLDER = ("model.dirpath", "model.init_args.dirpath")
SUBCOMMANDS = ("fit", "validate", "test", "predict")


class Loader(yaml.SafeLoader):
    """YAML in which 1e-5 is a number, as the parser of the command line has it."""


class Dumper(yaml.SafeDumper):
    """Writes what ``Loader`` reads: a text like "1e-5" in quotes."""


for _kind in (Loader, Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def merge(base: Config, fragment: Config) -> Config:
    """Return the base with the fragment's values over it.

    >>> merge({"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b+": [2]})
    {'a': {'x': 1, 'y': 3}, 'b': [1, 2]}
    >>> merge({"class_path": "GRPO", "init_args": {"epsilon": 1}}, {"class_path": "DAPO"})
    {'class_path': 'DAPO'}
    """
    if "class_path" in base:
        if not same_class(fragment.get("class_path", base["class_path"]), base["class_path"]):
            return fragment
        if not {"class_path", "init_args", "dict_kwargs"} & fragment.keys():
            fragment = {"init_args": fragment}
    merged = dict(base)
    for key, value in fragment.items():
        old = merged.get(key)
        appends = str(key).endswith("+")  # a key may be a number
        if appends and isinstance(merged.get(key[:-1]), list):
            merged[key[:-1]] = [*merged[key[:-1]], *_listed(value)]
        elif appends and old is not None:
            merged[key] = [*_listed(old), *_listed(value)]
        elif isinstance(value, dict) and isinstance(old, dict):
            merged[key] = merge(old, value)
        elif isinstance(value, str) and isinstance(old, dict) and "class_path" in old:
            merged[key] = merge(old, {"class_path": value})
        else:
            merged.pop(f"{key}+", None)
            merged[key] = value
    return merged


def same_class(one: Any, other: Any) -> bool:
    """Return whether two class paths name one class; a bare name is that of any module.

    >>> same_class("GRPO", "r1lit.objectives.GRPO")
    True
    >>> same_class("torch.optim.AdamW", "torch.optim.adamw.AdamW")
    True
    """
    if one == other:
        return True
    (left, _, name), (right, _, other_name) = str(one).rpartition("."), str(other).rpartition(".")
    if name != other_name:
        return False
    if not (left and right):
        return True
    try:
        classes = [getattr(importlib.import_module(m), name) for m in (left, right)]
    except (ImportError, AttributeError):
        return False
    return classes[0] is classes[1]


def compose(args: Sequence[str]) -> list[str]:
    """Return the command line with its ``-c`` files merged into one.

    Raises:
        ValueError: if a file cannot be read, an old name is used, or two run folders are named.
    """
    command = next((i for i, arg in enumerate(args) if arg in SUBCOMMANDS), None)
    if command is None:
        return list(args)
    sources, others = _take_configs(_with_whole_names(args[command + 1 :]))
    others = [_shipped(arg) for arg in others]
    config: Config = {}
    for source in sources:
        config = merge(_moved(config, fragment := read(source)), _with_run(fragment))
    refuse_old_names(config)
    given = _keys(others)
    for key, value in given:
        _make_room(config, key, value)
    folders = [v for key, v in given if key in FOLDER and v not in ("", "null")]
    if len(set(map(Path, folders))) > 1:
        raise ValueError(f"run: {folders[0]} and {folders[1]} are both named; a run has one folder")
    if folders and not any(key in OWN_FOLDER for key, _ in given):
        config = _moved(config, {"run": folders[-1]})
    if folders or config.get("run"):
        config = merge(config, _with_run({"run": (folders or [config["run"]])[-1]}))
        _keep_logs_there(config)
        _refuse_file_in_the_way(Path(config["run"]))
    made = ["--config", yaml.dump(config, Dumper=Dumper, sort_keys=False)] if config else []
    return [*args[: command + 1], *made, *others]


def read(source: str) -> Config:
    """Read a YAML file, or a mapping given as text, with paths in the place of ``r1lit:`` names.

    Raises:
        ValueError: if it is neither.
    """
    config: Config = shipped.resolve(parse(source), beside=source.startswith(shipped.PREFIX))
    return config


def parse(source: str) -> Config:
    """Read the same with ``r1lit:`` names as they stand."""
    path = shipped.find(source) if source.startswith(shipped.PREFIX) else Path(source)
    is_text = source.lstrip().startswith("{") or "\n" in source
    name = repr(source[:60]) if is_text else source
    try:
        config = yaml.load(source if is_text else path.read_text(), Loader=Loader)
    except OSError as error:
        why = f"({error.strerror}){shipped.instead_of(source)}"
        raise ValueError(f"config: {source} cannot be read {why}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"config: {name} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict | None):
        raise ValueError(f"config: {name} holds {type(config).__name__}, not keys with values")
    return config or {}


def _with_run(config: Config) -> Config:
    """Return a file's configuration with its run folder under both of its names."""
    trainer = config.get("trainer")
    root = trainer.get("default_root_dir") if isinstance(trainer, dict) else None
    run = config.get("run") or root
    if not run:
        return config
    if root and Path(root) != Path(run):
        raise ValueError(
            f"run: {run} and trainer.default_root_dir: {root} differ; run names the run folder"
        )
    return merge(config, {"run": run, "trainer": {"default_root_dir": run}})


def _moved(config: Config, fragment: Config) -> Config:
    """Return what was merged before; a run folder named now is an evaluation's folder too."""
    model: Any = config.get("model")
    arguments = model.get("init_args") if isinstance(model, dict) else None
    names_one = _with_run(fragment).get("run")
    if names_one and isinstance(arguments, dict) and "dirpath" in arguments:
        kept = {key: value for key, value in arguments.items() if key != "dirpath"}
        return {**config, "model": {**model, "init_args": kept}}
    return config


def _keep_logs_there(config: Config) -> None:
    """Let loggers that name no folder write to the run folder."""
    loggers = config["trainer"].get("logger")
    for logger in _listed(loggers):
        if isinstance(logger, dict) and "class_path" in logger:
            arguments = logger.setdefault("init_args", {})
            if "save_dir" not in arguments:
                arguments["save_dir"] = config["run"]
                if logger["class_path"].endswith(("TensorBoardLogger", "CSVLogger")):
                    arguments |= {"name": "", "version": ""}


def _refuse_file_in_the_way(run: Path) -> None:
    there = next((folder for folder in (run, *run.parents) if os.path.lexists(folder)), run)
    if os.path.lexists(there) and not there.is_dir():
        raise ValueError(
            f"run: {run} cannot be a folder, since {there} is a file; move it away, or name another"
            " folder by --run"
        )


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _shipped(arg: str) -> str:
    """Return an argument, ``r1lit:name`` or ``--key=r1lit:name``, with the path for the name."""
    key, equals, value = arg.rpartition("=")
    return f"{key}{equals}{shipped.resolve(value)}"


def _take_configs(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the values of ``-c`` and ``--config``, and the other arguments."""
    configs, others = [], []
    left = iter(args)
    for arg in left:
        name, equals, value = arg.partition("=")
        if name in ("-c", "--config"):
            configs.append(value if equals else next(left, ""))
        else:
            others.append(arg)
    return configs, others


def _with_whole_names(args: Sequence[str]) -> list[str]:
    """Return the arguments with r1lit's classes named whole where help is requested.

    >>> _with_whole_names(["--model.help", "GRPOModule"])
    ['--model.help', 'r1lit.modules.GRPOModule']
    """
    if not any(arg.partition("=")[0].endswith(".help") for arg in args):
        return list(args)
    classes, whole = names(), list(args)
    for i, arg in enumerate(args):
        key, equals, value = arg.partition("=")
        if key.endswith(".help") and equals:
            whole[i] = f"{key}={classes.get(value, value)}"
        elif key.endswith(".help") and i + 1 < len(args):
            whole[i + 1] = classes.get(args[i + 1], args[i + 1])
    return whole


def _keys(args: Sequence[str]) -> list[tuple[str, str]]:
    """Return the keys and values of a command line, in order.

    >>> _keys(["--a.b", "1", "--c=2", "--flag"])
    [('a.b', '1'), ('c', '2'), ('flag', '')]
    """
    pairs: list[tuple[str, str]] = []
    for arg in args:
        if arg.startswith("--"):
            name, _, value = arg[2:].partition("=")
            pairs.append((name, value))
        elif pairs and not pairs[-1][1]:
            pairs[-1] = (pairs[-1][0], arg)
    return pairs


def _make_room(config: Config, key: str, text: str) -> None:
    """Take out of ``config`` what a key on the command line replaces whole, checking its names."""
    parts = [part for part in key.split(".") if part != "init_args"]
    parent: Any = None
    node: Any = config
    where = ""
    for part in parts:
        if isinstance(node, list):
            node = node[-1] if node else None
        if not isinstance(node, dict):
            return
        if {"class_path", "init_args"} & node.keys() and part not in ("class_path", "dict_kwargs"):
            refuse_old_key(where, str(node.get("class_path")), part)
            node = node.get("init_args") or {}
        parent, node = node, node.get(part)
        where = f"{where}.{part}".lstrip(".")
    value = _value(text)
    new_class = value.get("class_path") if isinstance(value, dict) else value
    refuse_old_names(value, where)
    if parts[-1] == "class_path":
        node = parent
    if isinstance(node, dict) and "class_path" in node and isinstance(new_class, str):
        refuse_old_class(where.removesuffix(".class_path"), new_class)
        if not same_class(new_class, node["class_path"]):
            node.pop("init_args", None)
            node.pop("dict_kwargs", None)
    elif isinstance(node, list) and isinstance(value, list):
        del parent[parts[-1]]


def _value(text: str) -> Any:
    try:
        value = yaml.load(text, Loader=Loader)
        is_file = isinstance(value, str) and Path(value).suffix in (".yaml", ".yml")
        return read(value) if is_file and Path(value).is_file() else value
    except yaml.YAMLError:
        return text
