"""The study of tools: what its page measures, and what its control without a mask learns."""

from __future__ import annotations

import torch

from experiments.tools.no_mask import UnmaskedGRPO
from experiments.tools.report import measured
from r1lit.batches import Rollout
from r1lit.modules import GRPOModule


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
