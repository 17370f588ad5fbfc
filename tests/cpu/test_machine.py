from __future__ import annotations

import gc
import platform
import subprocess
import sys

import pytest
import torch

from r1lit.cpu.machine import has_fast_bfloat16, no_garbage_collection

COUNT_FAULTS = """
import resource, torch
from r1lit.cpu.machine import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        a = torch.ones(16 << 20)
        b = torch.ones(3 << 20)
        c = a * 2
        del a, b, c
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = faults()
kept = keep_freed_memory()
faults()
print(kept, first, faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_used_again_with_fewer_page_faults():
    done = subprocess.run(
        [sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True
    )
    kept, before, after = done.stdout.split()
    assert kept == "True"
    assert int(before) > 100_000, "five times 140 MB were to be mapped anew, 4 KB at a time"
    assert int(after) < int(before) / 2


def test_whether_bfloat16_is_fast_is_known():
    assert has_fast_bfloat16() in (True, False)
    if torch.cpu._is_avx512_bf16_supported():
        assert has_fast_bfloat16()


def test_the_collector_rests_for_the_while_and_no_longer():
    with pytest.raises(KeyError), no_garbage_collection():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with no_garbage_collection():
            pass
        assert not gc.isenabled(), "whoever switched it off finds it off"
    finally:
        gc.enable()
