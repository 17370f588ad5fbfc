from __future__ import annotations

import gc
import os

# Before torch is imported: compiling takes longer than these runs. tests/rollout/test_compiled.py
# compiles in a process of its own
os.environ["TORCH_COMPILE_DISABLE"] = "1"
# Nor is anything looked up on the Hub, whose library tries for half a minute where there is no net
os.environ["HF_HUB_OFFLINE"] = "1"

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from http_server import ChatServer, CompletionServer, HTTPServer
from tiny import grpo_config, merge, save_policy

from r1lit.cli import main
from r1lit.cli.command import R1CLI

collect_ignore_glob = ["*conftest.py"]  # several folders have one; they hold no doctests

# Tiny tensors: a second thread only waits. Child processes too: sums round by number of threads
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"


def pytest_collection_finish() -> None:
    """Take what all tests are from garbage collection, which each run begins with."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A test that leaves another number of threads would change the last bits of later ones."""
    yield
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    assert num_threads == 1, f"the test left {num_threads} threads"


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a small random policy."""
    return save_policy(tmp_path_factory.mktemp("policy"), seed=3)


@pytest.fixture
def fit(tmp_path: Path, policy: Path) -> Callable[..., R1CLI]:
    """Run ``r1lit fit`` on the tiny GRPO configuration, changed."""

    def run(name: str = "run", *changes: dict[str, Any], args: tuple[str, ...] = ()) -> R1CLI:
        change: dict[str, Any] = {}
        for part in changes:
            change = merge(change, part)
        config = grpo_config(tmp_path / name, policy, change)
        return main(["fit", "-c", str(config), *args])

    return run


@pytest.fixture
def serve() -> Iterator[Callable[..., HTTPServer]]:
    """Start servers: of chats by ``answer``, of completions without it."""
    servers: list[HTTPServer] = []

    def start(answer: Callable[[str, int], Any] | None = None, **options: Any) -> HTTPServer:
        servers.append(ChatServer(answer, **options) if answer else CompletionServer(**options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
