"""Linear layers as they decode, beside PyTorch's own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from r1lit.device.cpu import has_bfloat16_kernels
from r1lit.device.cpu.kernels import FOLDER, PackedLinear, build
from r1lit.rollout.shared_prompts import CastLinear, for_decoding

fast = pytest.mark.usefixtures("kernels")


@fast
@pytest.mark.parametrize("rows", [0, 1, 3, 64, 130])
@pytest.mark.parametrize(("columns", "features"), [(2, 1), (48, 64), (192, 200), (576, 130)])
@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_a_packed_layer_is_the_layer_in_bfloat16(rows, columns, features, bias):
    torch.manual_seed(0)
    linear = nn.Linear(columns, features, bias=bias)
    x = torch.randn(rows, 2, columns)
    found = PackedLinear(linear.weight, linear.bias)(x)
    assert found.dtype == torch.bfloat16 and found.shape == (rows, 2, features)
    exact = linear.bfloat16().float()(x.bfloat16().float())
    torch.testing.assert_close(found.float(), exact, rtol=2**-8, atol=1e-3)


@fast
@torch._dynamo.config.patch(disable=False)  # the other tests compile nothing
def test_a_packed_layer_compiles_once_for_layers_of_one_shape():
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph

    layers = [PackedLinear(nn.Linear(32, 48).weight, None) for _ in range(2)]
    call = torch.compile(lambda layer, x: layer(x), backend=counting, dynamic=True)
    for rows in (3, 5):
        for layer in layers:
            x = torch.randn(rows, 32)
            assert torch.equal(call(layer, x), layer(x))
    assert len(graphs) == 1


@fast
def test_a_weight_that_does_not_fit_is_refused():
    linear = nn.Linear(32, 48)
    layer = PackedLinear(linear.weight, linear.bias)
    with pytest.raises(RuntimeError, match="packed_linear: x is"):
        torch.ops.r1lit.packed_linear(torch.zeros(2, 30).bfloat16(), layer.weight, 48, None)
    with pytest.raises(RuntimeError, match="packed_linear: x is"):
        torch.ops.r1lit.packed_linear(torch.zeros(2, 32), layer.weight, 48, None)


def test_other_layers_are_cast():
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    half = for_decoding(model, torch.bfloat16)
    assert isinstance(half[0], CastLinear)  # an odd number of columns
    assert isinstance(half[2], PackedLinear if has_bfloat16_kernels() else CastLinear)
    single = for_decoding(model, torch.float32)
    assert isinstance(single[2], CastLinear) and not single.training
    x = torch.randn(5, 3)
    torch.testing.assert_close(single(x), model(x))
    torch.testing.assert_close(half(x).float(), model(x), rtol=0.05, atol=0.05)


COMPILER = """#!/bin/sh
echo called >> "$0.log"
sleep 0.2
while [ "$1" != -o ]; do shift; done
echo > "$2"
"""


def test_who_begins_at_the_same_time_compiles_once(tmp_path, monkeypatch):
    (source := tmp_path / "kernels.cpp").write_text("int one;")
    (compiler := tmp_path / "c++").write_text(COMPILER)
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv(FOLDER, str(tmp_path / "built"))
    with ThreadPoolExecutor(4) as ranks:
        libraries = [*ranks.map(build, [source] * 4)]
    assert len({*libraries}) == 1 and libraries[0].is_file()
    assert (tmp_path / "c++.log").read_text() == "called\n"
