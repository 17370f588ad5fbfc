"""The base of modules: a policy, checkpoints, one way to make an update, and its speed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.optim import Optimizer
from transformers import AutoModelForCausalLM, PretrainedConfig

from r1lit.device import backend
from r1lit.errors import check_at_least
from r1lit.modules.checkpoint_checks import (
    base_digest,
    check_same_base,
    check_same_policy,
    prepare_refreshed_reference,
    skip_frozen_weights,
)
from r1lit.modules.device_settings import DeviceSettings, check_precision
from r1lit.modules.schedules import CosineOverRun, print_rates, updates_of_run
from r1lit.modules.sharding import (
    check_optimizers,
    check_strategy,
    is_sharding,
    reducing_gradients,
    shard_models,
    with_missing_passes,
)
from r1lit.modules.speed import speed_metrics
from r1lit.policy import ModelSource, context_length, load_config, load_policy, load_tokenizer
from r1lit.policy.adapter import Adapter, check_adapter
from r1lit.policy.policy import ModelWrapper
from r1lit.protocols import TrainsPolicy


class PolicyModule(LightningModule):
    """Holds a Hugging Face causal language model under manual optimisation.

    A subclass may put another model in its place by ``_load_config`` and ``_load_model``.

    Args:
        policy: a Hugging Face directory, a model's name on the hub, or a PEFT folder; or a mapping
            of ``path`` and of how its weights are stored, `r1lit.policy.ModelSource`.
        optimizer: makes the optimiser from the weights that are trained; ``torch.optim.AdamW`` if
            left out (as a default value its settings would stay with another class).
        lr_scheduler: makes the scheduler from the optimiser; stepped after every update.
        gradient_checkpointing: trade time for memory in the update.
        reduce_every_pass: reduce sharded gradients over ranks (FSDP2) after each micro-batch, not
            once an update: until then every rank would hold whole ones, as large as the model.
        micro_batch_tokens: tokens per backward pass, which bounds its memory; a longer row has one
            of its own. A GPU takes more (``configs/hardware``).
        max_grad_norm: gradients are clipped to this norm; 0 leaves them.
        seed: of fresh weights and of rollouts; the command line links it to ``seed_everything``.
    """

    iteration: Tensor
    policy: Any
    """The policy's weights; None until ``configure_model``."""
    reference: Any
    """The reference policy; None where nothing reads one."""
    reference_in_loss = False
    """True where the loss has a term of the reference, whose forward pass then comes first."""
    updates_per_iteration = 1
    """Updates of the policy that an iteration makes, as planned."""
    is_fresh = True
    """True where an iteration's rollout is sampled with the weights before its updates."""
    _auto_class: Any = AutoModelForCausalLM

    def __init__(
        self,
        policy: str | ModelSource,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        *,
        gradient_checkpointing: bool = False,
        reduce_every_pass: bool = False,
        micro_batch_tokens: int = 4096,
        max_grad_norm: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        check_at_least("micro_batch_tokens", micro_batch_tokens, 1)
        if max_grad_norm < 0:
            raise ValueError(f"max_grad_norm: {max_grad_norm} is negative; 0 switches clipping off")
        self.source = ModelSource.of(policy)
        self.policy_config = self._load_config()
        self.tokenizer = load_tokenizer(self.source)
        check_adapter(self._auto_class, self.policy_config, self.source)
        self.reduce_every_pass = reduce_every_pass
        self.micro_batch_tokens = micro_batch_tokens
        self.max_grad_norm = max_grad_norm
        self.seed = seed
        self._make_optimizer = optimizer or torch.optim.AdamW
        self._make_lr_scheduler = lr_scheduler
        self.policy = self.reference = None
        self._saved_groups: list[Any] = []
        self.loading = {"gradient_checkpointing": gradient_checkpointing, "sharded": False}
        self.register_buffer("iteration", torch.tensor(0))

    def configure_callbacks(self) -> list[DeviceSettings]:
        """Return the callback that sets the run's process up for its device."""
        return [DeviceSettings()]

    def setup(self, stage: str) -> None:
        """Refuse strategies and precisions under which updates or rollouts cannot work."""
        check_strategy(self.trainer.strategy)
        check_precision(self.trainer.precision, self.trainer.strategy.root_device)

    @property
    def data(self) -> Any:
        """The trainer's data module, or None where loaders were given without one."""
        return self.trainer.datamodule  # type: ignore[attr-defined]

    @property
    def is_alone(self) -> bool:
        """True where this is the run's only process, which has all weights and gradients."""
        return isinstance(self.trainer.strategy, SingleDeviceStrategy)

    @property
    def context_length(self) -> int | None:
        """The most tokens the policy attends over, if its configuration has a limit."""
        return context_length(self.policy_config)

    def configure_model(self) -> None:
        """Load the policy and all that is as large, once; shard it where the strategy does."""
        if self.policy is not None:
            return
        self.loading["sharded"] = is_sharding(self.trainer.strategy)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.policy = self._load_model()
        self._copy_policy()
        shard_models(self)
        skip_frozen_weights(self, self.adapter)

    def _load_config(self) -> PretrainedConfig:
        return load_config(self.source)

    def _load_model(self) -> torch.nn.Module:
        return load_policy(self.source, **self.loading)

    def _copy_policy(self) -> None:
        """Make further models, for a subclass that has some."""

    def before_export(self) -> None:
        """Put into the policy's configuration what its use needs, for a subclass that has some."""

    def exported(self) -> dict[str, ModelWrapper]:
        """Return the models that are written at the end of a run, by their names."""
        self.before_export()
        return {"policy": self.policy}

    def configure_optimizers(self) -> tuple[list[Any], list[Any]]:
        """Return the policy's optimiser, and its scheduler if there is one, each in a list.

        A subclass that trains another model too appends that one's.
        """
        optimizer = self._make_optimizer(p for p in self.policy.parameters() if p.requires_grad)
        for saved, group in zip(self._saved_groups, optimizer.param_groups, strict=False):
            lacking = {*group} - {*saved} - {"initial_lr"}  # some add settings in training
            if lacking:
                raise ValueError(
                    f"ckpt_path: the checkpoint is of another optimizer than"
                    f" {type(optimizer).__name__}: {', '.join(sorted(lacking))}"
                    " are not among its settings; resume with the one it was written with"
                )
        make = self._make_lr_scheduler
        return [optimizer], [] if make is None else [make(optimizer)]

    def on_train_start(self) -> None:
        """Give schedulers that fall over the run its length, and print the policy's rates.

        Raises:
            ValueError: see ``check_optimizers`` and ``rates_ahead``.
        """
        check_optimizers(self)
        for config in self.trainer.lr_scheduler_configs:
            num_updates = self.updates_by(config.scheduler.optimizer)
            if isinstance(config.scheduler, CosineOverRun):
                config.scheduler.fall_over(num_updates)
            if config.scheduler.optimizer is self.policy_optimizer.optimizer:
                print_rates(config.scheduler, num_updates)

    def updates_by(self, optimizer: Optimizer) -> float:
        """Return how many updates an optimiser makes in the whole run; infinity if nothing ends it.

        ``optimizer`` is as PyTorch has it. Here there is one alone.
        """
        return updates_of_run(self.trainer, self.updates_per_iteration)

    @property
    def adapter(self) -> Adapter | None:
        """The adapter that is trained alone, if there is one."""
        return None if self.policy is None else self.policy.adapter

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put in a digest of what an adapter leaves as it is; see ``skip_frozen_weights``."""
        if self.adapter is not None:
            checkpoint |= base_digest(self.source)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another policy, in one line.

        Raises:
            ValueError: see ``check_same_policy`` and ``check_same_base``.
        """
        if self.adapter is not None:
            check_same_base(self.source, checkpoint)
        if "state_dict" not in checkpoint:  # a folder of shares, read already
            return
        if self.adapter is not None:
            prepare_refreshed_reference(self, checkpoint["state_dict"])
        if not self.strict_loading:
            return
        check_same_policy(checkpoint["state_dict"], self.state_dict(), self.source.path)
        self._saved_groups = [
            group.keys()
            for state in checkpoint.get("optimizer_states", [])
            for group in state["param_groups"]
        ]

    def check_iteration(self, batch_iteration: int) -> None:
        """Stop when batch and module disagree about where the run is: a wrong resume."""
        if batch_iteration != int(self.iteration):
            raise ValueError(
                f"ckpt_path: the data is at iteration {batch_iteration}, the module at"
                f" {int(self.iteration)}: checkpoint and data do not belong to the same run. A"
                " module that was fitted already goes on from its checkpoint; another fit takes a"
                " new module and new data"
            )

    def make_update(
        self,
        optimizer: LightningOptimizer,
        losses: Sequence[Callable[[], Tensor]],
        max_grad_norm: float | None = None,
    ) -> tuple[float, float]:
        """Make one update with one optimiser: backward through the losses, clip, step.

        The losses add up: each already carries its share of the minibatch. Gradients are
        synchronised between ranks only with the last of them. Where weights are sharded, ranks with
        fewer losses than others add ``idle_loss``.

        Args:
            optimizer: one of ``self.optimizers()``. Its parameters alone are cleared, clipped and
                stepped, with the schedulers that are its own.
            losses: what computes each micro-batch's loss; called in order.
            max_grad_norm: the module's if left out.

        Returns:
            The minibatch's loss, and its gradient norm before clipping.

        Raises:
            ValueError: if the loss or the gradient is not finite; this update is not made then.
        """
        optimizer.zero_grad()
        alone, own = self.is_alone, backend(self.device)
        if not alone:
            losses = with_missing_passes(self, losses, optimizer.optimizer)
        total = torch.tensor(0.0, dtype=torch.float64)
        for index, loss_of in enumerate(losses):
            last = index + 1 == len(losses)
            synced = nullcontext() if alone else reducing_gradients(self, last)
            with synced, own.in_place_gradients(alone):
                loss = loss_of()
                total = total.to(loss.device) + loss.detach().double()
                self.manual_backward(loss)
        norm = gradient_norm(optimizer.optimizer)
        loss_value, norm_value = float(total), float(norm)
        refuse_non_finite(self, "gradient norm", norm_value)  # the same on all ranks
        refuse_non_finite(self, "loss", loss_value)
        if max_norm := self.max_grad_norm if max_grad_norm is None else max_grad_norm:
            clip_gradients(optimizer.optimizer, max_norm, norm)
        optimizer.step()
        schedulers = self.lr_schedulers() or []
        for scheduler in schedulers if isinstance(schedulers, list) else [schedulers]:
            if scheduler.optimizer is optimizer.optimizer:
                scheduler.step()  # type: ignore[call-arg]
        return loss_value, norm_value

    def make_only_update(
        self,
        losses: Sequence[Callable[[], Tensor]],
        metrics: Callable[[], dict[str, float]],
        batch_size: int,
    ) -> dict[str, Tensor]:
        """Make an iteration's only update, and end the iteration.

        Args:
            losses: as of ``make_update``.
            metrics: what else to log; called after the update.
            batch_size: how much the logged numbers weigh.

        Returns:
            The loss, as a ``training_step`` returns it.
        """
        loss, norm = self.make_update(self.policy_optimizer, losses)
        logged = {"train/loss": loss, "train/grad_norm": norm, **metrics()}
        self.end_iteration(logged, batch_size)
        return {"loss": torch.tensor(loss)}

    def end_iteration(self, metrics: dict[str, float], batch_size: int) -> None:
        """Count the iteration, and log its metrics with the next update's learning rate.

        Its gradients are let go: a rollout or an evaluation comes next.
        """
        self.iteration += 1
        speed = speed_metrics(metrics, self.device, self._flops_per_token())
        self.zero_grad()
        metrics = {**metrics, **speed, "train/learning_rate": self.learning_rate()}
        self.log_dict(metrics, batch_size=batch_size, sync_dist=True)

    def _flops_per_token(self) -> float:
        """Return 6 a weight, of forward and backward; 4 where an adapter alone is trained."""
        num_weights = sum(weight.numel() for weight in self.policy.parameters())
        return (6.0 if self.adapter is None else 4.0) * num_weights

    @property
    def policy_optimizer(self) -> LightningOptimizer:
        """The policy's optimiser, the first."""
        optimizers = self.optimizers()
        return optimizers[0] if isinstance(optimizers, list) else optimizers

    def learning_rate(self) -> float:
        """Return the learning rate of the policy's next update."""
        return float(self.policy_optimizer.param_groups[0]["lr"])

    def mean_over_ranks(self, count: Tensor) -> float:
        """Return the mean over ranks; gradients are averaged, so normalisers must be too."""
        if self.trainer.world_size == 1:
            return float(count)
        own = count.float().to(self.device)  # NCCL reduces no tensor of the CPU
        return float(self.trainer.strategy.reduce(own, reduce_op="mean"))


# gradients


def each_gradient(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Yield the gradients of an optimiser's parameters."""
    for group in optimizer.param_groups:
        yield from (p.grad for p in group["params"] if p.grad is not None)


def gradient_norm(optimizer: torch.optim.Optimizer) -> Tensor:
    """Return the 2-norm of all gradients together; of sharded ones (DTensor), over all ranks.

    Sharded ones take one collective, however many there are (one for each of their meshes).
    """
    norms: list[Tensor] = []
    of_shards: dict[tuple[DeviceMesh, tuple[bool, ...]], list[Tensor]] = defaultdict(list)
    for gradient in each_gradient(optimizer):
        if isinstance(gradient, DTensor):
            assert not any(p.is_partial() for p in gradient.placements), gradient.placements
            is_whole = tuple(p.is_replicate() for p in gradient.placements)
            local = torch.linalg.vector_norm(gradient.to_local())
            of_shards[gradient.device_mesh, is_whole].append(local)
        else:
            norms.append(torch.linalg.vector_norm(gradient))
    for (mesh, is_whole), local_norms in of_shards.items():
        square = torch.linalg.vector_norm(torch.stack(local_norms)).square()
        placements = [Replicate() if whole else Partial() for whole in is_whole]
        norms.append(DTensor.from_local(square, mesh, placements).full_tensor().sqrt())
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.tensor(0.0)


@torch.no_grad()
def clip_gradients(optimizer: torch.optim.Optimizer, max_norm: float, norm: Tensor) -> None:
    """Scale all gradients, of this norm together, to ``max_norm`` at most, as PyTorch does."""
    scale = max_norm / (norm + 1e-6)
    if scale < 1.0:
        for gradient in each_gradient(optimizer):
            gradient.mul_(scale.to(gradient.device))


def refuse_non_finite(module: TrainsPolicy, what: str, value: float) -> None:
    """Raise a ValueError that says where to resume from, if a number of an update is not finite."""
    if math.isfinite(value):
        return
    callback = module.trainer.checkpoint_callback
    saved = callback.last_model_path if isinstance(callback, ModelCheckpoint) else ""
    resume = f"resume from {saved}, which is intact" if saved else "no checkpoint was written"
    raise ValueError(
        f"the {what} is {value} at iteration {int(module.iteration)}; update"
        f" {module.trainer.global_step} was not made; {resume}. Try a lower learning rate, and"
        " check the rewards"
    )
