"""A pipeline file: an ordered list of steps, as data.

    run: runs/r1                          # the run folder; another seed gets runs/r1-seed-<seed>
    seed: 0
    moves: {models/mini: runs/base/policy}    # folders of the named configs that are elsewhere here
    assumes: {gpus: 1}                    # what a plan takes for granted (experiments.r1.dry_run)
    steps:
      - name: dev1                        # letters, digits, . - _
        stage: Cold start                 # a heading in the tree; --from and --only know it too
        command: fit                      # fit, validate, test or predict of r1lit ...
        config: [configs/r1/1_cold_start.yaml]   # ... merged in order, as by repeated -c
        set: {trainer: {max_epochs: 3}}   # a fragment over them
        arguments: [--data.packing.max_seq_len=640]
        reads: [models/mini, runs/r1/cold.jsonl]  # files and folders whose content matters
        writes: [runs/r1/dev1/policy]             # files and folders that stand when it is done
        needs: [cold]                     # earlier steps; those that write what it reads are known
      - name: table
        stage: Table
        module: experiments.r1.table      # or a Python module with arguments
        arguments: ["{run}"]
        scores: {pass_at_1: "runs/r1/summary.json:stages.0.reasoning_pass_at_1"}

``{run}`` and ``{seed}`` are filled in everywhere, in the named configs too, and every path in or
under the file's own run folder moves along to the folder of another seed. r1lit's commands get
``seed_everything``. ``folder`` is where a step keeps its numbers: of a ``fit`` the config's
``run``, of an evaluation its ``model.init_args.dirpath``, unless it is given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from experiments.compose import (
    Config,
    as_mapping,
    check_keys,
    fill_in,
    merge,
    move_paths,
    run_of,
)
from experiments.sweep import OF_A_STUDY, folder_name

COMMANDS = ("fit", "validate", "test", "predict")
STEP_KEYS = (
    "name", "stage", "command", "config", "set", "module", "arguments", "reads", "writes",
    "needs", "folder", "scores", "seeds",
)  # fmt: skip
LIST_KEYS = ("config", "arguments", "reads", "writes", "needs")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command: what it is, what it reads and writes, and the earlier steps it needs."""

    name: str
    stage: str
    command: str | None = None
    module: str | None = None
    configs: list[Config] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    reads: list[Path] = field(default_factory=list)
    writes: list[Path] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    folder: Path | None = None
    scores: dict[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Names the command and its whole configuration, not the code behind it."""
        content = [self.command, self.module, self.configs, self.arguments]
        text = json.dumps(content, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A pipeline file, read for one seed: the run folder and the steps in their order."""

    path: Path
    run: Path
    seed: int
    steps: list[Step]
    assumes: Config = field(default_factory=dict)

    def chosen(self, words: Sequence[str], option: str) -> list[Step]:
        """Return the steps that ``words`` name, by name or by stage.

        Raises:
            ValueError: for a word that is neither.
        """
        for word in words:
            if not any(word in (step.name, step.stage) for step in self.steps):
                names = ", ".join(step.name for step in self.steps)
                raise ValueError(f"{option}: no step or stage is called {word!r}; steps: {names}")
        return [step for step in self.steps if {step.name, step.stage} & set(words)]


def read_pipeline(
    path: Path,
    seed: int | None = None,
    run: Path | None = None,
    values: Mapping[str, str | None] | None = None,
) -> Pipeline:
    """Read a pipeline file for a seed; the file's own if left out.

    Steps with a grid are not the pipeline's, nor are those of other ``seeds``: a study makes them
    before and between these (`experiments.study`). ``values`` are of its arguments.

    Raises:
        ValueError: naming the step and the key that is unknown, missing or wrong.
    """
    content = fill_in(_read("pipeline", path), values or {})
    check_keys(
        path,
        content,
        {"run": str, "steps": list},
        ("seed", "seeds", "moves", "assumes", *OF_A_STUDY),
    )
    own = content.get("seed", 0)
    seed = own if seed is None else seed
    if not isinstance(seed, int) or seed < 0:
        raise ValueError(f"{path}: seed: {seed!r} is not an integer from 0")
    moves = as_mapping(f"{path}: moves", content.get("moves"))
    if not all(isinstance(text, str) for text in (*moves, *moves.values())):
        raise ValueError(f"{path}: moves: {moves!r} is not a mapping from folder to folder")
    old = Path(content["run"])
    if run is None:
        run = old if seed == own else old.with_name(f"{old.name}-seed-{seed}")
    place = _Place(old=old, run=run, seed=seed, moves=moves)
    steps: list[Step] = []
    for given in content["steps"]:
        own_seeds = given.get("seeds", [seed]) if isinstance(given, dict) else [seed]
        if not (isinstance(given, dict) and "grid" in given) and seed in own_seeds:
            steps.append(_step(path, given, place, steps))
    assumes = as_mapping(f"{path}: assumes", content.get("assumes"))
    return Pipeline(path=path, run=run, seed=seed, steps=steps, assumes=assumes)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where a pipeline is put: fills in placeholders and moves paths."""

    old: Path
    run: Path
    seed: int
    moves: dict[str, str]

    def __call__(self, node: Any) -> Any:
        return move_paths(self._filled(node), self.old, self.run)

    def config(self, config: Config) -> Config:
        """Return a named config, moved; what ``moves`` names first."""
        for old, new in self.moves.items():
            config = move_paths(config, Path(old), Path(new))
        return self(config)

    def _filled(self, node: Any) -> Any:
        if isinstance(node, dict):
            return {key: self._filled(value) for key, value in node.items()}
        if isinstance(node, list):
            return [self._filled(value) for value in node]
        if isinstance(node, str):
            return node.replace("{run}", str(self.run)).replace("{seed}", str(self.seed))
        return node

    def word(self, text: Any) -> str:
        """Return a word of a command line; of ``--key=path`` the path moves."""
        key, equals, value = str(text).partition("=")
        if equals and key.startswith("-"):
            return f"{key}={self(value)}"
        return str(self(str(text)))

    def score(self, text: str) -> str:
        """Return ``file:key``, moved."""
        file, colon, key = text.partition(":")
        return f"{self(file)}{colon}{key}"


def _step(path: Path, given: Any, place: _Place, earlier: Sequence[Step]) -> Step:
    given = as_mapping(f"{path}: steps", given)
    name = folder_name(f"{path}: steps: name", given.get("name"))
    where = f"{path}: step {name}"
    check_keys(where, given, {}, STEP_KEYS)
    for key in LIST_KEYS:
        words, kind = given.get(key, []), str | int | float if key == "arguments" else str
        if not isinstance(words, list) or not all(isinstance(word, kind) for word in words):
            raise ValueError(f"{where}: {key}: {words!r} is not a list of texts")
    if any(step.name == name for step in earlier):
        raise ValueError(f"{where}: name: an earlier step has it too")
    command, module = given.get("command"), given.get("module")
    if (command is None) == (module is None):
        raise ValueError(f"{where}: command ({', '.join(COMMANDS)}) or module, one of the two")
    if command is not None and command not in COMMANDS:
        raise ValueError(f"{where}: command: {command!r} is not one of {', '.join(COMMANDS)}")
    if not isinstance(module, str | None):
        raise ValueError(f"{where}: module: {module!r} is not the name of a module")
    configs: list[Config] = []
    if command is not None:
        for file in given.get("config", []):
            configs.append(place.config(_read(f"{where}: config", Path(place(file)))))
        fragment = place(as_mapping(f"{where}: set", given.get("set")))
        configs.append(merge({"seed_everything": place.seed}, fragment))
    elif "config" in given or "set" in given:
        raise ValueError(f"{where}: config and set go with command; give the module arguments")
    folder = place(given["folder"]) if "folder" in given else _folder(command, merge({}, *configs))
    if not isinstance(folder, str | None):
        raise ValueError(f"{where}: folder: {folder!r} is not a path")
    scores = as_mapping(f"{where}: scores", given.get("scores"))
    writes = [Path(place(text)) for text in given.get("writes", [])]
    reads = [Path(place(text)) for text in given.get("reads", [])]
    _refuse_sharing(where, writes, earlier)
    return Step(
        name=name,
        stage=str(given.get("stage", name)),
        command=command,
        module=module,
        configs=configs,
        arguments=[place.word(word) for word in given.get("arguments", [])],
        reads=reads,
        writes=writes,
        needs=_needs(where, given.get("needs", []), reads, place.run, earlier),
        folder=None if folder is None else Path(folder),
        scores={str(k): place.score(str(v)) for k, v in scores.items()},
    )


def _read(where: str, path: Path) -> Config:
    if not path.is_file():
        raise ValueError(f"{where}: there is no file {str(path)!r} (from {Path.cwd()})")
    try:  # not r1lit's reader, by which 1e-4 is a number and every digest another
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{where}: {path} is not YAML: {why}") from error
    return as_mapping(f"{where}: {path}", content)


def _folder(command: str | None, config: Config) -> str | None:
    if command in ("test", "predict"):
        dirpath = config.get("model", {}).get("init_args", {}).get("dirpath")
        if dirpath:
            return dirpath
    return run_of(config)


def overlap(a: Path, b: Path) -> bool:
    """Whether one of two paths is the other, or lies in it."""
    return a.is_relative_to(b) or b.is_relative_to(a)


def _refuse_sharing(where: str, writes: Sequence[Path], earlier: Sequence[Step]) -> None:
    for path in writes:
        for step in earlier:
            if any(overlap(path, other) for other in step.writes):
                raise ValueError(f"{where}: writes: {path} is written by step {step.name} too")


def _needs(
    where: str, given: Sequence[str], reads: Sequence[Path], run: Path, earlier: Sequence[Step]
) -> list[str]:
    names = [step.name for step in earlier]
    for name in given:
        if name not in names:
            raise ValueError(f"{where}: needs: there is no earlier step {name!r}")
    wanted = set(given)
    for path in reads:
        writers = {s.name for s in earlier if any(overlap(path, other) for other in s.writes)}
        if not writers and path.is_relative_to(run):
            raise ValueError(f"{where}: reads: no earlier step writes {path}")
        wanted |= writers
    return [name for name in names if name in wanted]
