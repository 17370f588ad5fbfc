"""Lists a sweep's points and reads the config of every variant, as a run would, without a run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from experiments.compose import Config
from experiments.points import Point, Sweep


def list_points(sweep: Sweep, seeds: Sequence[int] | None = None) -> None:
    """Print every point with its state.

    Raises:
        ValueError: if a variant's config is refused; it names the variant and the key.
    """
    read: set[str] = set()
    for point in sweep.points(seeds):
        if point.variant not in read:
            read_config(point)
            read.add(point.variant)
        print(f"{point.state:<12} {point.folder}", flush=True)


def read_config(point: Point) -> Config:
    """Return a point's whole config, defaults included, as ``r1lit fit`` reads it.

    Raises:
        ValueError: if it is refused.
    """
    from r1lit.cli import main  # takes seconds

    with TemporaryDirectory() as folder:
        file = Path(folder) / "point.yaml"
        file.write_text(yaml.safe_dump(point.config))
        printed, errors = StringIO(), StringIO()
        try:
            with redirect_stdout(printed), redirect_stderr(errors):
                main(["fit", "-c", str(file), "--print_config"])
        except ValueError as error:
            raise ValueError(f"{point.variant}: {error}") from error
        except SystemExit as end:
            if end.code:
                raise ValueError(f"{point.variant}: {errors.getvalue().strip()}") from end
    config: Config = yaml.safe_load(printed.getvalue())
    return config
