"""No rank holds a whole model while it is loaded, and all of them hold the right shares of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from modules.sharded_load import load, look_at
from tiny import ROOT, save_policy
from transformers import AutoModelForCausalLM

pytestmark = pytest.mark.slow
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "large": ("large", {}),
    "tied": ("tied", {}),
    "in bfloat16": ("tied", {"dtype": "bfloat16"}),
    "in several files": ("several", {}),
    "in a .bin file": ("bin", {}),
    "an adapter": ("tied", {"adapter": True}),
    "reward model of a policy": ("tied", {}),
    "reward model with an adapter": ("reward", {"adapter": True}),
    "reward model of a reward model": ("reward", {}),
}


def save_kinds(folder: Path) -> dict[str, Path]:
    """Save what is loaded; weights of odd sizes, which ranks share out unevenly."""
    at = {name: folder / name for name in ("large", "tied", "several", "bin", "reward")}
    save_policy(at["large"], layers=16, width=640)
    base = save_policy(folder / "base", layers=3, seed=5)
    model = AutoModelForCausalLM.from_pretrained(base)
    model.config.tie_word_embeddings = True
    model.generation_config.temperature = 0.7
    model.generation_config.do_sample = True
    model.tie_weights()
    model.save_pretrained(at["tied"])
    AutoModelForCausalLM.from_pretrained(base).save_pretrained(at["several"], max_shard_size="60KB")
    assert len(list(at["several"].glob("*.safetensors"))) > 2
    plain = AutoModelForCausalLM.from_pretrained(base)
    plain.config.save_pretrained(at["bin"])
    torch.save(plain.state_dict(), at["bin"] / "pytorch_model.bin")
    reward = load("reward", str(base))
    torch.nn.init.normal_(reward.model.score.weight)
    reward.model.save_pretrained(at["reward"])
    for path in at.values():
        for file in base.glob("tok*"):
            (path / file.name).write_bytes(file.read_bytes())
    return at


def on_two_ranks(folder: Path, jobs: list[Any]) -> dict[str, Any]:
    (folder / "jobs.json").write_text(json.dumps(jobs))
    here = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "sharded_load.py", "jobs.json", "found.pt"],
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(here), "GLOO_SOCKET_IFNAME": "lo"}
        | {"MALLOC_MMAP_THRESHOLD_": "65536"},  # glibc gives freed blocks back, and keeps none
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(folder / "found.pt", weights_only=False)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("sharded_loading")
    at = save_kinds(folder)
    jobs = [[name, str(at[where]), options] for name, (where, options) in KINDS.items()]
    return on_two_ranks(folder, jobs) | {"jobs": jobs}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_one_process(found: dict[str, Any], kind: str) -> None:
    (directory, options) = next((d, o) for name, d, o in found["jobs"] if name == kind)
    expected, sharded = look_at(load(kind, directory, **options)), found[kind]
    assert sharded.get("read in shares", True)
    assert sharded["state"].keys() == expected["state"].keys()
    for name, weight in expected["state"].items():
        assert torch.equal(sharded["state"][name], weight), name
        assert sharded["state"][name].dtype == weight.dtype, name
    torch.testing.assert_close(sharded["output"], expected["output"])
    torch.testing.assert_close(sharded["handed"], expected["handed"])
    for key in ("trained", "num_weights", "packed", "generation", "dtype"):
        assert sharded[key] == expected[key], key


def test_no_rank_holds_the_whole(found: dict[str, Any]) -> None:
    whole_mb = sum(x.nbytes for x in found["large"]["state"].values()) / 2**20
    assert whole_mb > 200
    assert max(found["peaks_mb"]) < 0.75 * whole_mb, (found["peaks_mb"], whole_mb)


def test_fresh_weights_are_those_of_one_process(tmp_path: Path) -> None:
    """They are made whole on each rank, in the order of one process."""
    policy = save_policy(tmp_path / "policy")
    jobs = [["first", str(policy), {}], ["fresh", str(policy), {"from_scratch": True}]]
    sharded = on_two_ranks(tmp_path, jobs)["fresh"]["state"]
    expected = look_at(load("fresh", str(policy), from_scratch=True))["state"]
    for name, weight in expected.items():
        assert torch.equal(sharded[name], weight), name
