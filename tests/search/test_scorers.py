"""What scorers say of whole and of partial responses."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev

import pytest
import torch
from stand_ins import LastWord
from tiny import DigitShare
from tiny_reward import save_critic
from tree_engine import TOKENIZER, Table, query

from r1lit.policy import load_reward_model, load_tokenizer
from r1lit.search import (
    Noisy,
    PartialResponse,
    RewardScorer,
    Sigmoid,
    ValueScorer,
    VerifierScorer,
)
from r1lit.verifiers import Grader


def response(text: str, finished: bool = True) -> PartialResponse:
    ids = TOKENIZER(text, add_special_tokens=False)["input_ids"]
    return PartialResponse(
        query=query(),
        token_ids=(*ids, TOKENIZER.eos_token_id) if finished else tuple(ids),
        text=text,
        finish_reason="stop" if finished else None,
    )


def test_a_verifier_says_nothing_before_the_end():
    scorer = VerifierScorer(Grader({"math": LastWord()}))
    found = [response("it is 2"), response("it is 2", finished=False), response("it is 3")]
    assert scorer.score(found) == [1.0, 0.0, 0.0]


def test_a_reward_function_scores():
    assert RewardScorer(DigitShare()).score([response("a1"), response("11", False)]) == [0.5, 1.0]


def test_a_value_is_read_behind_the_last_token_and_before_the_end(tmp_path):
    path = save_critic(tmp_path)
    scorer = ValueScorer(str(path), device="cpu")
    going, ended = response("1 + 1", finished=False), response("1 + 1")
    start = replace(going, token_ids=(), text="")
    model = load_reward_model(str(path), pad_id=0).eval()
    prompt = going.query.prompt
    with torch.no_grad():
        expected = [float(model([[*prompt, *going.token_ids]])[0]), float(model([prompt])[0])]
    found = scorer.score([going, ended, start])
    assert found == pytest.approx([expected[0], expected[0], expected[1]], abs=1e-5)
    assert found[0] != pytest.approx(found[2], abs=1e-3)
    scorer.check(TOKENIZER)
    other = load_tokenizer(str(path))
    other.add_tokens(["another"])
    with pytest.raises(ValueError, match="is not the policy's, and a ValueScorer reads"):
        Sigmoid(scorer).check(other)
    with pytest.raises(ValueError, match="holds a language model, not a reward model"):
        ValueScorer(str(tmp_path / "policy"))


def test_a_sigmoid_is_between_0_and_1():
    scorer = Sigmoid(Table({"a": 0.0, "b": 1.0, "c": -1000.0}))
    assert scorer.score([response(text) for text in "abc"]) == pytest.approx([0.5, 0.731059, 0.0])


def test_noise_is_a_function_of_seed_and_response():
    responses = [response(f"{i}") for i in range(400)]
    table = Table({}, other=5.0)
    scores = Noisy(table, std=2.0).score(responses)
    assert Noisy(table, std=2.0).score(responses[::-1]) == scores[::-1]
    assert fmean(scores) == pytest.approx(5.0, abs=0.4) and stdev(scores) == pytest.approx(2, 0.15)
    assert Noisy(table, std=0.0).score(responses) == [5.0] * 400
    assert Noisy(table, std=2.0, seed=1).score(responses) != scores
    with pytest.raises(ValueError, match=r"std: -1\.0 is not at least 0"):
        Noisy(table, std=-1.0)
