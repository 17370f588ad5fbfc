"""One command of the command line, run by LightningCLI."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import torch
from jsonargparse import ArgumentError
from lightning.fabric.plugins.environments import (
    LSFEnvironment,
    MPIEnvironment,
    SLURMEnvironment,
    TorchElasticEnvironment,
)
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.strategies.launchers.multiprocessing import _MultiProcessingLauncher
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from transformers.utils.logging import disable_progress_bar

from r1lit.callbacks.doctor import Doctor
from r1lit.callbacks.keep_best import check_early_stopping
from r1lit.callbacks.loggers import log_by_iteration
from r1lit.callbacks.profile import Profile
from r1lit.callbacks.progress import LastLines, R1ProgressBar
from r1lit.callbacks.run_config import RunConfig, read_yaml
from r1lit.callbacks.start_checks import StartChecks
from r1lit.cli.composition import as_mapping
from r1lit.cli.dump import without_objects
from r1lit.console import root_fault
from r1lit.device import backend
from r1lit.errors import check_at_least, message_of
from r1lit.files import absent
from r1lit.modules.memory_plan import print_memory_plan
from r1lit.protocols import HasPolicyConfig
from r1lit.refused import CONFIGURATION, Refused, load_classes, null_group
from r1lit.sigterm import calling_on_sigterm, end_after

OPTIONS: dict[str, tuple[Any, str]] = {
    "run": (
        str | None,
        "The run folder: checkpoints, policy, numbers, responses and logs go there.",
    ),
    "slow_bf16": (
        bool,
        "Keep precision bf16-mixed on a CPU that has no instructions for bfloat16.",
    ),
    "resume_changed": (
        bool,
        "Go on from a checkpoint although model or data are configured otherwise now.",
    ),
    "deterministic": (
        bool,
        "Have two runs on the same device give the same bits; docs/RESUME.md has what it costs.",
    ),
    "profile": (
        int | None,
        "Profile so many iterations of a fit: a trace, and a table of the ten slowest operations.",
    ),
    "log_all": (
        bool,
        "Give loggers every number, not only the 25 or so that a run is watched by.",
    ),
}
"""Keys beside Lightning's: their types, and what help says."""

OF_LIGHTNINGS_UPDATES = {
    "accumulate_grad_batches": (
        1,
        "the model's micro_batch_tokens limits the tokens of a backward pass, its train_batch_size"
        " sets the rows of an update",
    ),
    "gradient_clip_val": ("null", "the model's max_grad_norm clips gradients"),
}
"""Keys of the trainer without effect on updates of ours -> the value they keep, the key instead."""

QUIET = (
    ".*does not have many workers.*",  # our loaders have none
    r".*module\(s\) in eval mode at the start of training.*",  # the reference is meant to be
    ".*isinstance.treespec, LeafSpec.*",
    ".*Checkpoint directory .* exists and is not empty.*",
    ".*Total length of `list` across ranks is zero.*",  # no validation
    ".*is not supported by the model summary.*",  # its megabytes are those of 32 bits
    ".*`loftq_config` specified but will be ignored.*",  # jsonargparse gives its default
)
"""Warnings that are about Lightning or its libraries and mean nothing in these runs."""

CHATTY = (
    "lightning.pytorch.utilities.rank_zero",
    "lightning.pytorch.trainer.connectors.checkpoint_connector",
)
"""Loggers that advertise, or repeat themselves at every evaluation."""

REPLACED_MESSAGES = (
    "Detected KeyboardInterrupt",
    "TPU available",
    "GPU available: False",
    "Using bfloat16 Automatic",
    "`Trainer.fit` stopped",
    "`Trainer(val_check_interval",
    "`weights_only` was not set",
    "Restoring states from",
)
"""Beginnings of Lightning's messages that r1lit replaces or leaves out."""


class R1CLI(LightningCLI):
    """LightningCLI whose one seed, ``seed_everything``, is the seed of model and data too.

    On a CPU without instructions for bfloat16, where its products are many times slower than
    those of float32, ``precision: bf16-mixed`` becomes ``32-true``, unless ``slow_bf16`` is set.
    """

    def __init__(self, command: str, **options: Any) -> None:
        self.command = command
        super().__init__(LightningModule, LightningDataModule, **options)

    def subcommands(self) -> dict[str, set[str]]:  # type: ignore[override]
        """Return the one command that is run: a parser for each takes long to build."""
        return {self.command: LightningCLI.subcommands()[self.command]}

    def init_parser(self, **options: Any) -> LightningArgumentParser:
        """Return a parser whose dumps leave out what YAML cannot hold."""
        parser = super().init_parser(**options)
        parser.dump = partial(without_objects, parser.dump)
        return parser

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link the seeds, and add r1lit's own keys."""
        parser.link_arguments("seed_everything", "model.init_args.seed")
        parser.link_arguments("seed_everything", "data.init_args.seed")
        for key, (kind, words) in OPTIONS.items():
            default = False if kind is bool else None
            parser.add_argument(f"--{key}", type=kind, default=default, help=words)

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse the command's arguments.

        Raises:
            ValueError: the first key that is wrong, its value, and what would be right.
        """
        values = self.named = as_mapping(args)
        load_classes(values)
        try:
            self.config = parser.parse_args(args)
        except (ArgumentError, TypeError) as error:
            fault = Refused(self._subcommand_parsers[self.command], values).fault()
            missing = [key for key in ("model", "data") if key not in values]
            if fault is None and missing:
                fault = ValueError(f"{', '.join(missing)}: not given; {CONFIGURATION}")
            raise fault or root_fault(error) from error

        if self.command == "validate" and "verbose" not in values:
            self.config.validate.verbose = False  # `LastLines` prints the numbers that matter

    def _dump_config(self) -> None:
        """Note the hyper-parameters of model and data, as Lightning does, but sooner."""
        if not hasattr(self, "config_dump"):
            text = self.parser.dump(
                self.config, skip_link_targets=False, skip_none=False, skip_validation=True
            )
            self.config_dump = read_yaml(text)[self.command]

    def instantiate_classes(self) -> None:
        """Make trainer, model and data; an error of their own is not wrapped."""
        try:
            super().instantiate_classes()
        except ValueError as error:
            raise null_group(self.named) or root_fault(error) from None

    def before_instantiate_classes(self) -> None:
        """Refuse a run that cannot begin, and choose the precision that this machine is fast in."""
        config = self.config[self.subcommand]
        trainer = config.trainer
        if trainer.accelerator == "gpu" and not torch.accelerator.is_available():
            raise ValueError(
                "trainer.accelerator: 'gpu' is not on this machine; use auto for what the machine"
                " has, or cpu"
            )
        check_ranks(trainer)
        check_checkpoint(config.ckpt_path)
        if self.subcommand == "fit":
            check_validation(config)
            check_rates(config.model)
            warn_of_no_effect(self.named, config.data)
        if trainer.fast_dev_run:  # a trial must not touch what lies in the run folder
            self.trial = TemporaryDirectory(prefix="r1lit-trial-")
            config.run = trainer.default_root_dir = self.trial.name
        fast = backend(torch.device("cpu")).has_fast_bfloat16
        if config.slow_bf16 or trainer.precision != "bf16-mixed" or fast:
            return
        if trainer.accelerator == "cpu" or (
            trainer.accelerator == "auto" and not torch.accelerator.is_available()
        ):
            trainer.precision = "32-true"
            rank_zero_warn(
                "precision: 32-true instead of bf16-mixed, since this CPU has no instructions for"
                " bfloat16 (--slow_bf16 true keeps it)"
            )

    def before_fit(self) -> None:
        """Refuse a run that cannot train; have a rank's memory printed, before weights load."""
        if type(self.model).training_step is LightningModule.training_step:
            raise ValueError(
                f"model: {type(self.model).__name__} does not train; it is for test and predict"
            )
        if not self.model.automatic_optimization:
            check_manual_optimization(self.trainer)
        check_early_stopping(self.trainer)
        check_writable(self.trainer.default_root_dir)
        policy = self.model.policy_config if isinstance(self.model, HasPolicyConfig) else None
        config = self.config.fit.as_dict()
        device = self.trainer.strategy.root_device
        if policy is not None and self.trainer.is_global_zero and device.type == "cuda":
            from r1lit.cli.forecast import lines_of_a_long_run

            for line in lines_of_a_long_run(config, device):
                print(line, flush=True)
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, StartChecks) and policy is not None:
                callback.plan = partial(print_memory_plan, config, policy, self.trainer)

    def before_validate(self) -> None:
        """Refuse an evaluation of nothing."""
        check_limit("limit_val_batches", self.trainer.limit_val_batches)

    def before_test(self) -> None:
        """Refuse an evaluation of nothing."""
        check_limit("limit_test_batches", self.trainer.limit_test_batches)

    def before_predict(self) -> None:
        """Refuse a prediction whose responses nothing keeps."""
        check_limit("limit_predict_batches", self.trainer.limit_predict_batches)
        check_kept(self.trainer, self.model)

    def _run_subcommand(self, subcommand: str) -> None:
        """Run the subcommand; a disk error without a file, as a logger's, gets the run folder."""
        gc.enable()
        deterministic = self.config[subcommand].deterministic
        own = backend(self.trainer.strategy.root_device)
        try:
            with (
                ended_at_once_by_sigterm(),
                own.deterministic() if deterministic else nullcontext(),
            ):
                super()._run_subcommand(subcommand)
        except OSError as error:
            if error.filename is None and error.errno is not None:
                error.filename = str(self.config[subcommand].run or self.trainer.default_root_dir)
            raise
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "wandb":
                raise
            raise ValueError(
                f"trainer.logger: Weights & Biases says: {message_of(error)}; run `wandb login`, or"
                " set WANDB_MODE=offline"
            ) from error

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Make the trainer; without a logger in the YAML, TensorBoard's is in the run folder."""
        config = self.config[self.subcommand]
        if config.run and config.trainer.logger in (None, True):
            kwargs["logger"] = TensorBoardLogger(
                config.run, name="", version="", default_hp_metric=False
            )
        if config.trainer.enable_progress_bar is False:  # Lightning refuses a bar in the list
            initial = self.config_init[self.subcommand].trainer
            listed = initial.callbacks if isinstance(initial.callbacks, list) else []
            initial.callbacks = [c for c in listed if not isinstance(c, R1ProgressBar)]
        try:
            trainer = super().instantiate_trainer(**kwargs)
        except (MisconfigurationException, RuntimeError, TypeError, ValueError) as error:
            given = f"accelerator: {config.trainer.accelerator}, devices: {config.trainer.devices}"
            raise ValueError(f"trainer ({given}): {message_of(error)}") from error
        for logger in trainer.loggers:
            log_by_iteration(logger, trainer, config.log_all)
        if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):
            raise ValueError(
                f"trainer.strategy: {config.trainer.strategy!r} hands a run over to processes that"
                " Python starts; use ddp, whose ranks are commands of their own"
            )
        pass_on_sigterm(trainer)
        callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
        if self.subcommand == "fit" and config.profile is not None:
            callbacks.append(Profile(config.profile))
        if self.subcommand == "fit" and not any(isinstance(c, Doctor) for c in callbacks):
            callbacks.append(Doctor())
        return trainer


@contextmanager
def ended_at_once_by_sigterm() -> Iterator[None]:
    """End on SIGTERM in the middle of a batch: an evaluation may be one batch, and saves nothing.

    While a fit trains its ``IterationCheckpoint`` does better. What then still waits, for a
    server's reply for example, ends a few seconds later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_ending = False

    def end(*_: object) -> None:
        nonlocal is_ending
        if not is_ending:  # timeout sends it twice
            is_ending = True
            raise SIGTERMException

    before = signal.signal(signal.SIGTERM, end)
    try:
        with calling_on_sigterm(end_after):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def pass_on_sigterm(trainer: Trainer) -> None:
    """Have Lightning's handler of SIGTERM tell the ranks that it has started, and no more.

    Its own broadcasts from within the handler, in the middle of whatever ranks exchange.
    """
    connector: Any = trainer._signal_connector

    def tell(number: int, _: object) -> None:
        launcher: Any = trainer.strategy.launcher
        if getattr(launcher, "procs", None) and not connector.received_sigterm:
            launcher.kill(number)
            launcher.procs.clear()  # Lightning's observer would kill us once one of them ends
        connector.received_sigterm = True

    connector._sigterm_notifier_fn = tell


def check_manual_optimization(trainer: Trainer) -> None:
    """Refuse the trainer's settings that only Lightning's own updates would heed.

    Raises:
        ValueError: naming the trainer's key, and the model's in its place.
    """
    for key, (neutral, instead) in OF_LIGHTNINGS_UPDATES.items():
        value = getattr(trainer, key)
        if value and value != neutral:
            raise ValueError(f"trainer.{key}: {value} is not {neutral}; {instead}")


def check_rates(model: Any) -> None:
    """Refuse a negative learning rate before anything is loaded; ``ValueError`` names its key."""
    owners = {"model": model}
    for step in model.get("init_args.steps") or ():
        owners[f"model.steps: {step.class_path.rpartition('.')[2]}"] = step
    for name, owner in owners.items():
        rate = owner.get("init_args.optimizer.init_args.lr")
        if isinstance(rate, int | float):
            check_at_least(f"{name}.optimizer.lr", rate, 0)


def warn_of_no_effect(named: dict[str, Any], data: Any) -> None:
    """Warn of a group of keys that this run's data do not heed, if it is named.

    One with its defaults alone, as a run's own configuration has all groups, is not warned of.
    """
    if not data.class_path.endswith(".R1DataModule"):
        return
    from r1lit.data.datamodule import PackingOptions, RolloutOptions

    node: Any = named.get("data")
    given = node.get("init_args", node) if isinstance(node, dict) else {}
    used = {
        "packing": (PackingOptions(), ("documents", "validation_documents")),
        "rollout": (RolloutOptions(), ("train",)),
    }
    for group, (defaults, sources) in used.items():
        values = given.get(group) or {}
        changed = [key for key in values if values[key] != getattr(defaults, key, None)]
        if changed and not any(data.init_args.get(key) for key in sources):
            rank_zero_warn(
                f"data.{group}: it has no effect in this run, since there is no data.{sources[0]}"
            )


def check_writable(folder: str) -> None:
    """Refuse a run folder that is there and lets nothing be written, before weights load.

    Raises:
        OSError: naming the folder.
    """
    if Path(folder).is_dir():
        try:
            TemporaryFile(dir=folder).close()
        except OSError as error:
            error.filename = folder
            raise


def check_checkpoint(path: str | None) -> None:
    """Refuse a checkpoint that is not a file of this machine.

    Raises:
        ValueError: naming ``ckpt_path``.
    """
    if "://" in str(path):
        raise ValueError(
            f"ckpt_path: {path!r} is a URL; a checkpoint can run code, so it must be a file on this"
            " machine"
        )
    if path not in (None, "last", "best", "hpc") and not Path(str(path)).exists():
        raise ValueError(
            f"ckpt_path: {absent(str(path))}; last is the newest one in the run folder"
        )
    weights = Path(str(path)).suffix == ".safetensors"
    if weights or (Path(str(path)) / "config.json").is_file():
        raise ValueError(
            f"ckpt_path: {path!r} holds a model's weights, not a run; set model.policy to it"
        )


def check_ranks(trainer: Any) -> None:
    """Refuse nodes that nobody has started, and numbers of ranks that are not the same.

    Raises:
        ValueError: naming ``trainer.num_nodes``, ``trainer.devices`` or ``trainer.strategy``.
    """
    num_nodes, devices = trainer.num_nodes, str(trainer.devices)
    launchers = (TorchElasticEnvironment, SLURMEnvironment, LSFEnvironment, MPIEnvironment)
    if num_nodes > 1 and not trainer.plugins and not any(e.detect() for e in launchers):
        raise ValueError(
            f"trainer.num_nodes: {num_nodes}, but nothing has started a rank for each device of"
            " each node; start the command by torchrun or srun, as docs/SEVERAL_NODES.md has it"
        )
    if not devices.isdigit():
        return
    num_ranks = int(devices) * num_nodes
    ranks = f"trainer.devices: {devices} on trainer.num_nodes: {num_nodes} are {num_ranks} ranks"
    if TorchElasticEnvironment.detect() and num_ranks != int(os.environ["WORLD_SIZE"]):
        raise ValueError(f"{ranks}, but torchrun has started {os.environ['WORLD_SIZE']}")
    sizes = getattr(trainer.strategy, "init_args", {})
    sharded, split = sizes.get("data_parallel_size"), sizes.get("tensor_parallel_size")
    if isinstance(sharded, int) and isinstance(split, int) and sharded * split != num_ranks:
        raise ValueError(
            f"{ranks}, but trainer.strategy has data_parallel_size: {sharded} and"
            f" tensor_parallel_size: {split}; {num_ranks} and 1 would be right"
        )


def check_limit(key: str, value: float | None) -> None:
    """Check that an evaluation has batches.

    Raises:
        ValueError: if the limit is 0, as in configurations of a fit without validation.
    """
    if value == 0:
        raise ValueError(f"trainer.{key}: 0 evaluates nothing; --trainer.{key} 1.0 takes all")


def check_kept(trainer: Trainer, model: LightningModule) -> None:
    """Check that something keeps a prediction's responses: a module, or a callback of the user's.

    Raises:
        ValueError: naming the module that does.
    """
    # a WritesResponses; isinstance would ask the trainer for the folder, which it does not have yet
    if hasattr(type(model), "folder") or not type(model).__module__.startswith("r1lit."):
        return
    for kind in map(type, trainer.callbacks):  # type: ignore[attr-defined]
        if kind.__module__.startswith(("lightning.", "r1lit.")):
            continue
        for hook in ("on_predict_batch_end", "on_predict_epoch_end", "on_predict_end"):
            if getattr(kind, hook) is not getattr(Callback, hook):
                return
    raise ValueError(
        f"model: {type(model).__name__} keeps no responses in r1lit predict;"
        " r1lit.modules.EvaluationModule writes them to responses.jsonl"
    )


def check_validation(config: Any) -> None:
    """See to it that an evaluation comes: one that would be after the last iteration is at it.

    Raises:
        ValueError: naming ``trainer.val_check_interval``, if it is below 1.
    """
    trainer, interval = config.trainer, config.trainer.val_check_interval
    if trainer.fast_dev_run or trainer.limit_val_batches == 0 or not isinstance(interval, int):
        return
    key, otherwise = "trainer.val_check_interval", "limit_val_batches: 0 is for no validation"
    check_at_least(key, interval, 1, otherwise)
    num_iterations = config.data.get("init_args.num_iterations")
    counts_over_epochs = trainer.check_val_every_n_epoch is None
    if num_iterations and interval > num_iterations > 0 and not counts_over_epochs:
        rank_zero_warn(
            f"{key}: {interval} is more than data.num_iterations: {num_iterations}, so the last"
            f" iteration is evaluated; {otherwise}"
        )
        trainer.val_check_interval = num_iterations


class ParsedCLI(R1CLI):
    """A command whose keys are parsed, each checked against its type, and that goes no further."""

    def _set_seed(self) -> None:
        """Draw nothing."""

    def before_instantiate_classes(self) -> None:
        """Ask nothing of this machine."""

    def instantiate_classes(self) -> None:
        """Make nothing."""

    def _run_subcommand(self, subcommand: str) -> None:
        """Run nothing."""


def run_command(args: Sequence[str], kind: type[R1CLI] = R1CLI) -> R1CLI:
    """Run one command whose configurations are composed.

    Raises:
        ValueError: naming key, value and what would be right, on bad input.
    """
    for message in QUIET:
        warnings.filterwarnings("ignore", message)
    disable_progress_bar()  # of transformers: a policy of one shard loads in a blink
    for name in CHATTY:
        logger = logging.getLogger(name)
        if _is_worth_printing not in logger.filters:
            logger.addFilter(_is_worth_printing)
    try:
        return kind(
            args[0],
            subclass_mode_model=True,
            subclass_mode_data=True,
            seed_everything_default=0,
            auto_configure_optimizers=False,
            save_config_callback=RunConfig,
            trainer_defaults={
                "callbacks": [LastLines(), StartChecks()],
                "enable_model_summary": False,
            },
            parser_kwargs={"exit_on_error": False, "allow_abbrev": False},
            args=list(args),
        )
    except MisconfigurationException as error:
        raise ValueError(message_of(error)) from error
    except FileNotFoundError as error:
        run = as_mapping(args).get("run")
        if run and not Path(run).exists() and str(error.filename).startswith(str(run)):
            raise ValueError(f"run: {run} cannot be made ({error.strerror})") from error
        raise


def _is_worth_printing(record: logging.LogRecord) -> bool:
    text = record.getMessage().strip()
    return "Tip:" not in text and not text.startswith(REPLACED_MESSAGES)
