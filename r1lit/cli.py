"""The command line: ``r1lit fit|validate|test|predict -c …`` through LightningCLI."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence

from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI


class R1CLI(LightningCLI):
    """LightningCLI whose one seed, ``seed_everything``, is the seed of model and data too."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link the seeds."""
        parser.link_arguments("seed_everything", "model.init_args.seed")
        parser.link_arguments("seed_everything", "data.init_args.seed")


def main(args: Sequence[str] | None = None) -> R1CLI:
    """Run one command; tests, sweeps and notebooks call this too.

    Args:
        args: the command line, ``sys.argv[1:]`` if left out.

    Returns:
        The finished CLI, with ``trainer``, ``model`` and ``datamodule``.

    Raises:
        ValueError: naming key, value and what would be right, on bad input.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*")
    return R1CLI(
        LightningModule,
        LightningDataModule,
        subclass_mode_model=True,
        subclass_mode_data=True,
        seed_everything_default=0,
        auto_configure_optimizers=False,
        save_config_kwargs={"overwrite": True},
        args=list(args) if args is not None else None,
    )


def run() -> None:
    """Run the console script: bad input ends in one line and exit status 2."""
    try:
        main()
    except ValueError as error:
        if os.environ.get("R1LIT_TRACEBACK"):
            raise
        print(f"r1lit: error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    run()
