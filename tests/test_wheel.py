"""The wheel, installed in a fresh environment outside the checkout, does what the README says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("r1lit", "configs", "models", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md",
           "LICENSE")  # fmt: skip
SMALL = (
    "--data.num_iterations=1", "--data.rollout.prompts_per_iteration=2",
    "--data.rollout.group_size=4", "--model.train_batch_size=8", "--model.sampling.max_tokens=16",
    "--data.evaluation.num_samples=1", "--trainer.val_check_interval=1",
)  # fmt: skip
CHECK = """
import json, r1lit
from r1lit.cli.composition import read, root
names = [p.relative_to(root() / "configs").as_posix()
         for p in sorted((root() / "configs").rglob("*.yaml"))]
for name in names:
    read("r1lit:" + name)
print(json.dumps({"file": r1lit.__file__, "configs": names, "version": r1lit.__version__,
                  "models": sorted(p.name for p in root().joinpath("models").iterdir())}))
"""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Path:
    """A folder with ``env``, an environment that holds the wheel, made from a source archive.

    What r1lit depends on comes from the environment of the tests.
    """
    folder = tmp_path_factory.mktemp("fresh")
    source = folder / "source"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=ignore)
        else:
            shutil.copy(path, source / name)
    run(sys.executable, "setup.py", "-q", "sdist", "--dist-dir", folder, cwd=source)
    [archive] = folder.glob("r1lit-*.tar.gz")
    shutil.rmtree(source)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation",
        "-w", folder, archive, cwd=folder)  # fmt: skip
    [wheel] = folder.glob("r1lit-*.whl")
    run(sys.executable, "-m", "venv", "env", cwd=folder)
    run(folder / "env/bin/pip", "install", "-q", "--no-deps", wheel, cwd=folder)
    [packages] = (folder / "env").glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_the_folder_above_a_clone_hides_nothing(tmp_path):
    """A clone is a folder called r1lit, which Python would take for an empty package."""
    (tmp_path / "r1lit" / "r1lit").mkdir(parents=True)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONPATH": "."}
    done = subprocess.run(
        [sys.executable, "-c", "import r1lit; print(r1lit.__version__)"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_wheel_brings_configs_and_models(fresh):
    said = json.loads(run(fresh / "env/bin/python", "-c", CHECK, cwd=fresh).splitlines()[-1])
    assert Path(said["file"]).is_relative_to(fresh / "env")
    assert Path(said["file"]).with_name("py.typed").is_file()
    configs = ROOT / "configs"
    wanted = sorted(p.relative_to(configs).as_posix() for p in configs.rglob("*.yaml"))
    assert sorted(said["configs"]) == wanted
    assert said["models"] == sorted(p.name for p in (ROOT / "models").iterdir())
    [wheel] = fresh.glob("r1lit-*.whl")
    [megabytes] = re.findall(r"It has (\d+) MB", (ROOT / "docs/INSTALL.md").read_text())
    assert abs(wheel.stat().st_size / 1e6 - int(megabytes)) < 1


@pytest.mark.slow
def test_a_run_by_name_outside_the_checkout(fresh):
    """From `pip install` to a trained policy, its numbers and its page."""
    command = fresh / "env/bin/r1lit"
    run(command, "fit", "-c", "r1lit:mini/r1_zero.yaml", "--run", "runs/aha", *SMALL, cwd=fresh)
    folder = fresh / "runs/aha"
    for name in ("metrics.jsonl", "summary.json", "responses.jsonl", "policy/model.safetensors"):
        assert (folder / name).is_file(), name
    said = run(command, "view", "runs/aha", cwd=fresh)
    assert "aha:" in said and (folder / "view.html").stat().st_size > 20_000
    for script in ("r1lit-compare", "r1lit-score", "r1lit-pairs"):
        assert "usage" in run(fresh / "env/bin" / script, "--help", cwd=fresh)
