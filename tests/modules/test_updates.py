"""Micro-batches, the values of tokens, and the metrics of an update."""

from __future__ import annotations

import random
from itertools import chain, pairwise

import pytest
import tiny
import torch
from metrics_page import MEASURED
from transformers import AutoTokenizer, LlamaForCausalLM

from r1lit import cli
from r1lit.batches import Problem, Response, Rollout, Verdict
from r1lit.files import read_records
from r1lit.modules.token_values import token_values
from r1lit.modules.updates import split_rows
from r1lit.policy import Policy
from r1lit.text.scored_text import pieces


def draw(seed: int) -> tuple[list[int], list[int], list[int], int]:
    """Rows of shuffled groups of unequal size, as a minibatch has them; a prompt a group."""
    rng = random.Random(seed)
    num_groups, num_rows = rng.randint(1, 6), rng.randint(1, 30)
    prompt = [rng.randint(1, 12) for _ in range(num_groups)]
    groups = [rng.randrange(num_groups) for _ in range(num_rows)]
    responses = [rng.choice([1, 2, 7, rng.randint(1, 40)]) for _ in range(num_rows)]
    return groups, [prompt[g] for g in groups], responses, rng.choice([1, 20, 50, 100, 10_000])


def tokens(part: list[int], groups, prompts, responses, *, packed: bool) -> int:
    """How many tokens are computed for a micro-batch."""
    if packed:
        first = {groups[row]: row for row in reversed(part)}
        laid = sum(prompts[row] for row in first.values())
        copies = sum(prompts[row] // 8 for row in part if first[groups[row]] != row)
        return laid + copies + sum(responses[row] - 1 for row in part)
    return len(part) * max(prompts[row] + responses[row] for row in part)


@pytest.mark.parametrize("packed", [True, False])
def test_every_row_once_within_the_budget_and_no_more_parts_than_need_be(packed):
    kinds = set()
    for seed in range(300):
        *rows, max_tokens = draw(seed)
        parts = split_rows(*rows, max_tokens, packed=packed)
        assert sorted(chain(*parts)) == list(range(len(rows[0])))
        assert all(parts)
        for part in parts:
            fits = tokens(part, *rows, packed=packed) <= max_tokens
            assert fits or len(part) == 1, (seed, part)
            kinds.add((fits, len(part) == 1))
        for part, following in pairwise(parts):
            assert tokens([*part, following[0]], *rows, packed=packed) > max_tokens, seed
    assert kinds == {(True, True), (True, False), (False, True)}


def test_packed_rows_stay_by_their_group_in_order():
    for seed in range(100):
        groups, prompts, responses, max_tokens = draw(seed)
        order = list(chain(*split_rows(groups, prompts, responses, max_tokens, packed=True)))
        assert order == sorted(range(len(groups)), key=lambda row: (groups[row], row))


def test_padded_rows_go_longest_first():
    for seed in range(100):
        groups, prompts, responses, max_tokens = draw(seed)
        order = list(chain(*split_rows(groups, prompts, responses, max_tokens, packed=False)))
        lengths = [prompts[row] + responses[row] for row in order]
        assert lengths == sorted(lengths, reverse=True)


def test_a_prompt_counts_once_a_micro_batch():
    rows = ([0] * 4, [10] * 4, [6] * 4)
    # 10 + 4 x 5, and 10 // 8 for each further row
    assert split_rows(*rows, max_tokens=33, packed=True) == [[0, 1, 2, 3]]
    assert split_rows(*rows, max_tokens=32, packed=True) == [[0, 1, 2], [3]]
    assert split_rows(*rows, max_tokens=30, packed=False) == [[0], [1], [2], [3]]  # 16 each
    assert split_rows(*rows, max_tokens=32, packed=False) == [[0, 1], [2, 3]]


def test_no_rows():
    assert split_rows([], [], [], 10, packed=True) == []
    assert split_rows([], [], [], 10, packed=False) == []


# What is written of tokens is what the policy says of them, and costs a run no number


FIELDS = {
    "iteration", "split", "uid", "sample", "source", "question", "answer", "response", "value",
    "status", "reason", "canonical", "num_tokens", "finished", "rewards",
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same run without and with tokens; top_p and a temperature, so that they tell."""
    folder = tmp_path_factory.mktemp("runs")
    policy = tiny.save_policy(folder / "policy")
    for name in ("plain", "tokens"):
        callbacks = tiny.callbacks(folder / name)
        [table] = [c for c in callbacks if c["class_path"].endswith("ResponseTable")]
        table["init_args"]["tokens"] = name == "tokens"
        table["init_args"]["num_responses"] = 6
        change = {
            **tiny.model(sampling={"max_tokens": 8, "temperature": 0.7}),
            "trainer": {"callbacks": callbacks},
        }
        change = tiny.merge(change, tiny.data(num_iterations=2))
        cli.main(["fit", "-c", str(tiny.grpo_config(folder / name, policy, change))])
    return folder


def test_the_switch_adds_fields_and_changes_no_number(runs):
    plain, tokens = (read_records(runs / name / "responses.jsonl") for name in ("plain", "tokens"))
    assert plain and all(set(line) - {"prompt"} == FIELDS for line in plain)
    added = {"train": {"reward", "advantage", "tokens"}, "val": {"reward", "tokens"}}
    for before, after in zip(plain, tokens, strict=True):
        assert set(after) - set(before) == added[after["split"]]
        assert {key: after[key] for key in before} == before
    for before, after in zip(
        *(read_records(runs / name / "metrics.jsonl") for name in ("plain", "tokens")), strict=True
    ):
        before, after = (
            {k: v for k, v in line.items() if not k.startswith(("seconds", *MEASURED))}
            for line in (before, after)
        )
        assert before == after


def test_what_was_sampled_and_what_training_computes_are_one_number(runs):
    lines = read_records(runs / "tokens/responses.jsonl")
    assert {(line["split"], line["iteration"]) for line in lines} >= {("train", 1), ("val", 2)}
    special = AutoTokenizer.from_pretrained(runs / "policy").all_special_tokens
    for line in lines:
        tokens = line["tokens"]
        assert {len(values) for values in tokens.values()} == {line["num_tokens"]}
        kept = "".join(text for text in tokens["text"] if text not in special)
        assert kept == line["response"]  # a response is without special tokens
        assert tokens["logp"] == pytest.approx(tokens["logp_trainer"], abs=1e-3)
    train = [line for line in lines if line["split"] == "train"]
    assert len({line["advantage"] for line in train}) > 1


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_token_values_by_hand(runs, temperature):
    """The log-softmax of transformers' own logits, prompt by prompt."""
    model = LlamaForCausalLM.from_pretrained(runs / "policy")
    policy = Policy(model)
    policy.model.train()  # as in training; dropout is off for the while
    lengths, prompts = (5, 3, 1, 4), ((7, 8, 9), (11, 12))
    random = torch.Generator().manual_seed(0)
    response_BT = torch.randint(0, model.config.vocab_size, (4, 5), generator=random)
    zero_BT, zero_PG = torch.zeros(4, 5), torch.zeros(2, 2)
    problem = Problem(uid="p", question="?", answer="1", source="s")
    verdict = Verdict(value=0.0, status="wrong", canonical=None, reason="")
    rollout = Rollout(
        iteration=0,
        group_size=2,
        prompts=prompts,
        responses=tuple(
            Response(text="", problem=problem, verdict=verdict, num_tokens=length, finished=True)
            for length in lengths
        ),
        response_BT=response_BT,
        length_B=torch.tensor(lengths),
        loss_mask_BT=torch.ones(4, 5, dtype=torch.bool),
        logp_sampler_BT=zero_BT,
        logp_old_BT=zero_BT,
        rewards={},
        reward_PG=zero_PG,
        advantage_BT=zero_BT,
    )
    values = token_values(policy, rollout, 3, temperature, 4096)
    assert policy.model.training
    for row in range(3):
        prompt, length = prompts[row // 2], lengths[row]
        ids = torch.tensor([[*prompt, *response_BT[row, :length].tolist()]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(prompt) - 1 : -1] / temperature
        logp = logits.log_softmax(-1)
        drawn = logp.gather(-1, response_BT[row, :length, None])[:, 0]
        entropy = -(logp.exp() * logp).sum(-1)
        torch.testing.assert_close(values.logp_BT[row, :length], drawn, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(values.entropy_BT[row, :length], entropy, atol=1e-4, rtol=1e-4)
        assert not values.logp_BT[row, length:].any()
    assert values.logp_BT.shape == values.entropy_BT.shape == (3, 5)


@pytest.mark.parametrize("text", ["make 24: 6 * 4", "数学 und Mathé 🙂🙃", " a  b\n\n\tc ", ""])
def test_pieces_of_a_real_tokenizer_are_the_whole_text(text):
    tokenizer = AutoTokenizer.from_pretrained(tiny.ROOT / "models/mini")
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    found = pieces(tokenizer.decode, ids)
    assert len(found) == len(ids) and "".join(found) == tokenizer.decode(ids)
    # a text cut within a character ends as the decoder has it
    for end in range(len(ids)):
        assert "".join(pieces(tokenizer.decode, ids[:end])) == tokenizer.decode(ids[:end])
