"""Training under top-p and top-k: log-probs among what these left (DeepSeek-V3.2 2512.02556)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from test_async_rollouts import Keep, callbacks
from test_resume import assert_equal, everything
from tiny import CORRECTION, ahead, data, grpo_config, merge, model

from r1lit.batches import Candidates
from r1lit.cli import main
from r1lit.groups import join_rollouts, take_groups
from r1lit.policy import LogProbs
from r1lit.policy.predictions import Predictions
from r1lit.rollout import Completion, InProcessEngine, Sampling, check_trains
from r1lit.rollout.model_inputs import model_inputs
from r1lit.rollout.next_token import sample_tokens, sample_with_candidates
from r1lit.rollout.stored_completions import as_tensors, completions_of
from r1lit.rollout.vllm.engine import VLLMEngine

PROBABILITY_V = torch.tensor([0.05, 0.4, 0.15, 0.1, 0.3])
CUT = {"max_tokens": 8, "temperature": 0.8, "top_p": 0.7}
NO_STEP = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.0}}


def candidates(*ids: list[int]) -> Candidates:
    return Candidates(
        ids_N=torch.tensor([token for own in ids for token in own], dtype=torch.int32),
        num_K=torch.tensor([len(own) for own in ids], dtype=torch.int32),
    )


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


# sampling


@pytest.mark.parametrize("setting", [{"top_k": 2}, {"top_p": 0.6}])
def test_log_probs_are_among_the_tokens_that_are_left(setting: dict[str, Any]) -> None:
    logits_BV = PROBABILITY_V.log().repeat(2, 1)
    uniform_B = torch.tensor([0.0, 0.99], dtype=torch.float64)
    token_B, logp_B, left_BV = sample_with_candidates(logits_BV, uniform_B, Sampling(**setting))
    assert token_B.tolist() == [1, 4]
    assert torch.allclose(logp_B.exp(), torch.tensor([4 / 7, 3 / 7]))
    assert left_BV.tolist() == [[False, True, False, False, True]] * 2


def test_the_same_tokens_are_drawn() -> None:
    random = torch.Generator().manual_seed(0)
    logits_BV = torch.randn(200, 50, generator=random)
    uniform_B = torch.rand(200, generator=random, dtype=torch.float64)
    sampling = Sampling(temperature=0.7, top_p=0.8, top_k=20)
    token_B, logp_B, left_BV = sample_with_candidates(logits_BV, uniform_B, sampling)
    plain_B, whole_B = sample_tokens(logits_BV, uniform_B, sampling)
    assert torch.equal(token_B, plain_B)
    share_B = ((logits_BV / 0.7).softmax(-1) * left_BV).sum(-1)
    assert torch.allclose(logp_B, whole_B - share_B.log(), atol=1e-5)


# log-probs


def test_values_by_hand() -> None:
    """Of 0.5, 0.3 and 0.2 the first two: 3/8, entropy 0.6616; then the last alone."""
    predictions = Predictions(
        states_KD=torch.tensor([[0.5, 0.3, 0.2]]).log().repeat(2, 1),
        weight_VD=None,
        candidates=candidates([0, 1], [2]),
    )
    output = LogProbs()(predictions, torch.tensor([1, 2]))
    assert output.logp_K.tolist() == pytest.approx([math.log(3 / 8), 0.0])
    entropy = -(5 / 8 * math.log(5 / 8) + 3 / 8 * math.log(3 / 8))
    assert output.entropy_K.tolist() == pytest.approx([entropy, 0.0], abs=1e-6)


@pytest.mark.parametrize("entropy_gradient", [False, True])
@pytest.mark.parametrize("has_head", [False, True])
def test_values_and_gradients_are_those_of_a_masked_softmax(
    has_head: bool, entropy_gradient: bool
) -> None:
    """700 tokens are three chunks."""
    random = torch.Generator().manual_seed(1)
    states_KD = torch.randn(700, 8, generator=random).requires_grad_()
    weight_VD = torch.randn(64, 8, generator=random).requires_grad_()
    left_KV = torch.rand(700, 64, generator=random) < 0.2
    target_K = torch.randint(64, (700,), generator=random)
    left_KV[torch.arange(700), target_K] = True
    own = Candidates(ids_N=left_KV.nonzero()[:, 1].int(), num_K=left_KV.sum(-1))
    states, head = (states_KD, weight_VD) if has_head else (states_KD @ weight_VD.T, None)
    predictions = Predictions(states_KD=states, weight_VD=head, candidates=own)
    output = LogProbs(temperature=0.7, entropy_gradient=entropy_gradient)(predictions, target_K)
    logp_KV = (states_KD @ weight_VD.T / 0.7).masked_fill(~left_KV, -math.inf).log_softmax(-1)
    plain_K = logp_KV.gather(-1, target_K[:, None]).squeeze(-1)
    entropy_K = -(logp_KV.exp() * logp_KV.masked_fill(~left_KV, 0.0)).sum(-1)
    torch.testing.assert_close(output.logp_K, plain_K, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(output.entropy_K, entropy_K, rtol=1e-5, atol=1e-5)
    assert output.entropy_K.requires_grad == entropy_gradient
    weight = float(entropy_gradient)
    sums = [(lp.pow(2) + weight * h).sum() for lp, h in ((output.logp_K, output.entropy_K),
                                                         (plain_K, entropy_K))]  # fmt: skip
    found, expected = (torch.autograd.grad(s, (states_KD, weight_VD)) for s in sums)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert expected[1].abs().max() > 1, "nothing to tell apart"


# runs


def test_sampler_and_policy_agree_with_the_mask_and_not_without(fit, tmp_path: Path) -> None:
    for name, keeps in (("kept", True), ("whole", False)):
        fit(name, model(sampling=CUT, keep_sampling_mask=keeps), data(num_iterations=2))
    kept, whole = (metrics(tmp_path / name)[0] for name in ("kept", "whole"))
    assert kept["train/mismatch/max_abs"] < 1e-4 and whole["train/mismatch/max_abs"] < 1e-4
    assert 1 < kept["train/num_candidates"] < 400 and "train/num_candidates" not in whole
    assert kept["train/reward"] == whole["train/reward"], "the same responses"
    assert kept["train/entropy"] < whole["train/entropy"]


def test_the_gradient_is_that_of_the_policy_that_samples(fit) -> None:
    """Of all log-probs among the candidates: no other token's logit gets any."""
    args = callbacks("Keep")
    cli = fit("run", model(sampling=CUT, optimizer=NO_STEP), data(num_iterations=2), args=args)
    [kept] = [c for c in cli.trainer.callbacks if isinstance(c, Keep)]
    rollout, policy = kept.rollouts[0], cli.model.policy
    responses = model_inputs(rollout, torch.arange(16))
    width = responses.response_BT.shape[1]
    logp_BT = responses.to_rows(policy(responses, LogProbs(temperature=0.8)).logp_K)
    sampler_BT = rollout.logp_sampler_BT[:, :width]
    assert (logp_BT - sampler_BT)[responses.mask_BT].abs().max() < 1e-4
    assert sampler_BT[responses.mask_BT].std() > 0.3, "a near uniform policy would prove nothing"
    for row, own in enumerate(rollout.candidates):
        tokens = rollout.response_BT[row, : rollout.length_B[row]]
        lists = own.ids_N.split(own.num_K.tolist())
        assert all(int(t) in ids.tolist() for t, ids in zip(tokens, lists, strict=True))
    halves = [take_groups(rollout, own) for own in ([2, 0], [3, 1])]
    again = take_groups(join_rollouts(halves), [1, 3, 0, 2])
    for one, other in zip(rollout.candidates, again.candidates, strict=True):
        assert torch.equal(one.ids_N, other.ids_N) and torch.equal(one.num_K, other.num_K)


def test_candidates_are_kept_with_what_is_generated_ahead() -> None:
    completion = Completion(
        token_ids=torch.tensor([4, 5, 6]),
        logps=torch.zeros(3),
        finish_reason="stop",
        candidates=candidates([4, 1], [5], [0, 6, 2]),
    )
    for one in completions_of(as_tensors([completion, completion])):
        assert one.candidates.ids_N.tolist() == [4, 1, 5, 0, 6, 2]
        assert one.candidates.num_K.tolist() == [2, 1, 3]
    assert "candidates" not in as_tensors([Completion(
        token_ids=torch.tensor([4]), logps=torch.zeros(1), finish_reason="stop")])  # fmt: skip


@pytest.mark.slow
def test_a_failed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, policy: Path) -> None:
    stale = model(sampling=CUT, collector=ahead(1), steps=[CORRECTION])
    change = merge(stale, data(num_iterations=3))
    whole, broken = (grpo_config(tmp_path / n, policy, change) for n in ("whole", "broken"))
    main(["fit", "-c", str(whole)])
    with pytest.raises(RuntimeError, match="on purpose"):
        main(["fit", "-c", str(broken), *callbacks("FailAt", iteration=1)])
    saved = torch.load(tmp_path / "broken/checkpoints/last.ckpt", weights_only=False)
    [packed] = saved["pending_rollouts"].values()
    assert len(packed["num_candidates"]) == packed["num_tokens"].sum()
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    assert_equal(everything(tmp_path / "whole"), everything(tmp_path / "broken"))


# bad input


@pytest.mark.parametrize(("keeps", "message"), [(True, "which ones"), (False, "the policy's")])
@pytest.mark.parametrize("cut", [{"top_p": 0.9}, {"top_k": 40}])
def test_an_engine_without_candidates_is_refused(cut, keeps: bool, message: str) -> None:
    [(key, value)] = cut.items()
    engine = VLLMEngine(urls=["http://localhost:1"])
    with pytest.raises(ValueError, match=rf"sampling\.{key}: {value} .*VLLMEngine.*{message}"):
        check_trains(engine, Sampling(**cut), keeps)
    check_trains(InProcessEngine(), Sampling(**cut), keeps)
    check_trains(engine, Sampling(), keeps)
