"""The one step that pyproject.toml cannot say: a wheel holds copies of configs and models."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithConfigsAndModels(build_py):
    """Builds the package, and ``r1lit/shipped`` in it."""

    def run(self) -> None:
        """Copy what `r1lit.cli.composition` finds; an editable install finds it in the checkout."""
        super().run()
        if not self.editable_mode:
            for name in ("configs", "models"):
                there = Path(self.build_lib, "r1lit", "shipped", name)
                shutil.rmtree(there, ignore_errors=True)
                shutil.copytree(Path(__file__).parent / name, there)


setup(cmdclass={"build_py": WithConfigsAndModels})
