"""Ranks that nobody has started, or of which the numbers differ, are refused in one line."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from jsonargparse import Namespace
from tiny import ROOT

from r1lit.cli import main
from r1lit.cli.command import check_ranks
from r1lit.modules import EvaluationModule


def trainer(**keys: object) -> Namespace:
    return Namespace({"num_nodes": 1, "devices": 1, "plugins": None, "strategy": "auto"} | keys)


def sharded(ranks: int) -> Namespace:
    sizes = Namespace(data_parallel_size=ranks, tensor_parallel_size=1)
    return Namespace(class_path="ModelParallelStrategy", init_args=sizes)


def test_nodes_that_nothing_has_started_are_refused():
    config = str(ROOT / "configs" / "mini" / "r1_zero.yaml")
    with pytest.raises(ValueError, match=r"trainer.num_nodes: 2, but nothing has started"):
        main(["fit", "-c", config, "--trainer.num_nodes", "2"])


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"num_nodes": 2, "devices": 1}, "are 2 ranks, but torchrun has started 4"),
        ({"devices": "2"}, "trainer.devices: 2 on trainer.num_nodes: 1 are 2 ranks, but torchrun"),
        (
            {"num_nodes": 2, "devices": 2, "strategy": sharded(2)},
            "are 4 ranks, but trainer.strategy has data_parallel_size: 2",
        ),
    ],
)
def test_numbers_of_ranks_that_differ_are_refused(monkeypatch, keys, says):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "run")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match=re.escape(says)):
        check_ranks(trainer(**keys))
    check_ranks(trainer(num_nodes=2, devices=2, strategy=sharded(4)))
    check_ranks(trainer(num_nodes=4, devices="auto"))


def test_an_evaluation_takes_one_machine(tmp_path):
    module = EvaluationModule(policy=str(ROOT / "models" / "mini"), dirpath=str(tmp_path))
    module._trainer = SimpleNamespace(num_nodes=2)
    with pytest.raises(ValueError, match=r"trainer.num_nodes: 2; an evaluation runs on one mach"):
        module.setup("test")
