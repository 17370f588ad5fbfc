"""Reward models of a policy's body: weights, head, padding, normalisation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny import save_policy
from tiny_models import SOFTMAX_ATTENTION, make_policy, make_tokenizer
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, BertConfig

from r1lit.policy import ModelSource, load_reward_config, load_reward_model
from r1lit.policy.scalar_head import normalised, score_rows, split_by_length

ROWS = [[1, 20, 21, 22, 2], [1, 30, 2], [1, 40, 41, 42, 43, 44, 45, 2], [1, 50, 51, 2]]


def random_head(model: torch.nn.Module) -> None:
    torch.manual_seed(1)
    torch.nn.init.normal_(model.model.score.weight)


def test_the_body_is_the_policys_and_the_head_starts_at_zero(tmp_path: Path):
    save_policy(tmp_path / "policy", seed=5)
    policy = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    model = load_reward_model(str(tmp_path / "policy"), pad_id=0)
    assert model.training
    for name, weight in policy.model.state_dict().items():
        assert torch.equal(weight, model.model.model.state_dict()[name]), name
    assert model.model.score.weight.shape == (1, 32) and not model.model.score.weight.any()
    assert score_rows(model, ROWS, 64).tolist() == [0.0] * 4


def test_from_scratch_reads_no_weights(tmp_path: Path):
    save_policy(tmp_path / "policy", seed=5)
    policy = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    model = load_reward_model(ModelSource(str(tmp_path / "policy"), from_scratch=True), pad_id=0)
    fresh = model.model.model.embed_tokens.weight
    assert not torch.equal(fresh, policy.model.embed_tokens.weight)
    assert not model.model.score.weight.any()


@pytest.mark.parametrize("name", SOFTMAX_ATTENTION)
def test_a_row_is_read_at_its_last_token_whatever_stands_beside_it(name: str, tmp_path: Path):
    make_policy(name).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    attention = "eager" if name == "gemma2" else "sdpa"
    model = load_reward_model(ModelSource(str(tmp_path), attention=attention), pad_id=0).eval()
    random_head(model)
    with torch.no_grad():
        alone = torch.cat([model([row]) for row in ROWS])
        together = model(ROWS)
        # Hugging Face's own forward reads the last token that is not padding
        width = max(map(len, ROWS))
        ids = torch.tensor([row + [0] * (width - len(row)) for row in ROWS])
        theirs = model.model(input_ids=ids, attention_mask=(ids != 0).long()).logits[:, 0]
    assert alone.std() > 0.1
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(theirs.float(), alone, rtol=1e-4, atol=1e-4)


def test_scores_do_not_depend_on_the_batch(tmp_path: Path):
    model = load_reward_model(str(save_policy(tmp_path / "p")), pad_id=0).eval()
    random_head(model)
    a, b = score_rows(model, ROWS, 1), score_rows(model, ROWS, 1000)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert not a.requires_grad and len(set(a.tolist())) == 4


def test_rows_are_split_by_length():
    lengths = [7, 3, 9, 1, 20, 3]
    parts = list(split_by_length(lengths, 12))
    assert parts == [[4], [2], [0], [1, 5, 3]]
    assert list(split_by_length([], 12)) == []


def test_an_exported_model_is_loaded_as_it_was_and_normalised(tmp_path: Path):
    model = load_reward_model(str(save_policy(tmp_path / "p")), pad_id=0).eval()
    random_head(model)
    model.config.reward_mean, model.config.reward_std = 0.25, 2.0
    model.save_pretrained(tmp_path / "rm")
    again = load_reward_model(str(tmp_path / "rm"), pad_id=0).eval()
    assert torch.equal(score_rows(again, ROWS, 64), score_rows(model, ROWS, 64))
    config = load_reward_config(str(tmp_path / "rm"))
    assert normalised(config, torch.tensor([1.0, 0.0])).tolist() == [0.75, -0.25]
    other = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm")
    assert other.config.reward_mean == 0.25


def test_errors_say_what_would_be_right(tmp_path: Path):
    path = str(save_policy(tmp_path / "p"))
    model = load_reward_model(path, pad_id=0)
    model.save_pretrained(tmp_path / "rm")
    config = load_reward_config(str(tmp_path / "rm"))
    with pytest.raises(ValueError, match="has no reward_mean"):
        normalised(config, torch.zeros(2))
    with pytest.raises(ValueError, match="dtype: 'flaot32' is not a torch dtype"):
        load_reward_model(ModelSource(path, dtype="flaot32"), pad_id=0)
    with pytest.raises(ValueError, match="does not exist"):
        load_reward_config(str(tmp_path / "nowhere"))
    config.num_labels = 3
    config.save_pretrained(tmp_path / "three")
    with pytest.raises(ValueError, match="gives 3 numbers"):
        load_reward_config(str(tmp_path / "three"))
    BertConfig().save_pretrained(tmp_path / "bert")
    with pytest.raises(ValueError, match="is_decoder is false"):
        load_reward_config(str(tmp_path / "bert"))
