from __future__ import annotations

import gc
import platform
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy

from r1lit.device import Backend
from r1lit.device.cpu.machine import has_fast_bfloat16
from r1lit.modules.base import PolicyModule

COUNT_FAULTS = """
import resource, torch
from r1lit.device.cpu.machine import kept_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        a = torch.ones(16 << 20)
        b = torch.ones(3 << 20)
        c = a * 2
        del a, b, c
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4

first, at_first = faults(), resident()
with kept_memory() as kept:
    faults()
    inside, held = faults(), resident()
print(kept, first, inside, held - at_first, resident() - at_first)
"""


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_used_again_within_and_returned_afterwards():
    done = subprocess.run(
        [sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True
    )
    kept, *counts = done.stdout.split()
    before, inside, held, left = map(int, counts)
    assert kept == "True"
    assert before > 100_000, "five times 140 MB were to be mapped anew, 4 KB at a time"
    assert inside < before / 2
    assert held > 100_000 and left < 20_000, "kilobytes that malloc keeps"


HOLES = """
import torch
from r1lit.device.cpu.machine import allocated, kept_memory, return_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

with kept_memory():
    blocks = [torch.ones(1 << 20) for _ in range(600)]
    blocks = blocks[::2]  # every other one is a hole
    before, held = resident(), allocated()
    return_memory()
    print(held["in_use"], held["free"], before - resident())
    assert all(float(block[0]) == 1.0 for block in blocks)
"""


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_holes_between_memory_in_use_are_returned():
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    in_use, free, less = map(float, done.stdout.split())
    half = 300 * 4 * 2**20
    assert in_use > half and free > 0.95 * half
    assert less > 0.9 * half


COUNT_KERNELS = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from experiments.real_model.memory import resident
from r1lit.device import backend

def in_use(first, last):
    for tokens in range(first, last):
        with torch.autocast("cpu", torch.bfloat16):
            linear(torch.randn(tokens, 256)).sum().backward()
        linear.zero_grad()
    return resident()["in_use"]

linear = torch.nn.Linear(256, 512)
with backend(torch.device("cpu")).running():
    print(in_use(300, 400), in_use(400, 600))
"""


@pytest.mark.long
@pytest.mark.skipif(not has_fast_bfloat16(), reason="no products in bfloat16")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_products_of_ever_new_shapes_do_not_grow_the_process():
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", COUNT_KERNELS, root], capture_output=True, text=True, check=True
    )
    after_100, after_300 = map(float, done.stdout.split())
    assert after_300 - after_100 < 5e6, "bytes; 200 shapes more would be 100 MB of code"


def test_whether_bfloat16_is_fast_is_known():
    assert has_fast_bfloat16() in (True, False)
    if torch.cpu._is_avx512_bf16_supported():
        assert has_fast_bfloat16()


@pytest.mark.parametrize(("device", "named"), [("cpu", "CPU"), ("cuda", "GPU")])
def test_a_device_that_is_slow_in_bfloat16_is_named_by_its_kind(monkeypatch, device, named):
    """The GPU is a T4, of compute capability 7.5."""
    monkeypatch.setattr("r1lit.device.cpu.machine.has_fast_bfloat16", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    strategy = SingleDeviceStrategy(torch.device(device))
    trainer = SimpleNamespace(precision="bf16-mixed", strategy=strategy)
    with pytest.warns(UserWarning, match=f"bf16-mixed is slow on this {named}, which has no"):
        PolicyModule.setup(SimpleNamespace(trainer=trainer), "fit")


def test_the_collector_rests_for_the_while_and_no_longer():
    with pytest.raises(KeyError), Backend().decoding():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with Backend().decoding():
            pass
        assert not gc.isenabled(), "whoever switched it off finds it off"
    finally:
        gc.enable()
