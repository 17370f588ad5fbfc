"""Divergences between two policies, part by part, against whole logits."""

from __future__ import annotations

import pytest
import torch
from tiny_models import document_rows, make_policy, make_tokenizer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from r1lit.objectives import ForwardKL, GeneralizedJSD, ReverseKL, SampledReverseKL
from r1lit.policy import (
    Divergences,
    FullScores,
    Policy,
    Responses,
    TopScores,
    check_same_vocabulary,
)
from r1lit.policy.divergences import divergence_K
from r1lit.policy.predictions import Predictions
from r1lit.policy.support import enable_packed

K, D, E, V = 100, 8, 12, 64
DIVERGENCES = [ForwardKL(), ReverseKL(), GeneralizedJSD(0.1), SampledReverseKL()]


@pytest.fixture(params=[1, 160 * V, 1 << 22], ids=["16 at once", "40 at once", "all at once"])
def chunk_sizes(request, set_chunk_sizes) -> int:
    set_chunk_sizes(logits=request.param, tokens=64)
    return request.param


def predictions(
    seed: int, size: int, vocabulary: int = V, num: int = K, scale: float = 1.0
) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    return Predictions(
        states_KD=(scale * torch.randn(num, size, generator=generator)).requires_grad_(),
        weight_VD=torch.randn(vocabulary, size, generator=generator).requires_grad_(),
    )


class Head(torch.nn.Module):
    """A teacher's policy that is a head alone."""

    def __init__(self, weight_VD: torch.Tensor) -> None:
        super().__init__()
        self.weight_VD = weight_VD

    def forward(self, inputs, compute):
        said = Predictions(states_KD=inputs.states_KD, weight_VD=self.weight_VD)
        return compute(said, inputs.target_K)


def scores(said: Predictions) -> FullScores:
    return FullScores(policy=Head(said.weight_VD), states_KD=said.states_KD)


def whole(said: Predictions, temperature: float, width: int = V) -> torch.Tensor:
    assert said.weight_VD is not None
    logits_KV = (said.states_KD @ said.weight_VD.T)[:, :width]
    return (logits_KV / temperature).log_softmax(-1)


@pytest.mark.parametrize("divergence", DIVERGENCES, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_values_and_gradients_are_those_of_whole_logits(chunk_sizes, divergence, temperature):
    student, teacher = predictions(0, D), predictions(1, E)
    target_K = torch.randint(V, (K,), generator=torch.Generator().manual_seed(2))
    arguments = (student.states_KD, student.weight_VD)
    grad_K = torch.linspace(-1, 2, K)
    found_K = divergence_K(student, scores(teacher), target_K, divergence, temperature)
    found = torch.autograd.grad(found_K, arguments, grad_K)
    pair = whole(student, temperature), whole(teacher, temperature)
    if isinstance(divergence, SampledReverseKL):
        pair = tuple(logp.gather(-1, target_K[:, None]).squeeze(-1) for logp in pair)
    expected_K = divergence(*pair)
    expected = torch.autograd.grad(expected_K, arguments, grad_K)
    torch.testing.assert_close(found_K, expected_K, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert expected_K.std() > 0.02, "nothing to tell apart"
    assert teacher.states_KD.grad is None


class Largest(TorchDispatchMode):
    """Notes the most numbers that any tensor holds."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.most = max(self.most, leaf.numel())
        return out


def test_whole_logits_never_exist(set_chunk_sizes):
    set_chunk_sizes(logits=1, tokens=64)
    student, teacher = predictions(0, D, num=1000), predictions(1, E, num=1000)
    target_K = torch.zeros(1000, dtype=torch.long)
    with Largest() as seen:
        divergence_K(student, scores(teacher), target_K, ForwardKL()).sum().backward()
    assert seen.most <= 1000 * E < 1000 * V


def test_logits_beyond_the_narrower_head_are_left_out():
    """Qwen2.5's heads are padded to different widths over the same tokenizer."""
    student, teacher = predictions(0, D, V), predictions(1, E, V + 8)
    target_K = torch.zeros(K, dtype=torch.long)
    found_K = divergence_K(student, scores(teacher), target_K, ForwardKL())
    torch.testing.assert_close(
        found_K, ForwardKL()(whole(student, 1.0), whole(teacher, 1.0)), rtol=1e-4, atol=1e-5
    )


def test_top_scores_with_every_token_are_whole_scores():
    """All but one: the rest is that one. None is as unlikely as the floor of the rest."""
    student, teacher = predictions(0, D, scale=0.5), predictions(1, E, scale=0.5)
    target_K = torch.randint(V, (K,), generator=torch.Generator().manual_seed(2))
    logp_KV = whole(teacher, 1.0).detach()
    order_KV = torch.stack(
        [torch.cat([t[None], torch.arange(V)[torch.arange(V) != t]]) for t in target_K]
    )
    top = TopScores(token_KC=order_KV[:, :-1], logp_KC=logp_KV.gather(-1, order_KV[:, :-1]))
    for divergence in DIVERGENCES:
        found_K = divergence_K(student, top, target_K, divergence)
        expected_K = divergence_K(student, scores(teacher), target_K, divergence)
        torch.testing.assert_close(found_K, expected_K, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_tokens_without_scores_have_no_divergence_and_no_gradient(divergence):
    student = predictions(0, D)
    target_K = torch.zeros(K, dtype=torch.long)
    known_K = torch.arange(K) % 2 == 0
    logp_K1 = torch.full((K, 1), -1.0)
    some = TopScores(token_KC=target_K[:, None], logp_KC=logp_K1, known_K=known_K)
    value_K = divergence_K(student, some, target_K, divergence)
    everywhere_K = divergence_K(
        student, TopScores(token_KC=target_K[:, None], logp_KC=logp_K1), target_K, divergence
    )
    torch.testing.assert_close(value_K, everywhere_K.where(known_K, 0.0))
    (grad_KD,) = torch.autograd.grad(value_K.sum(), student.states_KD)
    assert (grad_KD.abs().sum(-1) > 0).tolist() == known_K.tolist()


def test_no_tokens_give_no_values_and_a_gradient_of_zero():
    student, teacher = predictions(0, D, num=0), predictions(1, E, num=0)
    none_K = torch.zeros(0, dtype=torch.long)
    value_K = divergence_K(student, scores(teacher), none_K, ForwardKL())
    assert value_K.shape == (0,)
    value_K.sum().backward()


def policies(packed: bool) -> tuple[Policy, Policy]:
    pair = make_policy("llama"), make_policy("qwen2")
    if packed:
        assert [enable_packed(policy) for policy in pair] == [None, None]
    return pair


@pytest.mark.parametrize("packed", [True, False])
def test_documents_and_responses_are_scored_where_they_are_predicted(packed):
    """The same text as a document and as a response to its prompt."""
    student, teacher = policies(packed)
    prompt, response = [5, 6, 7], [8, 9, 10, 11]
    ids_RL = torch.tensor([[*prompt, *response, 3, 3]])
    position_RL = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 0, 1]])
    mask_RL = torch.tensor([[False] * 3 + [True] * 4 + [False] * 2])
    response_BT = torch.tensor([response])
    mask_BT = torch.ones_like(response_BT, dtype=torch.bool)
    values = [
        student(
            inputs,
            Divergences(teacher=FullScores.of(teacher, inputs), divergence=ForwardKL()),
        ).divergence_K
        for inputs in (
            document_rows(ids_RL, position_RL, mask_RL),
            Responses(prompts=[prompt], response_BT=response_BT, mask_BT=mask_BT),
        )
    ]
    logp = [p.model(ids_RL[:, :7]).logits[0, 2:6].log_softmax(-1) for p in (student, teacher)]
    for value_K in values:
        torch.testing.assert_close(value_K, ForwardKL()(*logp), rtol=1e-3, atol=1e-4)


def test_vocabularies():
    tokenizer = make_tokenizer()
    check_same_vocabulary(tokenizer, make_tokenizer(), "same")
    larger = make_tokenizer()
    larger.add_tokens(["<more>"])
    sizes = f"{len(larger)} tokens and the policy one of {len(tokenizer)}"
    with pytest.raises(ValueError, match=f"teacher: 'big' .*{sizes}.*logit_weight: 0"):
        check_same_vocabulary(tokenizer, larger, "big")
    one, other = make_tokenizer(), make_tokenizer()
    one.add_tokens(["<one>"])
    other.add_tokens(["<other>"])
    with pytest.raises(
        ValueError, match=r"1 differ, such as .*'<other>' to the teacher and '<one>'"
    ):
        check_same_vocabulary(one, other, "other")
    ends = make_tokenizer()
    ends.eos_token = "<pad>"
    with pytest.raises(ValueError, match="ends its responses with '<pad>' and the policy with"):
        check_same_vocabulary(tokenizer, ends, "ends")
