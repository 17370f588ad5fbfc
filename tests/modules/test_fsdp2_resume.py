"""Sharded runs (FSDP2) that were killed go on to the bit, and on other numbers of ranks."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from modules.kill_while_saving import MOMENTS
from test_ddp import fit_in_a_process
from test_fsdp2 import SGD, checkpointed, exported, fit, sharded
from test_lora import LORA, REFRESH, WITH_KL
from test_ppo import PENALTY, ppo
from test_resume import assert_equal
from tiny import data, grpo_config, merge, model
from torch.distributed.checkpoint import FileSystemReader

pytestmark = pytest.mark.slow


def killed_run(config: Path, folder: Path, callback: dict[str, Any]) -> None:
    done = fit_in_a_process(config, folder, "--trainer.callbacks+", json.dumps([callback]))
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]


def killing_at(iteration: int) -> dict[str, Any]:
    return {"class_path": "modules.test_resume.KillAt", "init_args": {"iteration": iteration}}


@pytest.fixture(scope="module")
def whole(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three iterations that nobody disturbed."""
    run = tmp_path_factory.mktemp("undisturbed") / "whole"
    fit(grpo_config(run, policy, PLAIN))
    return run


PLAIN = merge(data(num_iterations=3), sharded(2))


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_half_written_folder_is_never_the_last(
    tmp_path: Path, policy: Path, whole: Path, moment: str
) -> None:
    config = grpo_config(tmp_path / "run", policy, PLAIN)
    kill = {"iteration": 2, "moment": moment}
    killed_run(
        config,
        tmp_path,
        {"class_path": "modules.kill_while_saving.KillWhileSaving", "init_args": kill},
    )
    folder = tmp_path / "run" / "checkpoints"
    names = {path.name for path in folder.iterdir()}
    aside = moment == "the old one stepped aside"
    assert ("last.ckpt" in names, ".last.ckpt.previous" in names) == (not aside, aside)
    assert any(name.endswith(".tmp") for name in names), "what was being written"
    before = folder / (".last.ckpt.previous" if aside else "last.ckpt")
    assert torch.load(before / "meta.pt", weights_only=False)["loops"]
    FileSystemReader(before).read_metadata()
    fit(config, "--ckpt_path", "last")
    assert_equal(exported(tmp_path / "run"), exported(whole))
    lines = [(run / "responses.jsonl").read_text() for run in (tmp_path / "run", whole)]
    assert lines[0] == lines[1]
    assert {path.name for path in folder.iterdir()} <= {"last.ckpt", ".lock"}


KINDS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "adapter": (model(policy={"adapter": LORA}, objective=WITH_KL), [REFRESH]),
    "critic": (ppo(PENALTY), []),
}


@pytest.mark.parametrize(("kind", "kill_at"), [("adapter", 1), ("adapter", 3), ("critic", 2)])
def test_killed_and_resumed_is_bit_equal(
    tmp_path: Path, policy: Path, kind: str, kill_at: int
) -> None:
    """An adapter is killed before and after its reference is refreshed for the first time."""
    change, callbacks = KINDS[kind]
    change = merge(merge(change, data(num_iterations=5)), sharded(2))
    undisturbed = grpo_config(tmp_path / "whole", policy, change)
    broken = grpo_config(tmp_path / "broken", policy, change)
    added = ("--trainer.callbacks+", json.dumps(callbacks)) if callbacks else ()
    fit(undisturbed, *added)
    done = fit_in_a_process(
        broken, tmp_path, "--trainer.callbacks+", json.dumps([*callbacks, killing_at(kill_at)])
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    fit(broken, *added, "--ckpt_path", "last")
    assert_equal(checkpointed(tmp_path / "broken"), checkpointed(tmp_path / "whole"))
    assert_equal(exported(tmp_path / "broken"), exported(tmp_path / "whole"))
    if kind == "adapter":
        names = set(checkpointed(tmp_path / "whole")) - {"iteration"}
        copies = {name for name in names if name.startswith("reference.values.")}
        assert len(copies) == len(names - copies) == 2 * 7 * 2
        assert all("lora" in name for name in names - copies)


def test_it_goes_on_with_other_numbers_of_ranks(tmp_path: Path, policy: Path) -> None:
    # three problems to validate on would be too few for four ranks
    change = merge(
        data(num_iterations=4, validation=None) | {"trainer": {"limit_val_batches": 0}},
        model(policy={"adapter": LORA}, train_batch_size=16, optimizer=SGD),
    )
    fit(grpo_config(tmp_path / "whole", policy, merge(change, sharded(2))))
    killed_run(
        grpo_config(tmp_path / "killed", policy, merge(change, sharded(2))), tmp_path, killing_at(2)
    )
    checkpoint = str(tmp_path / "killed" / "checkpoints" / "last.ckpt")
    expected = exported(tmp_path / "whole")
    for ranks in (1, 4):
        run = tmp_path / str(ranks)
        fit(grpo_config(run, policy, merge(change, sharded(ranks))), "--ckpt_path", checkpoint)
        for name, weight in exported(run).items():
            torch.testing.assert_close(weight, expected[name], rtol=1e-4, atol=1e-5)


def test_other_base_weights_are_refused(tmp_path: Path, policy: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for file in policy.iterdir():
        (base / file.name).write_bytes(file.read_bytes())
    change = merge(merge(model(policy={"adapter": LORA}), data(num_iterations=2)), sharded(2))
    config = grpo_config(tmp_path / "run", base, change)
    fit(config)
    weights = bytearray((base / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (base / "model.safetensors").write_bytes(weights)
    done = fit_in_a_process(
        config, tmp_path, "--ckpt_path", "last", "--data.init_args.num_iterations", "4"
    )
    assert done.returncode == 2, done.stderr[-3000:]
    assert "ckpt_path: the adapter was trained on other weights" in done.stderr
