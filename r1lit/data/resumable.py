"""The part of a data module that resumes training: its loader, the loader's state, its process."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, TypeVar

from lightning.pytorch import LightningDataModule

from r1lit.data.loaders import Loader

TrainLoader = TypeVar("TrainLoader", bound=Loader)


class ResumableDataModule(LightningDataModule, Generic[TrainLoader]):
    """Keeps one training loader throughout a fit, and saves and loads its state."""

    may_differ = False  # set where a run is resumed with other data on purpose

    def __init__(self) -> None:
        super().__init__()
        self._train_loader: TrainLoader | None = None
        self._train_state: dict[str, Any] | None = None

    @abstractmethod
    def _make_train_loader(self) -> TrainLoader:
        """Return a new loader of training batches."""

    def train_dataloader(self) -> TrainLoader:
        """Return the loader of training batches, the same one throughout a fit."""
        if self._train_loader is None:
            self._train_loader = self._make_train_loader()
            self._train_loader.may_differ = self.may_differ
            if self._train_state is not None:
                self._train_loader.load_state_dict(self._train_state)
        return self._train_loader

    def state_dict(self) -> dict[str, Any]:
        """Return the training loader's state.

        Lightning 2.6 saves it with its loops too, but does not load it from a checkpoint that was
        written at the end of an epoch: such a run would begin again at iteration 0.
        """
        return {} if self._train_loader is None else {"train": self._train_loader.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the training loader's state, or keep it until the loader is made."""
        self._train_state = state_dict.get("train")
        if self._train_loader is not None and self._train_state is not None:
            self._train_loader.load_state_dict(self._train_state)

    def _process(self) -> dict[str, int]:
        """Return this process's rank and the number of processes that share the data."""
        kwargs = getattr(self.trainer, "distributed_sampler_kwargs", None) or {}
        return {"rank": kwargs.get("rank", 0), "world_size": kwargs.get("num_replicas", 1)}
