from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from r1lit.machine import has_fast_bfloat16, no_garbage_collection

COUNT_FAULTS = """
import resource, torch
from r1lit.machine import keep_freed_memory

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
    small_pages = {**os.environ, "THP_MEM_ALLOC_ENABLE": "0"}  # a huge page is one fault
    done = subprocess.run(
        [sys.executable, "-c", COUNT_FAULTS],
        capture_output=True,
        text=True,
        check=True,
        env=small_pages,
    )
    kept, before, after = done.stdout.split()
    assert kept == "True"
    assert int(before) > 100_000, "five times 140 MB were to be mapped anew, 4 KB at a time"
    assert int(after) < int(before) / 2


HUGE_PAGES = """
import r1lit, lightning, transformers, torch, pathlib

kept = torch.ones(64 << 18)
rollup = pathlib.Path("/proc/self/smaps_rollup").read_text()
print(next(line.split()[1] for line in rollup.splitlines() if line.startswith("AnonHugePages")))
"""
GRANTED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not GRANTED.exists() or "[madvise]" not in GRANTED.read_text(),
    reason="the kernel grants huge pages always, or never",
)
@pytest.mark.parametrize("asked", [None, "0"], ids=["as it comes", "switched off"])
def test_large_tensors_lie_in_huge_pages_unless_switched_off(asked):
    environment = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"}
    done = subprocess.run(
        [sys.executable, "-c", HUGE_PAGES],
        capture_output=True,
        text=True,
        check=True,
        env=environment if asked is None else environment | {"THP_MEM_ALLOC_ENABLE": asked},
    )
    huge_kb = int(done.stdout)
    assert huge_kb == 0 if asked else huge_kb > 32 << 10, "half of 64 MB at least"


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
