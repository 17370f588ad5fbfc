"""The configuration of a run: compared when it is resumed, and passed to loggers."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from functools import cached_property
from os.path import isfile
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import yaml
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.utilities import rank_zero_warn

from r1lit.callbacks.base import finished_iterations, run_folder
from r1lit.callbacks.progress import last_checkpoint
from r1lit.errors import import_path
from r1lit.files import replace_file
from r1lit.policy.source import ModelSource, policy_fingerprint
from r1lit.protocols import MayChange

COMPARED = ("model", "data")
MAY_CHANGE_ON_RESUME = {
    "num_iterations",
    "micro_batch_tokens",
    "gradient_checkpointing",
    "max_rows",
    "compile",
}
"""Keys that may differ on resume without a word: a longer run, another split of the same work."""
SPELT_OUT_DEFAULTS = {"engine": "r1lit.rollout.InProcessEngine", "grader": "r1lit.verifiers.Grader"}
"""Classes, with their defaults, that keys which are left out stand for."""
OF_OPTIMISER = ("model.init_args.optimizer", "model.init_args.lr_scheduler")
NOT_COMPARED = ("ckpt_path", "resume_changed")


class RunConfig(SaveConfigCallback):
    """Writes ``config.yaml`` when training begins, and gives it to the loggers.

    Model's and data's half is kept in the checkpoint. A run that resumes with other values is
    refused, in one line that says what changed. With ``resume_changed: true`` it goes on with the
    new ones after a warning; a changed optimiser or scheduler is set as if it had been there from
    the first update. ``config.yaml`` is then the new configuration; the one before it, which
    iterations up to n ran with, stays as ``config-until-n.yaml``.

    A fit that is not resumed is refused in a folder that holds a run.
    """

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Refuse to begin anew where a run has been.

        Raises:
            ValueError: naming the folder and the ways on.
        """
        self._fitting = stage == "fit"
        self._of_optimiser = False
        self._may_change = bool(getattr(self.config, "resume_changed", False))
        self._trial = bool(trainer.fast_dev_run)  # type: ignore[attr-defined]
        if self._fitting and not self._trial and not getattr(self.config, "ckpt_path", None):
            refuse_used_folder(trainer)
        data = trainer.datamodule  # type: ignore[attr-defined]
        if self._fitting and self._may_change and isinstance(data, MayChange):
            data.accepts_changed_data = True

    def state_dict(self) -> dict[str, Any]:
        """Return the settings to compare on resume; all checkpoints of one start hold the same."""
        return self._compared

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Compare with the run that wrote the checkpoint, before its data are compared.

        Raises:
            ValueError: naming each key that changed, its old and its new value.
        """
        saved = checkpoint["callbacks"].get(self.state_key)
        if not self._fitting or saved is None:
            return
        own = self._compared
        before = spelt_out(saved["config"])
        known = {_spelt_key(k): v for k, v in saved.get("weights", {}).items()}
        known = known or dict(weights_of(before))
        changed = [
            (key, old, new)
            for key, old, new in differences(before, own["config"])
            if own["weights"].get(key) is None or own["weights"][key] != known.get(key)
        ]
        if not changed:
            return
        changes = ", ".join(f"{key} was {old} and is {new}" for key, old, new in changed[:8])
        more = f" and {len(changed) - 8} more" if len(changed) > 8 else ""
        if not self._may_change:
            raise ValueError(
                "ckpt_path: the checkpoint is of a run with another configuration:"
                f" {changes}{more}; set it back, begin a new run in another folder, or continue"
                " with --resume_changed true"
            )
        self._of_optimiser = any(key.startswith(OF_OPTIMISER) for key, _, _ in changed)
        rank_zero_warn(f"ckpt_path: continuing although {changes}{more}")

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Give loggers the configuration; keep what a changed optimiser starts from.

        Its state is not restored yet, and the loggers have not saved their hyper-parameters.
        """
        if trainer.is_global_zero and not self._trial:
            config = self._values
            for logger in trainer.loggers:
                logger.log_hyperparams({k: v for k, v in config.items() if k not in NOT_COMPARED})
        if self._of_optimiser:
            self._fresh = [
                [{k: v for k, v in group.items() if k != "params"} for group in o.param_groups]
                for o in trainer.optimizers
            ]
            schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
            self._fresh_schedules = [dict(scheduler.state_dict()) for scheduler in schedulers]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write ``config.yaml``, now that nothing refused it, and set a changed optimiser."""
        if self._of_optimiser:
            self._set_optimiser(trainer)
        folder = run_folder(trainer) or trainer.log_dir  # on all ranks: a collective call
        if trainer.is_global_zero and not self._trial and folder is not None:
            self._write(Path(folder), finished_iterations(trainer, pl_module))

    def _set_optimiser(self, trainer: pl.Trainer) -> None:
        for optimizer, groups in zip(trainer.optimizers, self._fresh, strict=True):
            for group, fresh in zip(optimizer.param_groups, groups, strict=True):
                group.update(fresh)
        configs = trainer.lr_scheduler_configs
        for config, fresh in zip(configs, self._fresh_schedules, strict=True):
            scheduler: Any = config.scheduler
            num_made = scheduler.last_epoch
            scheduler.load_state_dict(fresh)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that no update comes between these steps
                for _ in range(num_made):
                    scheduler.step()

    @cached_property
    def _text(self) -> str:
        return self.parser.dump(self.config, skip_none=False, skip_validation=True)

    @cached_property
    def _values(self) -> dict[str, Any]:
        return read_yaml(self._text)

    @cached_property
    def _compared(self) -> dict[str, Any]:
        halves = spelt_out({half: self._values.get(half) for half in COMPARED})
        return {"config": halves, "weights": dict(weights_of(halves))}

    def _write(self, folder: Path, num_finished: int) -> None:
        path, config = folder / self.config_filename, self._values
        if num_finished and path.is_file():
            old = read_yaml(path.read_text())
            changed = (key for key, _, _ in differences(old, config, all_=True))
            if any(not key.startswith(NOT_COMPARED) for key in changed):
                path.replace(path.with_name(f"config-until-{num_finished}.yaml"))
        replace_file(path, self._text.encode())


def read_yaml(text: str) -> dict[str, Any]:
    """Return a dumped configuration, read by libyaml where PyYAML has it: ten times as fast.

    >>> read_yaml("run: a")
    {'run': 'a'}
    """
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def refuse_used_folder(trainer: pl.Trainer) -> None:
    """Raise a ValueError if a run's numbers or checkpoints lie where this one would write."""
    folder, last = run_folder(trainer), last_checkpoint(trainer)
    metrics = None if folder is None else folder / "metrics.jsonl"
    used = metrics is not None and metrics.is_file() and metrics.stat().st_size > 0
    if last is not None:
        inside = folder is not None and folder.absolute() in last.absolute().parents
        where = folder if inside else last.parent
        raise ValueError(
            f"run: {where} holds a run, which would be overwritten; continue it"
            " by --ckpt_path last, or begin a new one in another folder by --run"
        )
    if used:
        raise ValueError(
            f"run: {folder} holds a run without a checkpoint, which would be overwritten; begin it"
            " again by --ckpt_path last, or a new one in another folder by --run"
        )


OF_MODELS = ("policy", "critic", "tokenizer", "model")
"""Arguments that are a model's path, or a `r1lit.policy.ModelSource`."""


def spelt_out(node: Any, key: str = "") -> Any:
    """Return a configuration with each model as a mapping of all of its fields.

    Where they were a class's own arguments, before `ModelSource`, they are taken from there.
    """
    if isinstance(node, list):
        return [spelt_out(item) for item in node]
    if not isinstance(node, Mapping):
        return node
    fields_ = {f.name: f.default for f in fields(ModelSource) if f.init} | {"dtype": "float32"}
    whole = {name: spelt_out(value, name) for name, value in node.items()}
    if key == "init_args":
        if "trust_remote_code" in whole:
            flat = {name: whole.pop(name) for name in fields_ if name in whole}
            name = next((n for n in ("policy", "tokenizer") if n in whole), "model")
            whole[name] = {"path": whole.get(name), **flat}
        whole |= {n: {"path": x} for n, x in whole.items() if n in OF_MODELS and isinstance(x, str)}
    for name in OF_MODELS:
        source = whole.get(name)
        if isinstance(source, Mapping) and "path" in source and source.keys() <= fields_.keys():
            whole[name] = fields_ | {n: x for n, x in source.items() if x is not None}
    return whole


def _spelt_key(key: str) -> str:
    """Return the key that weights have where the model is spelt out."""
    owner, _, name = key.rpartition(".")
    if name in OF_MODELS:
        return f"{key}.path"
    return f"{owner}.model.path" if key.endswith(".init_args.path") else key


def weights_of(config: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield the key of each folder with a model, and a digest of its weights.

    However a folder is spelled, its weights are what a run depends on. A text may be a template,
    too long for a file's name.
    """
    if isinstance(config, Mapping):
        for name, value in config.items():
            yield from weights_of(value, f"{key}.{name}" if key else str(name))
    elif isinstance(config, str) and config and isfile(Path(config) / "config.json"):
        digest = policy_fingerprint(config)
        if digest is not None:
            yield key, digest


def differences(
    old: Any, new: Any, key: str = "", all_: bool = False
) -> Iterator[tuple[str, Any, Any]]:
    """Yield keys, by dots, at which two configurations differ, with both values.

    Keys that change no number are left out, unless ``all_``.

    >>> list(differences({"a": {"lr": 1, "b": 2}}, {"a": {"lr": 3, "b": 2}}))
    [('a.lr', 1, 3)]
    """
    left_out = SPELT_OUT_DEFAULTS.get(key.rpartition(".")[2])
    if left_out is not None and not all_:
        old, new = (with_defaults(left_out) if one is None else one for one in (old, new))
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        if not all_ and "class_path" in old and old["class_path"] == new.get("class_path"):
            old, new = (_filled(one, old, new) for one in (old, new))
        for name in sorted({*old, *new}):
            if all_ or name not in MAY_CHANGE_ON_RESUME:
                path = f"{key}.{name}" if key else str(name)
                yield from differences(old.get(name), new.get(name), path, all_)
    elif old != new:
        yield key, old, new


def with_defaults(class_path: str) -> dict[str, Any]:
    """Return the configuration of a class with its defaults.

    >>> with_defaults("r1lit.rewards.Accuracy")
    {'class_path': 'r1lit.rewards.Accuracy', 'init_args': {'weight': 1.0}}
    """
    parameters = inspect.signature(import_path(class_path)).parameters.values()
    arguments = {p.name: p.default for p in parameters if p.default is not p.empty}
    return {"class_path": class_path, "init_args": arguments}


def _filled(config: Mapping[str, Any], *both: Mapping[str, Any]) -> dict[str, Any]:
    """Return a class's configuration with the defaults of keys that only one of ``both`` has.

    A checkpoint of an earlier r1lit lacks the keys that came later.
    """
    arguments = dict(config.get("init_args") or {})
    given = set[str]().union(*(one.get("init_args") or {} for one in both))
    if missing := given - arguments.keys():
        known = with_defaults(config["class_path"])["init_args"]
        for name in missing & known.keys():
            default = known[name]
            arguments[name] = asdict(default) if is_dataclass(default) else default  # type: ignore[arg-type]
    return {**config, "init_args": arguments}
