"""Log-probs of responses and documents: padded rows are checked one by one, packed ones by them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tiny_models import (
    ARCHITECTURES,
    SOFTMAX_ATTENTION,
    document_rows,
    make_policy,
    response_logits,
    response_logp,
)
from torch import Tensor

from r1lit.policy import CrossEntropy, Policy, is_packed
from r1lit.policy.packed_documents import pack_documents
from r1lit.policy.support import enable_packed

PACKED = [name for name in SOFTMAX_ATTENTION if name not in ("mistral", "gemma2", "gemma3")]
LONG, SHORT, OTHER = [1, 50, 60, 70, 80, 90, 55], [1, 51], [1, 9, 8, 7, 66, 44]
PROMPTS = [LONG, SHORT, LONG, OTHER, LONG, SHORT, OTHER]
LENGTHS = [9, 1, 4, 8, 1, 9, 5]
RESPONSE_BT = 3 + torch.arange(63).view(7, 9) * 41 % 200
MASK_BT = torch.arange(9) < torch.tensor(LENGTHS)[:, None]
TEMPERATURE = 0.7


def packed_policy(name: str, dtype: torch.dtype = torch.float32) -> Policy:
    policy = make_policy(name, dtype)
    assert enable_packed(policy) is None and is_packed(policy)
    return policy


def tied(make: Callable[[str], Policy]) -> Policy:
    policy = make("llama")
    policy.model.lm_head.weight = policy.model.model.embed_tokens.weight
    return policy


def gradients(policy: Policy, logp: Tensor) -> dict[str, Tensor]:
    """Gradients of a sum in which every log-prob has another weight."""
    policy.zero_grad()
    (logp * torch.linspace(-1, 2, logp.numel()).view(logp.shape)).sum().backward()
    return {name: p.grad.clone() for name, p in policy.named_parameters()}


def assert_same_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        size = float(gradient.abs().max())
        assert size > 1e-3 or name.endswith("k_proj.bias"), f"{name} learns nothing"
        torch.testing.assert_close(
            found[name],
            gradient,
            rtol=1e-3,
            atol=1e-5 * max(1.0, size),
            msg=lambda m, n=name: n + m,
        )


# responses


@pytest.mark.parametrize("name", ARCHITECTURES)
@torch.no_grad()
def test_a_row_s_log_probs_are_those_it_has_alone(name):
    """The reference of all that follows: one unpadded row at a time, softmax by hand."""
    policy = make_policy(name)
    logits_BTV = response_logits(policy, PROMPTS, RESPONSE_BT) / TEMPERATURE
    said = response_logp(policy, PROMPTS, RESPONSE_BT, MASK_BT, TEMPERATURE)
    for row, (prompt, length) in enumerate(zip(PROMPTS, LENGTHS, strict=True)):
        response_T = RESPONSE_BT[row, :length]
        ids = torch.tensor([prompt + response_T.tolist()])
        alone_TV = policy.model(ids).logits[0, len(prompt) - 1 : -1].double() / TEMPERATURE
        assert torch.allclose(logits_BTV[row, :length].double(), alone_TV, atol=1e-4)
        probability_TV = alone_TV.exp() / alone_TV.exp().sum(-1, keepdim=True)
        logp_T = probability_TV.log()[torch.arange(length), response_T]
        entropy_T = -(probability_TV * probability_TV.log()).sum(-1)
        assert torch.allclose(said.logp_BT[row, :length].double(), logp_T, atol=1e-4)
        assert torch.allclose(said.entropy_BT[row, :length].double(), entropy_T, atol=1e-4)
    assert said.logp_BT.dtype == said.entropy_BT.dtype == torch.float32
    assert not said.logp_BT[~MASK_BT].any() and not said.entropy_BT[~MASK_BT].any()


@pytest.mark.parametrize("name", [*PACKED, "tied"])
def test_packed_says_what_padded_says_gradients_included(name):
    if name == "tied":
        padded, packed = tied(make_policy), tied(packed_policy)
    else:
        padded, packed = make_policy(name), packed_policy(name)
    expected, found = (
        response_logp(policy, PROMPTS, RESPONSE_BT, MASK_BT, TEMPERATURE)
        for policy in (padded, packed)
    )
    torch.testing.assert_close(found.logp_BT, expected.logp_BT, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(found.entropy_BT, expected.entropy_BT, rtol=1e-5, atol=1e-4)
    assert not found.entropy_BT.requires_grad
    assert not found.logp_BT[~MASK_BT].any() and not found.entropy_BT[~MASK_BT].any()
    assert_same_gradients(gradients(packed, found.logp_BT), gradients(padded, expected.logp_BT))


def test_rows_in_any_order_or_alone_say_the_same():
    policy = packed_policy("llama")
    order = [3, 0, 6, 2, 5, 1, 4]
    with torch.no_grad():
        whole_BT = response_logp(policy, PROMPTS, RESPONSE_BT, MASK_BT, 1.0).logp_BT
        shuffled_BT = response_logp(
            policy, [PROMPTS[b] for b in order], RESPONSE_BT[order], MASK_BT[order], 1.0
        ).logp_BT
        torch.testing.assert_close(shuffled_BT, whole_BT[order], rtol=1e-5, atol=1e-5)
        for row, prompt in enumerate(PROMPTS):
            one = (RESPONSE_BT[row, None], MASK_BT[row, None])
            alone_1T = response_logp(policy, [prompt], *one, 1.0).logp_BT
            torch.testing.assert_close(alone_1T[0], whole_BT[row], rtol=1e-5, atol=1e-5)


def test_what_the_padding_holds_is_never_read():
    policy = packed_policy("llama")
    poisoned_BT = RESPONSE_BT.masked_fill(~MASK_BT, 10**6)
    with torch.no_grad():
        clean, poisoned = (
            response_logp(policy, PROMPTS, ids, MASK_BT, 1.0) for ids in (RESPONSE_BT, poisoned_BT)
        )
    assert torch.equal(clean.logp_BT, poisoned.logp_BT)


def test_the_last_token_of_a_response_is_predicted_and_predicts_nothing():
    policy = packed_policy("llama")
    changed_BT = RESPONSE_BT.clone()
    changed_BT[3, 7] = 99
    with torch.no_grad():
        before_BT, after_BT = (
            response_logp(policy, PROMPTS, ids, MASK_BT, 1.0).logp_BT
            for ids in (RESPONSE_BT, changed_BT)
        )
    differs_BT = before_BT != after_BT
    assert differs_BT.nonzero().tolist() == [[3, 7]]


@pytest.mark.parametrize("row", [0, 2, 5])
def test_a_row_s_tokens_are_no_other_row_s_business(row):
    policy = packed_policy("qwen2")
    changed_BT = RESPONSE_BT.clone()
    changed_BT[row, 1] = 3 + (changed_BT[row, 1] + 50) % 200
    with torch.no_grad():
        before_BT, after_BT = (
            response_logp(policy, PROMPTS, ids, MASK_BT, 1.0).logp_BT
            for ids in (RESPONSE_BT, changed_BT)
        )
    change_BT = (after_BT - before_BT).abs()
    others = [b for b in range(7) if b != row]
    assert not change_BT[others].any()
    assert not change_BT[row, 0] and (change_BT[row, 1 : LENGTHS[row]] > 1e-3).all()


@pytest.mark.parametrize("policy_of", [make_policy, packed_policy])
def test_gradients_flow_from_every_token_before_and_from_nothing_else(policy_of):
    policy = policy_of("llama")
    embedding = policy.model.get_input_embeddings().weight
    logp_BT = response_logp(policy, PROMPTS, RESPONSE_BT, MASK_BT, 1.0).logp_BT

    def reached(row: int, place: int) -> set[int]:
        (gradient,) = torch.autograd.grad(logp_BT[row, place], embedding, retain_graph=True)
        return set(gradient.abs().sum(-1).nonzero().flatten().tolist())

    assert reached(3, 0) == set(OTHER)
    assert reached(3, 4) == {*OTHER, *RESPONSE_BT[3, :4].tolist()}
    assert reached(4, 0) == set(LONG), "a response of one token"
    assert reached(2, 3) == {*LONG, *RESPONSE_BT[2, :3].tolist()}


def test_gradient_checkpointing_changes_no_gradient():
    plain, saving = packed_policy("llama").train(), packed_policy("llama").train()
    saving.model.gradient_checkpointing_enable({"use_reentrant": False})
    calls = []
    saving.layers[0].mlp.register_forward_pre_hook(lambda *_: calls.append(1))
    found, expected = (
        gradients(p, response_logp(p, PROMPTS, RESPONSE_BT, MASK_BT, 1.0).logp_BT)
        for p in (saving, plain)
    )
    assert len(calls) == 2, "computed again in the backward pass"
    assert_same_gradients(found, expected)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_under_bf16_autocast_both_are_as_near_the_truth(name):
    padded, packed = make_policy(name), packed_policy(name)
    said = (PROMPTS, RESPONSE_BT, MASK_BT, 1.0)
    truth = response_logp(padded, *said)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, found = response_logp(padded, *said), response_logp(packed, *said)
    assert found.logp_BT.dtype == torch.float32
    error, usual = (
        float((each.logp_BT - truth.logp_BT).detach()[MASK_BT].abs().mean())
        for each in (found, rounded)
    )
    assert 0 < error < 1.5 * usual + 1e-3 and usual < 0.1, (error, usual)
    exact, usual_g, found_g = (
        torch.cat([g.flatten() for g in gradients(p, s.logp_BT).values()])
        for p, s in ((padded, truth), (padded, rounded), (packed, found))
    )
    error, usual = (float((g - exact).norm() / exact.norm()) for g in (found_g, usual_g))
    assert error < 1.5 * usual and usual < 0.1, (error, usual)


def test_bf16_weights():
    padded, packed = make_policy("llama", torch.bfloat16), packed_policy("llama", torch.bfloat16)
    expected, found = (
        response_logp(p, PROMPTS, RESPONSE_BT, MASK_BT, 1.0).logp_BT for p in (padded, packed)
    )
    assert found.dtype == torch.float32
    assert (found - expected).abs().mean() < 0.05
    assert all(g.dtype == torch.bfloat16 for g in gradients(packed, found).values())


def test_attention_drops_out_in_training_alone():
    policy = packed_policy("llama")
    said = (PROMPTS, RESPONSE_BT, MASK_BT, 1.0)
    quiet_BT = response_logp(policy, *said).logp_BT
    for layer in policy.layers:
        layer.self_attn.attention_dropout = 0.5
    assert torch.equal(response_logp(policy, *said).logp_BT, quiet_BT)
    policy.train()
    first_BT, second_BT = (response_logp(policy, *said).logp_BT for _ in range(2))
    assert ((first_BT - second_BT).abs() > 1e-3)[MASK_BT].any()
    assert ((first_BT - quiet_BT).abs() > 1e-3)[MASK_BT].any()
    assert all(g.isfinite().all() for g in gradients(policy, first_BT).values())


def test_temperature_spreads_and_greedy_counts_as_1():
    policy = packed_policy("llama")
    hot, cold, greedy = (
        response_logp(policy, PROMPTS, RESPONSE_BT, MASK_BT, t) for t in (2.0, 0.5, 0.0)
    )
    assert (hot.entropy_BT > cold.entropy_BT)[MASK_BT].all()
    plain = response_logp(policy, PROMPTS, RESPONSE_BT, MASK_BT, 1.0)
    assert torch.equal(greedy.logp_BT, plain.logp_BT)


# documents

DOCUMENTS = [[1, *range(20, 90, 10)], [1, 99, 98, 97], [1, *range(5, 13)], [1, 33]]
# two rows of 16: documents, padding at the end of each, one of them without targets
ROW_LENGTH = 16
LAYOUT = ((0, 1, 3), (2,), (3, 3))


def rows_of_documents() -> tuple[Tensor, Tensor, Tensor]:
    ids = torch.zeros(len(LAYOUT), ROW_LENGTH, dtype=torch.long)
    position, target = torch.zeros_like(ids), torch.zeros(ids.shape, dtype=torch.bool)
    for r, row in enumerate(LAYOUT):
        at = 0
        for d in row:
            stop = at + len(DOCUMENTS[d])
            ids[r, at:stop] = torch.tensor(DOCUMENTS[d])
            position[r, at:stop] = torch.arange(stop - at)
            target[r, at + 1 : stop] = d != 3
            at = stop
        position[r, at:] = torch.arange(ROW_LENGTH - at)
    target[0, 2] = False  # a gap among the targets, and a prompt
    target[1, 1:4] = False
    target[1, 8] = False  # the document's last token is no target
    return ids, position, target


def document_logp(policy, ids, position, target):
    return policy(document_rows(ids, position, target)).logp_K


@pytest.mark.parametrize("name", SOFTMAX_ATTENTION)
@torch.no_grad()
def test_documents_do_not_see_each_other(name):
    policy = make_policy(name)
    rows = rows_of_documents()
    expected = []
    for r, row in enumerate(LAYOUT):
        at = 0
        for d in row:
            ids = torch.tensor([DOCUMENTS[d]])
            logp_TV = policy.model(ids, use_cache=False).logits[0].log_softmax(-1)
            targets = rows[2][r, at : at + ids.shape[1]].nonzero().flatten()
            expected.append(logp_TV[targets - 1, ids[0, targets]])
            at += ids.shape[1]
    found = document_logp(policy, *rows)
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", PACKED)
def test_packed_documents_say_what_padded_rows_say_gradients_included(name):
    padded, packed = make_policy(name), packed_policy(name)
    rows = rows_of_documents()
    expected, found = (document_logp(policy, *rows) for policy in (padded, packed))
    assert found.shape == (int(rows[2].sum()),)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)
    assert_same_gradients(gradients(packed, found), gradients(padded, expected))
    entropy = packed(document_rows(*rows), CrossEntropy()).cross_entropy
    plain = -document_logp(padded, *rows).sum()
    torch.testing.assert_close(entropy, plain, rtol=1e-5, atol=1e-4)
    assert_same_gradients(gradients(packed, entropy), gradients(padded, plain))


def test_only_what_predicts_a_target_is_laid():
    packed, predictor_K = pack_documents(*rows_of_documents())
    # without the last token, without documents that have no target, without padding
    laid = [*DOCUMENTS[0][:-1], *DOCUMENTS[1][:-1], *DOCUMENTS[2][:-2]]
    assert packed.ids_N.tolist() == laid
    assert predictor_K.tolist() == [0, *range(2, 7), 7, 8, 9, 13, 14, 15, 16]
    assert packed.position_N.tolist() == [*range(7), *range(3), *range(7)]


@pytest.mark.parametrize("policy_of", [make_policy, packed_policy])
def test_rows_without_targets(policy_of):
    policy = policy_of("llama")
    ids, position, target = rows_of_documents()
    logp_K = document_logp(policy, ids, position, torch.zeros_like(target))
    assert logp_K.shape == (0,)
    nothing = torch.zeros_like(target)
    loss = policy(document_rows(ids, position, nothing), CrossEntropy()).cross_entropy
    assert loss == 0
    (logp_K.sum() + loss).backward()
    assert not any(p.grad is not None and p.grad.any() for p in policy.parameters())
