"""How responses end: EOS, stop strings, the token limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from drawing import Drawn, draw
from tiny import data, model
from tiny_models import EOS, PAD, VOCABULARY, Markov, make_policy, make_tokenizer, says

from r1lit.policy import load_policy, load_tokenizer
from r1lit.policy.support import enable_packed
from r1lit.rollout import Completion, ModelSpec, in_process
from r1lit.rollout.decoding_method import find_decoding_method
from r1lit.rollout.worker import pad


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


def said(tokenizer, generation: Drawn, row: int = 0) -> str:
    return tokenizer.decode(generation.response_BT[row][generation.mask_BT[row]])


def spell(tokenizer, text: str) -> list[int]:
    return tokenizer(text)["input_ids"]


def test_eos_on_the_first_token(tokenizer):
    generation = draw(says([10, EOS]), tokenizer, [[10]], max_tokens=5)
    assert generation.response_BT.tolist() == [[EOS]]
    assert generation.mask_BT.tolist() == [[True]]
    assert generation.finished_B.tolist() == [True]


def test_one_token_at_most(tokenizer):
    generation = draw(says([10, 11, 12], [20, EOS]), tokenizer, [[10], [20]], max_tokens=1)
    assert generation.response_BT.tolist() == [[11], [EOS]]
    assert generation.mask_BT.all()
    assert generation.finished_B.tolist() == [False, True]


def test_the_limit_cuts_and_eos_at_the_limit_finishes(tokenizer):
    policy = says([10, 11, 12, 13, EOS], [20, 21, 22, EOS], [30, EOS])
    generation = draw(policy, tokenizer, [[10], [20], [30]], max_tokens=3)
    assert generation.response_BT.tolist() == [[11, 12, 13], [21, 22, EOS], [EOS, PAD, PAD]]
    assert generation.mask_BT.sum(-1).tolist() == [3, 3, 1]
    assert generation.finished_B.tolist() == [False, True, True]
    assert (generation.logp_BT[2, 1:] == 0).all()


def test_a_batch_is_as_wide_as_its_longest_response(tokenizer):
    generation = draw(says([10, 11, EOS], [20, EOS]), tokenizer, [[10], [20]], max_tokens=50)
    assert generation.response_BT.shape == (2, 2)


def test_a_padding_token_that_is_eos_is_told_from_padding(tokenizer):
    tokenizer = make_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    generation = draw(says([10, 11, EOS], [20, EOS]), tokenizer, [[10], [20]], max_tokens=9)
    assert generation.response_BT.tolist() == [[11, EOS], [EOS, EOS]]
    assert generation.mask_BT.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("stop", ["</a>", "né", "日é", "🙂", "b"])
def test_stop_strings_of_several_tokens_end_a_response_and_stay_in_it(tokenizer, stop):
    # one token a byte: each of these strings takes several, and several bytes make one letter
    text = "xyz" + stop
    word = spell(tokenizer, text + "qw")
    assert len(set(word)) == len(word)
    generation = draw(says([5, *word]), tokenizer, [[5]], max_tokens=len(word), stop=["##", stop])
    assert said(tokenizer, generation) == text
    assert generation.finished_B.tolist() == [True]
    assert int(generation.mask_BT.sum()) == len(spell(tokenizer, text))


def test_a_stop_string_in_the_prompt_or_astride_it_does_not_count(tokenizer):
    first, second = spell(tokenizer, "a")[0], spell(tokenizer, "b")[0]
    third = spell(tokenizer, "c")[0]
    policy = says([first, second, third, first])  # a b c a b c ...
    generation = draw(policy, tokenizer, [[second, third, first]], max_tokens=9, stop=["ca", "ab"])
    assert said(tokenizer, generation) == "bca"


def test_stop_strings_end_each_row_by_itself(tokenizer):
    one, two = spell(tokenizer, "ab;cd"), spell(tokenizer, "wxyz!")
    policy = says([5, *one, 6], [7, *two, 8])
    generation = draw(policy, tokenizer, [[5], [7]], max_tokens=5, stop=[";"])
    assert [said(tokenizer, generation, row) for row in range(2)] == ["ab;", "wxyz!"]
    assert generation.finished_B.tolist() == [True, False]


def test_padding_goes_to_the_longest():
    def completion(length: int, logps: bool = True) -> Completion:
        return Completion(
            token_ids=torch.full((length,), 7),
            logps=torch.full((length,), -1.0) if logps else None,
            finish_reason="stop",
        )

    rows = [completion(1), completion(3), completion(2, logps=False)]
    response_BT, mask_BT, logp_BT = pad(rows, make_tokenizer(), torch.device("cpu"))
    assert response_BT.tolist() == [[7, PAD, PAD], [7, 7, 7], [7, 7, PAD]]
    assert mask_BT.tolist() == [[True, False, False], [True] * 3, [True, True, False]]
    assert logp_BT.tolist() == [[-1, 0, 0], [-1, -1, -1], [0, 0, 0]]
    assert response_BT.dtype == torch.long and mask_BT.dtype == torch.bool


def test_finished_rows_leave_the_batch(tokenizer):
    logits_VV = torch.zeros(VOCABULARY, VOCABULARY)
    logits_VV[:, EOS] = 5.0  # about 1 in 3 ends at each token
    policy = Markov(logits_VV)
    find_decoding_method(policy)
    first = 2 * len(policy.rows)  # the same trial comes before the rollout
    generation = draw(policy, tokenizer, [[10 + p] for p in range(40)], max_tokens=60)
    decoded, alive = sum(policy.rows[first + 1 :]), int(generation.mask_BT.sum()) - 40
    assert generation.finished_B.all()
    assert decoded <= alive / 0.8 + 1, "at most a fifth of what is decoded is thrown away"


@pytest.mark.parametrize("every", [2, 7, 100])
def test_looking_less_often_at_which_rows_ended_changes_no_completion(
    tokenizer, monkeypatch, every
):
    """As on CUDA, where looking makes the host wait for the device."""
    policy, prompts = make_policy("qwen3"), [[1, 50, 60, 70], [1, 51], [1, 9, 8, 7, 66]]
    assert enable_packed(policy) is None
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[EOS] += 0.6
    options = {"group_size": 4, "max_tokens": 60, "compile": False}
    often = draw(policy, tokenizer, prompts, **options)
    monkeypatch.setattr(in_process, "check_every", lambda device: every)
    seldom = draw(policy, tokenizer, prompts, **options)
    assert often.finished_B.any() and len({len(row) for row in often.tokens()}) > 4
    assert often.tokens() == seldom.tokens()
    assert torch.equal(often.finished_B, seldom.finished_B)
    assert torch.allclose(often.logp_BT, seldom.logp_BT, atol=1e-5)  # other neighbours round


ENDS = (EOS, 40, 41)


@pytest.fixture(scope="module")
def three_ends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved policy whose generation config lists three ends, as Phi-3's does."""
    directory = tmp_path_factory.mktemp("ends")
    policy = make_policy("qwen3")
    with torch.no_grad():
        policy.model.get_output_embeddings().weight[list(ENDS)] += 0.4
    policy.model.generation_config.eos_token_id = list(ENDS)
    policy.save_pretrained(directory)
    make_tokenizer().save_pretrained(directory)
    return directory


@pytest.mark.long
@pytest.mark.parametrize("packed", [True, False])
def test_every_end_of_the_generation_config_ends_a_response(three_ends: Path, packed: bool):
    policy, tokenizer = load_policy(str(three_ends)), load_tokenizer(str(three_ends))
    assert tokenizer.eos_token_id == EOS, "the tokenizer knows one"
    if not packed:
        policy = make_policy("qwen3")
        policy.load_state_dict(load_policy(str(three_ends)).state_dict())
        policy.model.generation_config.eos_token_id = list(ENDS)
    drawn = draw(policy, tokenizer, [[1, 50, 60], [1, 51]], 32, max_tokens=50, compile=False)
    last = {completion.token_ids[-1].item() for completion in drawn.completions}
    assert set(ENDS) <= last, "each of them ends some response"
    for completion in drawn.completions:
        *before, end = completion.token_ids.tolist()
        assert not set(before) & set(ENDS), "and nothing goes on behind one"
        assert (completion.finish_reason == "stop") == (end in ENDS)
        assert completion.finished or completion.num_tokens == 50
    policy.model.generation_config.eos_token_id = EOS
    longer = draw(policy, tokenizer, [[1, 50, 60], [1, 51]], 32, max_tokens=50, compile=False)
    assert sum(map(len, longer.tokens())) > sum(map(len, drawn.tokens()))


@pytest.mark.parametrize(
    ("listed", "ends"), [(None, (EOS,)), (EOS, (EOS,)), (40, (EOS, 40)), ([41, 40], (EOS, 40, 41))]
)
def test_ends_are_the_tokenizers_and_the_generation_configs(tokenizer, listed, ends):
    policy = make_policy("llama")
    policy.model.generation_config.eos_token_id = listed
    assert ModelSpec(name="", tokenizer=tokenizer, policy=policy).end_ids() == ends
    assert ModelSpec(name="", tokenizer=tokenizer).end_ids() == (EOS,)
    assert ModelSpec(name="", tokenizer=tokenizer, turn_end=39).end_ids() == (EOS, 39)


@pytest.mark.long
def test_another_end_finishes_the_responses_of_a_run(three_ends: Path, fit, tmp_path: Path):
    fit(
        "run",
        model(policy=str(three_ends), sampling={"max_tokens": 20}),
        data(num_iterations=2),
    )
    path = tmp_path / "run" / "responses.jsonl"
    found = [json.loads(line) for line in path.read_text().splitlines()]
    short = [line["num_tokens"] < 20 for line in found]
    assert any(short) and all(line["finished"] for line, s in zip(found, short, strict=True) if s)
