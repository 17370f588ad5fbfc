"""Constrained decoding: a random policy writes valid JSON, and training refuses the engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from drawing import bound

from r1lit.policy import load_policy, load_tokenizer
from r1lit.problems import Problem
from r1lit.rollout import ConstrainedEngine, InProcessEngine, Request, Sampling, check_trains
from r1lit.verifiers import JSONSchemaVerifier

SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "blue"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "pets": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["colour", "age"],
    "additionalProperties": False,
}


def problem(schema=SCHEMA) -> Problem:
    return Problem(uid="p", question="?", answer="", source="s", meta={"schema": schema})


def responses(policy: Path, engine: InProcessEngine, asked: Problem | None) -> list[str]:
    """Return eight responses of up to 160 tokens to one prompt."""
    tokenizer = load_tokenizer(str(policy))
    bound(engine, load_policy(str(policy)), tokenizer)
    request = Request(
        prompt=tuple(tokenizer("Colour?")["input_ids"]),
        samples=tuple(range(8)),
        sampling=Sampling(max_tokens=160),
        seed=0,
        problem=asked,
    )
    completions = engine.generate([request])
    return [tokenizer.decode(c.token_ids, skip_special_tokens=True) for c in completions]


def test_a_random_policy_writes_what_fits_the_schema_by_construction(policy):
    pytest.importorskip("llguidance")
    verifier = JSONSchemaVerifier()

    def valid(texts: list[str]) -> list[float]:
        found = [verifier.verify(text, problem()) for text in texts]
        return [verdict.details.get("valid", 0.0) for verdict in found]

    free = responses(policy, InProcessEngine(compile=False), problem())
    assert valid(free) == [0.0] * 8
    texts = responses(policy, ConstrainedEngine(begin_after="", end="", compile=False), problem())
    assert valid(texts) == [1.0] * 8, texts
    assert len({json.loads(text)["colour"] for text in texts}) == 2
    tagged = ConstrainedEngine(begin_after="", end="</answer>", compile=False)
    assert all(text.endswith("</answer>") for text in responses(policy, tagged, problem()))


def test_what_stands_before_the_object_is_free_and_so_is_a_problem_without_schema(policy):
    pytest.importorskip("llguidance")
    free = responses(policy, InProcessEngine(compile=False), problem())
    engine = ConstrainedEngine(begin_after="<answer>", compile=False)
    assert responses(policy, engine, problem()) == free  # it never writes the tag
    assert responses(policy, ConstrainedEngine(begin_after="", compile=False), None) == free
    opened = ConstrainedEngine(begin_after=free[0][:4], end="", compile=False)
    text = responses(policy, opened, problem())[0]
    assert text[:4] == free[0][:4] and text != free[0]
    assert "colour" in text[4:]


def test_faults_are_told_before_or_where_they_are(policy, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(ValueError, match=r"needs the package llguidance 1\.9; pip install"):
        ConstrainedEngine()
    monkeypatch.undo()
    pytest.importorskip("llguidance")
    with pytest.raises(ValueError, match="engine: ConstrainedEngine leaves tokens out by a schema"):
        check_trains(ConstrainedEngine(), Sampling())
    with pytest.raises(ValueError, match="meta: schema of problem 'p' cannot be decoded by"):
        responses(policy, ConstrainedEngine(), problem({"type": "no such type"}))
