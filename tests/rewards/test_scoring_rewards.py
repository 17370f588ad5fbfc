"""The reward of a reward model, from its exported directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny import save_policy

from r1lit.batches import Problem, Response, Verdict
from r1lit.policy import load_reward_model, load_tokenizer
from r1lit.policy.scalar_head import score_rows
from r1lit.rewards import RewardModel, score
from r1lit.text.scored_text import encode_scored

SETTINGS = {
    "reward_mean": 0.5,
    "reward_std": 2.0,
    "reward_template": "question_answer",
    "reward_score_on": "summary",
}


def save_reward_model(directory: Path, **settings) -> Path:
    """Save a random body with a random head, as ``RewardModule`` exports it."""
    policy = save_policy(directory / "policy", seed=7)
    tokenizer = load_tokenizer(str(policy))
    model = load_reward_model(str(policy), pad_id=tokenizer.pad_token_id)
    torch.manual_seed(2)
    torch.nn.init.normal_(model.model.score.weight)
    for key, value in (SETTINGS | settings).items():
        setattr(model.config, key, value)
    model.save_pretrained(directory / "rm")
    tokenizer.save_pretrained(directory / "rm")
    return directory / "rm"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_reward_model(tmp_path_factory.mktemp("rm")))


def response(text: str, question: str = "Say 7.") -> Response:
    return Response(
        text=text,
        problem=Problem(uid="p", question=question, answer="", source="s"),
        verdict=Verdict(value=0.0, status="unparsed", canonical=None, reason=""),
        num_tokens=1,
        finished=True,
    )


def raw(path: str, question: str, text: str) -> float:
    """The model's number on the text of training, made here by hand."""
    tokenizer = load_tokenizer(path)
    prompt = tokenizer(f"Question: {question}\nAnswer:")["input_ids"]
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    model = load_reward_model(path, pad_id=0).eval()
    return score_rows(model, [[*prompt, *ids, tokenizer.eos_token_id]], 100).item()


def test_it_scores_the_summary_in_the_template_of_training_less_the_mean(path: str):
    found = RewardModel(path)([response("<think> hm </think> It is 7. ")])
    assert found == [pytest.approx(raw(path, "Say 7.", "It is 7.") - 0.5, abs=1e-5)]


def test_it_may_see_the_whole_response(tmp_path: Path):
    path = str(save_reward_model(tmp_path, reward_score_on="response"))
    text = "<think> hm </think> It is 7."
    assert RewardModel(path)([response(text)]) == [
        pytest.approx(raw(path, "Say 7.", text) - 0.5, abs=1e-5)
    ]


def test_a_response_without_a_summary_is_worth_the_floor(path: str):
    responses = [response("<think> on and on"), response(""), response("It is 7.")]
    assert RewardModel(path)(responses)[:2] == [-6.0, -6.0]
    assert RewardModel(path, missing=-1.5)(responses)[:2] == [-1.5, -1.5]
    assert RewardModel(path, think_prefilled=True)([response("cut off")]) == [-6.0]


def test_order_repeats_and_batches_do_not_matter(path: str):
    texts = ["It is 7.", "No.", "It is 7.", "Perhaps it is 8, or 9, or 10.", "No."]
    rows = [response(text, f"Say {n % 2}.") for n, text in enumerate(texts)]
    found = RewardModel(path)(rows)
    one = RewardModel(path, batch_tokens=1)(rows)
    assert found == pytest.approx(one, abs=1e-4)
    assert found[1] != found[4] and len(set(found)) == 4 and found[0] == found[2]
    assert RewardModel(path)(rows[::-1]) == pytest.approx(found[::-1], abs=1e-4)
    assert RewardModel(path)([]) == []


def test_clip_and_weight(path: str):
    rows = [response("It is 7."), response("No."), response("")]
    free = RewardModel(path)(rows)
    clip = min(abs(r) for r in free) / 2
    clipped = RewardModel(path, clip=clip)(rows)
    assert clipped == [pytest.approx(clip if r > 0 else -clip) for r in free]
    by_name, total = score([RewardModel(path, name="helpful", weight=0.5)], rows)
    assert by_name == {"helpful": pytest.approx(free)}
    assert total == pytest.approx([r / 2 for r in free])


def test_weights_loaded_in_an_evaluation_serve_training_too(path: str):
    reward = RewardModel(path)
    rows = [response("It is 7.")]
    with torch.inference_mode():
        first = reward(rows)
    with torch.autocast("cpu", torch.bfloat16):
        reward(rows)
    assert reward(rows) == first


def test_a_prompt_longer_than_the_context_loses_its_beginning(path: str):
    long = " ".join(["7"] * 400)
    (found,) = RewardModel(path)([response("It is 7.", long)])
    tokenizer = load_tokenizer(path)
    row, = encode_scored(tokenizer, [long], ["It is 7."], template="question_answer",
                         max_tokens=256)  # fmt: skip
    assert row.num_cut > 0
    model = load_reward_model(path, pad_id=0).eval()
    assert found == pytest.approx(score_rows(model, [row.tokens], 500).item() - 0.5, abs=1e-5)


def test_what_is_not_as_in_training_is_an_error(path: str, tmp_path: Path):
    with pytest.raises(
        ValueError, match=r"score_on: 'response', but .* was trained with 'summary'"
    ):
        RewardModel(path, score_on="response")
    with pytest.raises(ValueError, match="template: 'plain', but"):
        RewardModel(path, template="plain")
    RewardModel(path, score_on="summary", template="question_answer")
    with pytest.raises(ValueError, match="holds a language model, not a reward model"):
        RewardModel(str(save_policy(tmp_path / "policy")))
    with pytest.raises(ValueError, match="does not exist"):
        RewardModel(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="clip: 0"):
        RewardModel(path, clip=0.0)
    with pytest.raises(ValueError, match="batch_tokens: 0"):
        RewardModel(path, batch_tokens=0)


def test_another_ones_model_needs_to_be_told(path: str, tmp_path: Path):
    rm = save_reward_model(tmp_path)
    config = json.loads((rm / "config.json").read_text())
    for key in SETTINGS:
        del config[key]
    (rm / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"score_on: the config.json .* does not say"):
        RewardModel(str(rm))
    with pytest.raises(ValueError, match="has no reward_mean"):
        RewardModel(str(rm), score_on="summary", template="plain")
    (rm / "config.json").write_text(json.dumps(config | {"reward_mean": 0.0}))
    rewards = RewardModel(str(rm), score_on="summary", template="plain", missing=-1.0)
    assert len(rewards([response("It is 7.")])) == 1
