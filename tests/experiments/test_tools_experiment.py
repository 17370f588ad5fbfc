"""The study of tools: what its page measures, and what its control without a mask learns."""

from __future__ import annotations

from pathlib import Path

import torch

from experiments.tools import figures
from experiments.tools.no_mask import UnmaskedGRPO
from experiments.tools.report import form_numbers, measured
from r1lit.batches import Rollout
from r1lit.files import read_records
from r1lit.modules import GRPOModule

RESULTS = Path(figures.__file__).with_name("results.jsonl")


def response(source: str, *turns: str, status: str = "right", invalid: int = 0) -> dict:
    messages = [{"role": "assistant", "content": text} for text in turns]
    return {
        "source": source,
        "status": status,
        "num_tokens": 10 * len(turns),
        "turns": messages,
        "num_calls": len(turns) - 1,
        "num_invalid": invalid,
        "ended": "answered",
    }


def test_numbers_are_means_over_the_responses_of_a_source():
    found = measured(
        [
            response("look-up known", "Rome"),
            response("look-up known", "<call> x</call>", "?", status="wrong", invalid=1),
            response("guess", "<call> 12</call>", "<call> 16</call>", "<call> 1</call>"),
        ]
    )
    known = found["look-up known"]
    assert (known["right"], known["calls"], known["invalid"], known["turns"]) == (
        0.5,
        0.5,
        0.5,
        1.5,
    )
    assert known["ended"] == {"answered": 1.0}
    assert found["guess"]["first"] == 4


def test_an_object_may_be_valid_without_keys_and_complete_without_being_right():
    asked = {
        "question": "Mei is 42, lives in Lima, likes red and has 3 pets. JSON with age, city?",
        "answer": '{"age": 42, "city": "Lima"}',
    }
    found = {
        text: form_numbers({**asked, "response": f" <answer> {text}</answer>"})
        for text in ('{"age": 42, "city": "Rome"}', "{}", '{"age": "42"}', '{"pets": 3}', "{")
    }
    assert found['{"age": 42, "city": "Rome"}'] == {
        "valid": 1.0, "complete": 1.0, "empty": 0.0, "values": 0.5,
    }  # fmt: skip
    assert [one["valid"] for one in found.values()] == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert [one["empty"] for one in found.values()] == [0.0, 1.0, 0.0, 0.0, 0.0]


def test_turns_in_role_are_counted_by_turn_and_a_conversation_that_was_cut_has_none():
    said = ("Who are you?", "You are Kofi from Oslo and like red. Who are you?")
    turns = [{"role": "assistant", "content": "?"}] + [
        {"role": role, "content": text} for text in said for role in ("user", "assistant")
    ]
    kept = {"kept": [1.0, 1.0, 0.0], "named": [1.0, 1.0, 0.0], "claimed": [0.0, 0.0, 1.0]}
    whole = response("role") | {"turns": turns, "details": kept}
    cut = response("role") | {"turns": turns[:1], "ended": "length"}
    found = measured([whole, cut])["role"]
    assert found["by_turn"] == [0.5, 0.5, 0.0] and found["kept"] == 1 / 3
    assert (found["last"], found["against"], found["claimed"]) == (0.0, 0.0, 1 / 6)


def test_parts_that_are_not_made_yet_have_no_figure():
    rows = [row for row in read_records(RESULTS) if row["part"] == "look-up"]
    few = [row for row in rows if row["variant"] in ("true", "empty")]
    drawn = figures.draw({"look-up": few})
    assert list(drawn) == ["unknown_people.png", "known_people.png", "tool_off.png"]


def test_without_the_mask_the_tools_words_count_with_the_policys_log_probs(monkeypatch):
    written_BT = torch.tensor([[False, True, True, False], [False, True, False, False]])
    logp_BT = torch.full((2, 4), -1.0).masked_fill(written_BT, 0.0)
    exists_BT = torch.tensor([[True] * 4, [True, True, True, False]])
    rollout = Rollout(
        iteration=0,
        group_size=2,
        prompts=((1,),),
        responses=(None, None),
        response_BT=torch.zeros(2, 4, dtype=torch.long),
        length_B=torch.tensor([4, 3]),
        loss_mask_BT=exists_BT & ~written_BT,
        logp_sampler_BT=logp_BT,
        logp_old_BT=logp_BT,
        rewards={},
        reward_PG=torch.zeros(1, 2),
        advantage_BT=torch.zeros(2, 4),
        environment_BT=written_BT,
    )
    monkeypatch.setattr(GRPOModule, "collect", lambda self, batch: (rollout, {"a": 1.0}))
    monkeypatch.setattr(GRPOModule, "log_probs", lambda self, r, model: torch.full((2, 4), -2.0))
    module = UnmaskedGRPO.__new__(UnmaskedGRPO)
    torch.nn.Module.__init__(module)
    module.policy = torch.nn.Identity()
    unmasked, metrics = module.collect(None)
    assert torch.equal(unmasked.loss_mask_BT, exists_BT) and metrics == {"a": 1.0}
    assert unmasked.logp_old_BT.tolist() == [[-1, -2, -2, -1], [-1, -2, -1, -1]]
    assert unmasked.environment_BT is None
