"""Composition of YAML files and the command line into one configuration, before parsing.

Files are merged in the order of their ``-c``; keys on the command line come last.

    mapping          merged key by key
    list             replaced; ``key+`` appends to the list ``key``, a mapping changes its last item
    other class_path replaces the class and all its arguments: it starts from its own defaults
    model            a path, and how its weights are held, add up: ``policy: models/mini`` and
                     ``policy: {dtype: bfloat16}`` are one `r1lit.policy.ModelSource`
    run              the run folder, the same as ``trainer.default_root_dir``
    r1lit:NAME       a config, or a policy's folder (``r1lit:models/mini``), shipped with r1lit: in
                     a checkout they lie in ``configs`` and ``models``, a wheel holds copies
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from r1lit.errors import hint, import_path
from r1lit.files import looked_in
from r1lit.refused import class_paths, given_keys, load_classes

Config = dict[str, Any]
ROOT_DIR = "default_root_dir"
SUBCOMMANDS = ("fit", "validate", "test", "predict")
SHIPPED = "r1lit:"
CLASS = {"class_path", "init_args", "dict_kwargs"}
MODEL_KEYS = frozenset(
    ("path", "dtype", "attention", "from_scratch", "trust_remote_code", "adapter", "quantization")
)
"""Fields of `r1lit.policy.ModelSource`, whose import takes seconds."""


class YAMLLoader(yaml.SafeLoader):
    """YAML in which 1e-5 is a number, as the parser of the command line has it, and keys differ."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Make a mapping; a key that is there twice is an error."""
        merge = "tag:yaml.org,2002:merge"
        keys = [(key.tag, key.value) for key, _ in node.value if key.tag != merge]
        twice = next((value for tag, value in keys if keys.count((tag, value)) > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {twice!r} is there twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


class YAMLDumper(yaml.SafeDumper):
    """Writes YAML for ``YAMLLoader`` to read: a text like "1e-5" in quotes."""


for _kind in (YAMLLoader, YAMLDumper):
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
        if not CLASS & fragment.keys():
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
        elif isinstance(value, str) and isinstance(old, dict) and old.keys() & CLASS:
            merged[key] = merge(old, {"class_path": value})
        elif {type(old), type(value)} == {str, dict} and _is_model(old) and _is_model(value):
            merged[key] = merge(_source(old), _source(value))
        elif isinstance(value, dict) and isinstance(old, str) and old.split(".")[-1][:1].isupper():
            merged[key] = merge({"class_path": old}, value)
        elif isinstance(value, dict) and isinstance(old, list) and old:
            last = {"class_path": old[-1]} if _is_path(old[-1]) else old[-1]
            merged[key] = [*old[:-1], merge({key: last}, {key: value})[key]]
        else:
            merged.pop(f"{key}+", None)
            merged[key] = value
    return merged


def _is_path(node: Any) -> bool:
    """Return whether a value may be the dotted path of a class or function."""
    return isinstance(node, str) and "." in node and node.replace(".", "").isidentifier()


def _is_model(node: Any) -> bool:
    """Return whether a value may be a model: its path, or fields of `r1lit.policy.ModelSource`."""
    if not isinstance(node, dict):
        return isinstance(node, str)
    return bool(node) and node.keys() <= MODEL_KEYS


def _source(node: Any) -> Config:
    return {"path": node} if isinstance(node, str) else node


def same_class(one: Any, other: Any) -> bool:
    """Return whether two class paths name one class; a bare name is that of any module.

    >>> same_class("GRPO", "r1lit.objectives.GRPO")
    True
    >>> same_class("torch.optim.AdamW", "torch.optim.adamw.AdamW")
    True
    """
    (left, _, name), (right, _, other_name) = str(one).rpartition("."), str(other).rpartition(".")
    if one == other or name != other_name or not (left and right):
        return name == other_name
    try:
        return import_path(one) is import_path(other)
    except (ImportError, AttributeError):
        return False


def compose(args: Sequence[str]) -> list[str]:
    """Return the command line with its ``-c`` files merged into one.

    Raises:
        ValueError: if a file cannot be read, or two run folders are named.
    """
    at = next(i for i, arg in enumerate(args) if arg in SUBCOMMANDS) + 1
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-c", "--config", action="append", default=[])
    given, others = parser.parse_known_args([*args[: at - 1], *args[at:]])
    keys, left = given_keys(others)
    for arg in left:
        if Path(arg).suffix in (".yaml", ".yml"):
            raise ValueError(f"{arg}: a configuration is named by -c: -c {arg}")
    config: Config = {}
    for source in given.config:
        config = _merged_with_run(config, read(source))
    folders = [text for key, text in keys if key in ("run", f"trainer.{ROOT_DIR}")]
    if len(set(map(Path, folders))) > 1:
        raise ValueError(f"run: {folders[0]} and {folders[1]} are both named; a run has one folder")
    if folders and not any(
        key.endswith(".dirpath") and key.startswith("model.") for key, _ in keys
    ):
        config = _merged_with_run(config, {"run": folders[-1]})
    for key, text in [*keys, *_named_by_table(config, dict(keys))]:
        value = _value(text)
        for part in reversed(key.split(".")):
            value = {part: value}
        config = merge(config, value)
    run = folders[-1] if folders else config.get("run")
    if run == "":
        raise ValueError("run: '' names no folder; --run runs/mine would")
    if run not in (None, "null"):
        config = merge(config, {"run": run, "trainer": {ROOT_DIR: run}})
        _keep_logs_there(config)
        _refuse_file_in_the_way(Path(run))
    made = ["--config", yaml.dump(config, Dumper=YAMLDumper, sort_keys=False)] if config else []
    return [args[at - 1], *made, *_in_full(left)]


def as_mapping(composed: Sequence[str]) -> Config:
    """Return the configuration in what ``compose`` returned."""
    config: Config = {}
    if composed[1:2] == ["--config"]:
        config = yaml.load(composed[2], Loader=YAMLLoader)
    return config


def read(source: str) -> Config:
    """Read a YAML file, or a mapping given as text, with paths in the place of ``r1lit:`` names.

    Raises:
        ValueError: if it is neither, or names what r1lit does not ship.
    """
    config: Config = resolved(parse(source), beside=source.startswith(SHIPPED))
    return config


def parse(source: str) -> Config:
    """Read a YAML file, or a mapping given as text, with ``r1lit:`` names as they stand."""
    is_text = source.lstrip().startswith("{") or "\n" in source
    name = repr(source[:60]) if is_text else source
    path = find(source) if source.startswith(SHIPPED) else Path(source)
    try:
        config = yaml.load(source if is_text else path.read_text(), Loader=YAMLLoader)
    except OSError as error:
        own = SHIPPED + source.removeprefix("configs/")
        instead = f"; r1lit ships {own}" if own.removeprefix(SHIPPED) in _shipped() else ""
        why = f"{error.strerror}{looked_in(path)}"
        raise ValueError(f"config: {source} cannot be read ({why}){instead}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"config: {name} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict | None):
        raise ValueError(f"config: {name} holds {type(config).__name__}, not keys with values")
    return config or {}


def root() -> Path:
    """Return the folder of ``configs`` and ``models``."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "shipped"
    return installed if installed.is_dir() else package.parent


def find(name: str) -> Path:
    """Return where ``r1lit:<path>`` lies: a config, or below ``models``.

    Raises:
        ValueError: if there is none, naming those that are there.
    """
    found = _shipped().get(name.removeprefix(SHIPPED))
    if found is None:
        known = [f"{SHIPPED}{path}" for path in _shipped()]
        raise ValueError(
            f"{name}: r1lit ships nothing of that name{hint(name, known) or ';'} there are"
            f" {', '.join(known)}"
        )
    return found


def _shipped() -> dict[str, Path]:
    """Return all that r1lit ships, models first: the path that names it -> where it lies."""
    found = {f"models/{path.name}": path for path in sorted((root() / "models").glob("*"))}
    configs = root() / "configs"
    return found | {p.relative_to(configs).as_posix(): p for p in sorted(configs.rglob("*.yaml"))}


def resolved(node: Any, *, beside: bool = False) -> Any:
    """Return a configuration with every ``r1lit:`` name replaced by its path.

    Where it lies ``beside`` the models, as shipped configs do, ``models/<name>`` is one too.
    """
    if isinstance(node, dict):
        return {key: resolved(value, beside=beside) for key, value in node.items()}
    if isinstance(node, list):
        return [resolved(value, beside=beside) for value in node]
    if isinstance(node, str) and node.startswith(SHIPPED):
        return str(find(node))
    if beside and isinstance(node, str) and node.startswith("models/") and (root() / node).exists():
        return str(root() / node)
    return node


def _in_full(args: Sequence[str]) -> list[str]:
    """Return the arguments with class paths for the bare names of classes that help is for."""
    is_help = any(
        arg in ("-h", "--help") or arg.partition("=")[0].endswith(".help") for arg in args
    )
    classes = class_paths() if is_help else {}
    if is_help:
        load_classes()
    parts = [arg.rpartition("=") for arg in args]
    return [f"{key}{equals}{classes.get(value, value)}" for key, equals, value in parts]


def _merged_with_run(config: Config, fragment: Config) -> Config:
    """Merge a file; a run folder that it names is an evaluation's folder too."""
    trainer = fragment.get("trainer")
    folder = trainer.get(ROOT_DIR) if isinstance(trainer, dict) else None
    run = fragment.get("run") or folder
    if run and folder and Path(run) != Path(folder):
        raise ValueError(
            f"run: {run} and trainer.{ROOT_DIR}: {folder} differ; run names the run folder"
        )
    model: Any = config.get("model")
    if run and isinstance(model, dict) and isinstance(model.get("init_args"), dict):
        kept = {key: value for key, value in model["init_args"].items() if key != "dirpath"}
        config = {**config, "model": {**model, "init_args": kept}}
    return merge(config, {**fragment, "run": run} if run else fragment)


def _named_by_table(config: Config, keys: dict[str, str]) -> list[tuple[str, str]]:
    """Return the ``source`` that a table of the command line is reported by, unless it is given.

    The YAML's name is that of its own table: other problems shall not be reported as ``gsm8k``.
    """
    named = []
    for key, path in keys.items():
        parts = [part for part in key.split(".") if part != "init_args"]
        if len(parts) != 3 or parts[0] != "data" or parts[2] != "path":
            continue
        source = f"{key.removesuffix('path')}source"
        data = config.get("data", {}).get("init_args", {}).get(parts[1])
        table = data[-1].get("init_args", {}) if isinstance(data, list) and data else {}
        if "source" in table and source not in keys and path != table.get("path"):
            named.append((source, Path(path).name.split(".")[0]))
    return named


def _value(text: str) -> Any:
    """Return the value that a key of the command line is set to.

    It stays a text, which the parser reads by the type of its key, but for mappings, lists, true,
    false, null, files and ``r1lit:`` names.
    """
    if text in ("null", "true", "false") or text[:1] in ("[", "{"):
        with suppress(yaml.YAMLError):
            value = yaml.load(text, Loader=YAMLLoader)
            # "{question}" is a wording, not a mapping
            is_wording = isinstance(value, dict) and all(v is None for v in value.values())
            return text if is_wording else value
    is_file = Path(text).suffix in (".yaml", ".yml") and Path(text).is_file()
    return read(text) if is_file else resolved(text)


def _keep_logs_there(config: Config) -> None:
    """Let loggers that name no folder write to the run folder."""
    for logger in _listed(config["trainer"].get("logger")):
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


def move_paths(node: Any, old: Path, new: Path) -> Any:
    """Return ``node`` with every path in or under ``old`` moved to ``new``.

    A logger that spells such a folder as ``save_dir`` and ``name`` is spelt again. From the working
    folder nothing moves: in it any relative path and any class_path would be.

    >>> move_paths({"dirpath": "runs/a/b", "policy": "runs/ab"}, Path("runs/a"), Path("runs/c"))
    {'dirpath': 'runs/c/b', 'policy': 'runs/ab'}
    """
    if old == Path():
        return node
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
