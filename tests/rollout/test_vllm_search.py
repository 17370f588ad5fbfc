"""A search over a real vLLM server finds what it finds in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from real_vllm import MINI, RealServer, needs_vllm
from tiny import DigitShare

from r1lit.batches import Problem
from r1lit.policy import ModelSource, load_policy, load_tokenizer
from r1lit.rollout import InProcessEngine, ModelSpec, RolloutEngine, Sampling, VLLMEngine
from r1lit.search import BeamSearch, Query, RewardScorer, SearchResult, Step

pytestmark = [pytest.mark.slow, needs_vllm, pytest.mark.timeout(900)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealServer]:
    started = RealServer(tmp_path / "vllm.log").start()
    yield started
    started.kill()


@torch.no_grad()
def found_by(engine: RolloutEngine) -> list[SearchResult]:
    """Where the likeliest token alone is drawn, so that both engines say the same."""
    tokenizer = load_tokenizer(str(MINI))
    policy = load_policy(ModelSource(str(MINI), dtype="float32", attention="sdpa"))
    engine.bind(ModelSpec(name=str(MINI), tokenizer=tokenizer, policy=policy))
    search = BeamSearch(RewardScorer(DigitShare()), n=2, beam_width=2, step=Step(separator="="))
    texts = [f"What is {p} + {7 * p}?" for p in (3, 5)]
    queries = [
        Query(
            problem=Problem(uid=text, question=text, answer="", source="sums"),
            prompt=tuple(tokenizer(text)["input_ids"]),
        )
        for text in texts
    ]
    return search.run(queries, engine, Sampling(top_k=1, max_tokens=96), 0)


def test_a_search_over_vllm_finds_what_it_finds_here(server):
    here, there = found_by(InProcessEngine()), found_by(VLLMEngine(urls=[server.url]))
    assert there == here
    steps = [len(result.chosen.response.scores) for result in here]
    assert max(steps) > 1, "a response has several steps"
