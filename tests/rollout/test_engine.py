"""The in-process engine on real architectures: what it samples is what the policy says."""

from __future__ import annotations

import drawing
import pytest
import torch
from tiny_models import (
    ARCHITECTURES,
    EOS,
    PAD,
    VOCABULARY,
    Markov,
    make_policy,
    make_tokenizer,
    response_logits,
    response_logp,
)

from r1lit.policy.support import enable_packed
from r1lit.rollout import InProcessEngine, Sampling
from r1lit.rollout.decoding_method import find_decoding_method, find_shared_prompt_error
from r1lit.rollout.next_token import sample_tokens
from r1lit.rollout.sampling import SamplingNumbers

PROMPTS = [[1, 50, 60, 70, 80, 90, 100, 110], [1, 51], [1, *range(8, 21)], [1, 200, 7]]
SEED, ITERATION = 3, 5


SHARED = ("llama", "qwen2", "qwen3", "gpt2", "olmo2")


@pytest.fixture(scope="module", params=[*ARCHITECTURES, *(f"{name}-shared" for name in SHARED)])
def policy(request):
    """With Hugging Face's caches, and over shared prompts where the architecture allows it."""
    policy = make_policy(request.param.removesuffix("-shared"))
    if request.param.endswith("-shared"):
        assert enable_packed(policy) is None
        assert find_shared_prompt_error(policy) is None
    return policy


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def draw(policy, tokenizer, prompts, group_size, **options):
    named = {"seed": SEED, "iteration": ITERATION, "max_tokens": 12}
    return drawing.draw(policy, tokenizer, prompts, group_size, **{**named, **options})


def tokens(generation: drawing.Drawn) -> list[list[int]]:
    return generation.tokens()


@torch.no_grad()
def plainly(policy, prompt: list[int], sample: int, sampling: Sampling) -> list[int]:
    """One response without a cache: a whole forward for each token."""
    uniforms = SamplingNumbers(SEED, ITERATION, [sample], torch.device("cpu"))
    response: list[int] = []
    while len(response) < sampling.max_tokens and response[-1:] != [EOS]:
        logits_1V = policy.model(torch.tensor([prompt + response]), use_cache=False).logits[:, -1]
        token_1, _ = sample_tokens(
            logits_1V, uniforms.at(len(response), torch.tensor([0])), sampling
        )
        response.append(int(token_1))
    return response


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_sampled_logp_is_that_of_the_training_forward(policy, tokenizer, temperature):
    generation = draw(policy, tokenizer, PROMPTS, 2, temperature=temperature)
    rows = [prompt for prompt in PROMPTS for _ in range(2)]
    mask_BT = generation.mask_BT
    with torch.no_grad():
        logp_BT = response_logp(policy, rows, generation.response_BT, mask_BT, temperature).logp_BT
    assert (logp_BT - generation.logp_BT)[mask_BT].abs().max() < 1e-4
    assert generation.logp_BT[mask_BT].std() > 0.3, "a near uniform policy would prove nothing"


def test_engine_decodes_what_a_plain_loop_decodes(policy, tokenizer):
    sampling = Sampling(max_tokens=12, temperature=0.9, top_p=0.95, top_k=100)
    generation = draw(
        policy, tokenizer, PROMPTS, 2, max_tokens=12, temperature=0.9, top_p=0.95, top_k=100
    )
    expected = [
        plainly(policy, prompt, 2 * p + g, sampling)
        for p, prompt in enumerate(PROMPTS)
        for g in range(2)
    ]
    assert tokens(generation) == expected


@pytest.mark.long
def test_tokens_do_not_depend_on_neighbours(policy, tokenizer):
    together = tokens(draw(policy, tokenizer, PROMPTS, 2))
    assert len({tuple(row) for row in together}) == len(together)
    for p, prompt in enumerate(PROMPTS):
        alone = draw(policy, tokenizer, [prompt], 2, samples=[2 * p, 2 * p + 1])
        assert tokens(alone) == together[2 * p : 2 * p + 2]
    backwards = draw(policy, tokenizer, PROMPTS[::-1], 2, samples=[6, 7, 4, 5, 2, 3, 0, 1])
    assert tokens(backwards) == [together[b] for b in (6, 7, 4, 5, 2, 3, 0, 1)]
    single = [prompt for prompt in PROMPTS for _ in range(2)]
    assert tokens(draw(policy, tokenizer, single, 1)) == together
    for max_rows in (1, 3, 5):
        bounded = draw(policy, tokenizer, PROMPTS, 2, max_rows=max_rows)
        assert tokens(bounded) == together


def test_seed_iteration_and_sample_each_change_the_tokens(tokenizer):
    policy = make_policy("llama")
    first = tokens(draw(policy, tokenizer, PROMPTS[:1], 1, samples=[0]))
    assert first == tokens(draw(policy, tokenizer, PROMPTS[:1], 1, samples=[0]))
    assert first != tokens(draw(policy, tokenizer, PROMPTS[:1], 1, samples=[1]))
    for seed, iteration in ((SEED, ITERATION + 1), (SEED + 1, ITERATION)):
        other = draw(policy, tokenizer, PROMPTS[:1], 1, samples=[0], seed=seed, iteration=iteration)
        assert tokens(other) != first


def test_greedy_is_argmax_and_its_logp_is_at_temperature_1(policy, tokenizer):
    generation = draw(policy, tokenizer, PROMPTS, 1, temperature=0.0, max_tokens=6)
    response_BT, mask_BT = generation.response_BT, generation.mask_BT
    with torch.no_grad():
        logits_BTV = response_logits(policy, PROMPTS, response_BT)
        logp_BT = response_logp(policy, PROMPTS, response_BT, mask_BT, 0.0).logp_BT
    assert torch.equal(logits_BTV.argmax(-1)[mask_BT], response_BT[mask_BT])
    assert (logp_BT - generation.logp_BT)[mask_BT].abs().max() < 1e-4


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3"])
def test_bfloat16_agrees_to_its_own_rounding(name, tokenizer):
    policy = make_policy(name, torch.bfloat16)
    generation = draw(policy, tokenizer, PROMPTS, 2)
    assert generation.logp_BT.dtype == torch.float32
    rows = [prompt for prompt in PROMPTS for _ in range(2)]
    with torch.no_grad():
        logp_BT = response_logp(
            policy, rows, generation.response_BT, generation.mask_BT, 1.0
        ).logp_BT
    difference = (logp_BT - generation.logp_BT)[generation.mask_BT].abs()
    assert difference.mean() < 0.05
    assert difference.max() < 0.5


@pytest.mark.long
@pytest.mark.parametrize("name", ["llama", "mistral", "qwen3_next"])
def test_rows_leave_and_the_others_do_not_notice(name, tokenizer):
    # EOS made likely, so that rows end at very different times and the batch is compacted often
    policy = make_policy(name)
    with torch.no_grad():
        forward = policy.model.forward

        def eager_to_end(input_ids, position_ids=None, attention_mask=None, past_key_values=None,
                         use_cache=None, logits_to_keep=0):  # fmt: skip
            widths.append(len(input_ids))
            out = forward(
                input_ids=input_ids, position_ids=position_ids, attention_mask=attention_mask,
                past_key_values=past_key_values, use_cache=use_cache, logits_to_keep=logits_to_keep,
            )  # fmt: skip
            out.logits[..., EOS] = out.logits.logsumexp(-1) - 1.5
            return out

        policy.model.forward = eager_to_end
        widths: list[int] = []
        find_decoding_method(policy)
        num_tried = len(widths)
        generation = draw(policy, tokenizer, PROMPTS, 6, max_tokens=40)
        widths = widths[2 * num_tried :]
        assert widths[0] == len(PROMPTS) and widths[1] <= 24
        assert len(set(widths[1:])) > 5, "no row left the batch"
        assert widths[1:] == sorted(widths[1:], reverse=True)
        sampling = Sampling(max_tokens=40)
        for b, row in enumerate(tokens(generation)):
            assert row == plainly(policy, PROMPTS[b // 6], b, sampling), b
        lengths_B = generation.mask_BT.sum(-1)
        assert len(lengths_B.unique()) > 4
        assert (generation.response_BT[~generation.mask_BT] == PAD).all()
        assert (generation.logp_BT[~generation.mask_BT] == 0).all()


def test_prompt_is_prefilled_once_a_group(tokenizer):
    policy = Markov(torch.zeros(VOCABULARY, VOCABULARY))
    find_decoding_method(policy)
    num_tried = len(policy.rows)
    draw(policy, tokenizer, PROMPTS, 5, max_tokens=2)
    assert policy.rows[2 * num_tried :] == [4, 20]
    policy.rows.clear()
    draw(policy, tokenizer, PROMPTS, 5, max_tokens=2, max_rows=10)
    assert policy.rows[num_tried:] == [2, 10, 2, 10]
    policy.rows.clear()
    draw(policy, tokenizer, PROMPTS[:2], 5, max_tokens=2, max_rows=3)
    assert policy.rows[num_tried:] == [1, 3, 1, 2] * 2, "max_rows bounds a group too"


def test_first_tokens_follow_the_softmax(tokenizer):
    policy = make_policy("qwen2")
    num_samples, temperature = 4000, 0.7
    generation = draw(
        policy, tokenizer, PROMPTS[:1], num_samples, max_tokens=1, temperature=temperature
    )
    with torch.no_grad():
        logits_V = policy.model(torch.tensor(PROMPTS[:1])).logits[0, -1]
    expected_V = num_samples * (logits_V / temperature).softmax(-1)
    count_V = torch.bincount(generation.response_BT[:, 0], minlength=VOCABULARY)
    often = expected_V >= 5
    cells = int(often.sum()) + 1  # the rare tokens share a cell
    observed = torch.cat([count_V[often], count_V[~often].sum()[None]])
    wanted = torch.cat([expected_V[often], expected_V[~often].sum()[None]])
    chi_square = float(((observed - wanted) ** 2 / wanted).sum())
    freedom = cells - 1
    assert freedom > 30
    # 5 standard deviations either way: too good a fit is suspect as well
    assert abs(chi_square - freedom) < 5 * (2 * freedom) ** 0.5


def test_group_members_differ_and_are_independent(tokenizer):
    policy = make_policy("qwen2")
    generation = draw(policy, tokenizer, PROMPTS[:1], 2000, max_tokens=2)
    first, second = generation.response_BT[:, 0], generation.response_BT[:, 1]
    with torch.no_grad():
        probability_V = policy.model(torch.tensor(PROMPTS[:1])).logits[0, -1].softmax(-1)
    collision = float((probability_V**2).sum())
    neighbours = float((first[1:] == first[:-1]).float().mean())
    assert abs(neighbours - collision) < 5 * (collision / 2000) ** 0.5
    assert not torch.equal(first, second)


def test_dropout_is_off_while_rolling_out_and_the_mode_comes_back(tokenizer):
    policy = make_policy("gpt2")
    policy.model.transformer.drop.p = 0.5
    expected = tokens(draw(policy, tokenizer, PROMPTS, 2))
    policy.train()
    policy.model.lm_head.eval()
    assert tokens(draw(policy, tokenizer, PROMPTS, 2)) == expected
    assert policy.training and policy.model.transformer.drop.training
    assert not policy.model.lm_head.training, "a part that was in eval mode stays in it"
    policy.model.forward = None  # fails within the rollout
    with pytest.raises((TypeError, ValueError)):
        draw(policy, tokenizer, PROMPTS, 2)
    assert policy.training


def test_gradient_checkpointing_does_not_disturb_the_rollout(tokenizer):
    policy = make_policy("llama")
    expected = tokens(draw(policy, tokenizer, PROMPTS, 2))
    policy.model.gradient_checkpointing_enable({"use_reentrant": False})
    policy.train()
    assert tokens(draw(policy, tokenizer, PROMPTS, 2)) == expected


def test_rollouts_leave_no_gradients(tokenizer):
    generation = draw(make_policy("llama"), tokenizer, PROMPTS, 2)
    assert not generation.logp_BT.requires_grad


def test_max_rows_must_be_positive():
    with pytest.raises(ValueError, match="max_rows: 0"):
        InProcessEngine(0)
