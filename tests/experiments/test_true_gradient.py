"""The true gradient of a policy with four tokens and responses of two: all of them enumerated."""

from __future__ import annotations

import copy
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import data, grpo_config, save_policy
from transformers import LlamaConfig, LlamaForCausalLM

from experiments.true_gradient.estimators import (
    Batch,
    Leaf,
    estimators,
    gradients_KX,
    groups_of,
    token_weights_BT,
    true_weights_BT,
)
from experiments.true_gradient.measure import describe, inner, rounded
from experiments.true_gradient.tree import Subspace, Tree, sample_tree
from r1lit.batches import Problem, Response, Verdict
from r1lit.cli import main
from r1lit.policy import Policy, load_policy
from r1lit.policy.attention import ATTENTION

END, LIMIT = 3, 2
PROMPT = (0, 2, 1)
PROBLEM = Problem(uid="p", question="q", answer="a", source="s")


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(1)
    sizes = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2}
    config = LlamaConfig(vocab_size=4, num_attention_heads=2, initializer_range=0.7, **sizes)
    return LlamaForCausalLM(config).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def subspace(model: LlamaForCausalLM) -> Subspace:
    return Subspace.random(model, 5, 4)


def log_prob(model: LlamaForCausalLM, response: list[int]) -> torch.Tensor:
    logits = model(torch.tensor([[*PROMPT, *response]])).logits[0, len(PROMPT) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None]).sum()


def reward_of(response: list[int]) -> float:
    return float(response[0] == 1) + 0.5 * float(len(response) == 2 and response[1] == 2)


@pytest.fixture(scope="module")
def exact(model: LlamaForCausalLM, subspace: Subspace) -> tuple[dict[tuple, float], torch.Tensor]:
    """The probability of every response, and the gradient of the expected reward by autograd."""
    x_di = torch.zeros(5, 4, requires_grad=True)
    layer = model.model.layers[-1].mlp.down_proj
    weight = layer.weight
    del layer.weight
    layer.weight = weight + subspace.out_Dd @ x_di @ subspace.in_Ii.T
    responses = [(END,), *((a, b) for a, b in product(range(3), range(4)))]
    logps = {response: log_prob(model, list(response)) for response in responses}
    expected = sum(logp.exp() * reward_of(list(r)) for r, logp in logps.items())
    (gradient,) = torch.autograd.grad(expected, x_di)
    del layer.weight
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    return {r: float(logp.detach().exp()) for r, logp in logps.items()}, gradient.flatten()


@pytest.fixture(scope="module")
def tree(model: LlamaForCausalLM, subspace: Subspace) -> Tree:
    rng = np.random.default_rng(0)
    policy = Policy(copy.deepcopy(model))
    policy.model.set_attn_implementation(ATTENTION)
    return sample_tree([policy.eval()], PROMPT, 40_000, LIMIT, END, subspace, rng)


def leaves_of(tree: Tree) -> list[Leaf]:
    leaves = []
    for row in range(len(tree.nodes)):
        ids = tree.tokens(row)
        verdict = Verdict(value=0.0, status="wrong", canonical=None, reason="")
        response = Response(
            text="", problem=PROBLEM, verdict=verdict, num_tokens=len(ids), finished=True
        )
        rewards = {"accuracy": reward_of(ids), "format": 0.0}
        nodes = torch.from_numpy(tree.nodes[row])
        leaves.append(Leaf(nodes=nodes, response=response, rewards=rewards))
    return leaves


def test_a_tree_has_every_response_as_often_as_the_policy_says(tree: Tree, exact) -> None:
    probabilities, _ = exact
    assert sum(probabilities.values()) == pytest.approx(1, abs=1e-6)
    assert tree.counts.sum() == 40_000
    shares = {tuple(tree.tokens(n)): c / 40_000 for n, c in enumerate(tree.counts)}
    for response, p in probabilities.items():
        assert abs(shares.get(response, 0.0) - p) < 5 * (p * (1 - p) / 40_000) ** 0.5 + 1e-9
        leaf = [tuple(tree.tokens(n)) for n in range(len(tree.nodes))].index(response)
        logp = tree.scores[0].logp_N[torch.from_numpy(tree.nodes[leaf])].sum()
        assert float(logp.exp()) == pytest.approx(p, rel=1e-5)


def test_the_sampled_gradient_is_the_enumerated_one(tree: Tree, exact) -> None:
    probabilities, gradient_X = exact
    leaves = leaves_of(tree)
    own = [torch.tensor(probabilities[tuple(tree.tokens(n))]) for n in range(len(leaves))]
    whole = torch.zeros_like(gradient_X)
    for p, leaf in zip(own, leaves, strict=True):  # the expectation, term by term
        batch = Batch(leaves=[leaf], group_size=1)
        weights_BT = true_weights_BT(batch, torch.zeros(1), torch.tensor([0.3]))
        whole += p * gradients_KX(weights_BT[None], batch, tree.scores[0])[0]
    torch.testing.assert_close(whole, gradient_X, atol=1e-6, rtol=1e-4)

    sampled = np.random.default_rng(1).permutation(np.repeat(np.arange(len(leaves)), tree.counts))
    batches = groups_of([sampled], 8, 50)
    estimates_RX = []
    for rows in batches:
        batch = Batch(leaves=[leaves[row] for row in rows], group_size=8)
        weights_BT = true_weights_BT(batch, torch.zeros(len(rows)), torch.full((len(rows),), 0.3))
        estimates_RX.append(gradients_KX(weights_BT[None], batch, tree.scores[0])[0])
    estimate_RX = torch.stack(estimates_RX)
    error_X = estimate_RX.std(0) / len(estimate_RX) ** 0.5
    assert bool(((estimate_RX.mean(0) - gradient_X).abs() < 5 * error_X + 1e-9).all())


@pytest.mark.parametrize(
    ("name", "is_unbiased"),
    [("RLOO", True), ("Dr. GRPO", True), ("REINFORCE", True), ("GRPO", False), ("MaxRL", False)],
)
def test_what_an_estimator_expects_over_all_pairs_of_responses(
    name: str, is_unbiased: bool, tree: Tree, exact
) -> None:
    probabilities, gradient_X = exact
    leaves, objective = leaves_of(tree), estimators(LIMIT)[name]
    logp_N, token_N = tree.scores[0].logp_N, torch.from_numpy(tree.token_N)
    expected_X = torch.zeros_like(gradient_X)
    for one, two in product(range(len(leaves)), repeat=2):
        batch = Batch(leaves=[leaves[one], leaves[two]], group_size=2)
        rollout = batch.rollout(token_N, logp_N)
        c_BT, clipped = token_weights_BT(name, objective, rollout, rollout.logp_old_BT, 0)
        p = probabilities[tuple(tree.tokens(one))] * probabilities[tuple(tree.tokens(two))]
        expected_X += p * gradients_KX(c_BT[None], batch, tree.scores[0])[0]
        assert clipped == 0
    cosine = torch.cosine_similarity(expected_X, gradient_X, dim=0)
    assert (float(cosine) == pytest.approx(1, abs=1e-5)) is is_unbiased
    if name in ("RLOO", "REINFORCE"):  # the length too
        torch.testing.assert_close(expected_X, gradient_X, atol=1e-6, rtol=1e-3)


def test_inner_products_have_no_bias_of_their_noise() -> None:
    rng = torch.Generator().manual_seed(0)
    noise_RX = torch.randn(400, 1000, generator=rng, dtype=torch.double)
    mean_X = torch.zeros(1000, dtype=torch.double)
    mean_X[0] = 2.0
    value, without_R = inner(noise_RX + mean_X, noise_RX + mean_X)
    assert float(value) == pytest.approx(4, abs=0.5)  # the mean's own square is 4 + 1000 / 400
    by_hand, _ = inner((noise_RX + mean_X)[1:], (noise_RX + mean_X)[1:])
    assert float(without_R[0]) == pytest.approx(float(by_hand))


def test_cosines_and_noise_of_a_known_estimator() -> None:
    rng = torch.Generator().manual_seed(0)
    true_RX = torch.randn(300, 50, generator=rng) * 0.01
    true_RX[:, 0] += 1.0
    twice_RX = 2 * true_RX + torch.randn(300, 50, generator=rng)
    twice_RX[:, 1] += 2.0  # 45 degrees away
    found = describe(twice_RX, true_RX)
    assert found["cosine_mean"] == pytest.approx(0.5**0.5, abs=0.05)
    assert found["noise"] == pytest.approx((50 / 8) ** 0.5, abs=0.15)  # variance 50, length 8^0.5
    assert found["scale"] == pytest.approx(2, abs=0.2)
    assert 0 < found["cosine"] < found["cosine_mean"]
    assert 0 < found["cosine_mean_se"] < 0.05
    twice_RX[0] = 0  # clipped away
    assert rounded(describe(twice_RX, true_RX))["cosine"] is None


@pytest.mark.long
def test_a_run_exports_its_policy_after_the_chosen_iterations(tmp_path: Path) -> None:
    export = {"class_path": "experiments.true_gradient.exports.ExportAt",
              "init_args": {"iterations": [1, 2]}}  # fmt: skip
    run, change = tmp_path / "run", data(num_iterations=3)
    change |= {"run": str(run), "trainer": {"limit_val_batches": 0, "callbacks": [export]}}
    main(["fit", "-c", str(grpo_config(run, save_policy(tmp_path / "base"), change))])
    weights = {
        name: torch.cat([w.flatten() for _, w in load_policy(str(run / name)).named_weights()])
        for name in ("policy_1", "policy_2", "policy")
    }
    assert not torch.equal(weights["policy_1"], weights["policy_2"])
    assert not torch.equal(weights["policy_2"], weights["policy"])
    assert not (run / "policy_3").exists()
