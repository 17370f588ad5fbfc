"""Weights as a folder of safetensors."""

from __future__ import annotations

import torch
from safetensors.torch import load_file
from tiny import ROOT

from r1lit.policy import load_policy
from r1lit.rollout import weights_folder as module
from r1lit.rollout.weights_folder import write_weights


def test_all_weights_are_there_and_tied_ones_by_both_names(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SHARD_BYTES", 2**20)
    policy = load_policy(str(ROOT / "models" / "mini"))
    weights = policy.model.state_dict()
    folder = tmp_path / "weights" / "1"
    names = write_weights(folder, weights.items())
    files = sorted(folder.iterdir())
    assert len(files) > 4 and all(file.stat().st_size < 3 * 2**20 for file in files)
    read = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert names == list(weights) and set(read) == set(weights)
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= set(read)
    assert all(torch.equal(read[name], weights[name]) for name in names)


def test_a_kill_leaves_no_half_folder(tmp_path):
    def half():
        yield "a", torch.zeros(3)
        raise KeyboardInterrupt

    try:
        write_weights(tmp_path / "1", half())
    except KeyboardInterrupt:
        assert not (tmp_path / "1").exists()
    names = write_weights(tmp_path / "1", [("b", torch.ones(2, 2).t())])
    assert names == ["b"] and [path.name for path in tmp_path.iterdir()] == ["1"]
