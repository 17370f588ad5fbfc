"""What every module shares: a policy, its tokenizer, and one way to make an update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from transformers import AutoModelForCausalLM, PretrainedConfig

from r1lit.device import backend
from r1lit.errors import check_at_least
from r1lit.modules.checkpoint import (
    leave_out_frozen,
    make_room,
    note_base,
    refuse_another_base,
    refuse_another_policy,
)
from r1lit.modules.gradients import clip_gradients, gradient_norm, refuse_non_finite
from r1lit.modules.process import process_settings
from r1lit.modules.schedule import CosineOverRun, updates_of_run
from r1lit.modules.sharding import (
    check_optimizers,
    check_strategy,
    idle_loss,
    is_sharding,
    missing_passes,
    reducing_gradients,
    shard_models,
)
from r1lit.policy import context_length, load_config, load_policy, load_tokenizer
from r1lit.policy.adapter import (
    Adapter,
    PeftConfig,
    Quantization,
    check_adapter,
    check_quantization,
)


class PolicyModule(LightningModule):
    """Holds a Hugging Face causal language model under manual optimisation.

    A subclass may put another model in its place by ``_load_config`` and ``_load_model``.

    Args:
        policy: a Hugging Face directory, or a model's name on the hub; or a PEFT folder.
        optimizer: makes the optimiser from the weights that are trained; ``torch.optim.AdamW`` if
            left out (as a default value its settings would stay with another class).
        lr_scheduler: makes the scheduler from the optimiser; stepped after every update.
        from_scratch: take only architecture and tokenizer from ``policy``, with fresh weights.
        dtype: of the weights; ``float32`` unless memory is short.
        attention: Hugging Face attention implementation.
        gradient_checkpointing: trade time for memory in the update.
        trust_remote_code: run Python code that comes with the model; it has your rights.
        adapter: train this adapter of peft's alone (``peft.LoraConfig``); checkpoints and exports
            hold no other weights. Where ``policy`` is a PEFT folder, its adapter goes on; without
            ``adapter`` it is merged, and all weights are trained.
        quantization: ``BitsAndBytesConfig`` of weights beside ``adapter``, as a mapping (QLoRA).
        reduce_every_pass: reduce sharded gradients over ranks (FSDP2) after each micro-batch, not
            once an update: until then every rank would hold whole ones, as large as the model.
        micro_batch_tokens: tokens per backward pass, which bounds its memory; a longer row has one
            of its own. A GPU takes more (``configs/hardware``).
        max_grad_norm: gradients are clipped to this norm; 0 leaves them.
        seed: of fresh weights and of rollouts; the command line links it to ``seed_everything``.
    """

    iteration: Tensor
    policy: Any
    reference_in_loss = False
    """Whether the policy's loss has a term of the reference, which it computes with first."""
    _auto_class: Any = AutoModelForCausalLM

    def __init__(
        self,
        policy: str,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        *,
        from_scratch: bool = False,
        dtype: str = "float32",
        attention: str = "sdpa",
        gradient_checkpointing: bool = False,
        trust_remote_code: bool = False,
        adapter: PeftConfig | None = None,
        quantization: Quantization | None = None,
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
        self.policy_path = policy
        self.policy_config = self._load_config(policy, trust_remote_code)
        self.tokenizer = load_tokenizer(policy, trust_remote_code)
        if adapter is not None and from_scratch:
            raise ValueError("adapter: it needs a policy's own weights; leave from_scratch out")
        if adapter is not None:
            check_adapter(self._auto_class, self.policy_config, adapter, trust_remote_code)
        check_quantization(quantization, adapter)
        self.reduce_every_pass = reduce_every_pass
        self.micro_batch_tokens = micro_batch_tokens
        self.max_grad_norm = max_grad_norm
        self.seed = seed
        self._make_optimizer = optimizer or torch.optim.AdamW
        self._make_lr_scheduler = lr_scheduler
        self._saved_groups: list[Any] = []
        self._loading = {
            "from_scratch": from_scratch,
            "dtype": dtype,
            "attention": attention,
            "gradient_checkpointing": gradient_checkpointing,
            "trust_remote_code": trust_remote_code,
            "adapter": adapter,
            "quantization": quantization,
        }
        self.register_buffer("iteration", torch.tensor(0))

    configure_callbacks = process_settings

    def setup(self, stage: str) -> None:
        """Refuse strategies and precisions under which updates or rollouts cannot work."""
        check_strategy(self.trainer.strategy)
        if self.trainer.precision not in ("32-true", "bf16-mixed"):
            raise ValueError(
                f"precision: {self.trainer.precision!r} is not 32-true or bf16-mixed; for weights"
                " in bfloat16 keep 32-true and set the model's dtype: bfloat16"
            )
        is_fast = backend(self.trainer.strategy.root_device).has_fast_bfloat16
        if self.trainer.precision == "bf16-mixed" and not is_fast:
            rank_zero_warn(
                "precision: bf16-mixed is slow on this CPU, which has no instructions for"
                " bfloat16; --trainer.precision 32-true is faster"
            )

    @property
    def data(self) -> Any:
        """The trainer's data module, or None where loaders were given without one."""
        return getattr(self.trainer, "datamodule", None)

    @property
    def context_length(self) -> int | None:
        """The most tokens the policy attends over, if its configuration has a limit."""
        return context_length(self.policy_config)

    def configure_model(self) -> None:
        """Load what is trained, and what is as large, once; shard it where the strategy does."""
        if hasattr(self, "policy"):
            return
        self._loading["sharded"] = is_sharding(self.trainer.strategy)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            self.policy = self._load_model()
        self._copy_policy()
        shard_models(self)
        leave_out_frozen(self)

    def _load_config(self, policy: str, trust_remote_code: bool) -> PretrainedConfig:
        return load_config(policy, trust_remote_code)

    def _load_model(self) -> torch.nn.Module:
        return load_policy(self.policy_path, **self._loading)  # type: ignore[arg-type]

    def _copy_policy(self) -> None:
        """Make the models that stand beside the policy, for a subclass that has some."""

    def configure_optimizers(self) -> tuple[list[Any], list[Any]]:
        """Return the policy's optimiser, and its scheduler if there is one, each in a list.

        A subclass that trains another model beside the policy appends that one's.
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
        """Give schedulers that fall over the run its length.

        Raises:
            ValueError: see ``check_optimizers``.
        """
        check_optimizers(self)
        for config in self.trainer.lr_scheduler_configs:
            if isinstance(config.scheduler, CosineOverRun):
                config.scheduler.fall_over(updates_of_run(self))

    @property
    def adapter(self) -> Adapter | None:
        """The adapter that is trained alone, if there is one."""
        return getattr(self.policy, "adapter", None)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Put in a digest of what an adapter leaves as it is; see ``leave_out_frozen``."""
        note_base(self, checkpoint)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse a checkpoint of another policy, in one line.

        Raises:
            ValueError: see ``refuse_another_policy`` and ``refuse_another_base``.
        """
        refuse_another_base(self, checkpoint)
        if "state_dict" not in checkpoint:  # a folder of shares, read already
            return
        make_room(self, checkpoint["state_dict"])
        if not self.strict_loading:
            return
        refuse_another_policy(checkpoint["state_dict"], self.state_dict(), self.policy_path)
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
                f" {int(self.iteration)}: checkpoint and data do not belong to the same run"
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
        missing = missing_passes(len(losses), self.trainer.strategy)
        losses = [*losses, *[partial(idle_loss, self, optimizer.optimizer)] * missing]
        alone, own = isinstance(self.trainer.strategy, SingleDeviceStrategy), backend(self.device)
        total = torch.tensor(0.0, dtype=torch.float64)
        for index, loss_of in enumerate(losses):
            last = index + 1 == len(losses)
            with reducing_gradients(self, last), own.in_place_gradients(alone):
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
        return float(self.trainer.strategy.reduce(count.float(), reduce_op="mean"))
