"""Orders of steps: each runs as it stands, or is refused by one line that says what to change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from tiny import ROOT, DigitShare

from r1lit.batches import Rollout
from r1lit.modules import GRPOModule
from r1lit.objectives import (
    GAE,
    GRPO,
    PPO,
    GroupNormalized,
    ImplicitProcess,
    NormalizedPerReward,
    OnlyKept,
    TruncatedImportanceSampling,
    Whitened,
)
from r1lit.rollout import Sampling
from r1lit.steps import (
    Correction,
    Critic,
    KLInReward,
    MaskTruncated,
    ProcessModel,
    Run,
    Step,
    TopEntropy,
)
from r1lit.steps.base import check_order

STEPS: dict[str, Step] = {
    "M": MaskTruncated(),
    "K": KLInReward(0.1),
    "C": Correction(TruncatedImportanceSampling()),
    "T": TopEntropy(0.2),
}
REWARDS = GroupNormalized.reads

MASK_LATE = "{} writes loss_mask_BT, which {} reads before it; put it first"
OLD_LATE = "Correction writes logp_old_BT, which KLInReward reads before it; put it first"
WEIGHT_TWICE = (
    "Correction overwrites weight_BT of TopEntropy; put it first, or leave one of them out"
)
K_FIRST = MASK_LATE.format("MaskTruncated", "KLInReward")
C_FIRST = MASK_LATE.format("MaskTruncated", "Correction")
T_FIRST = MASK_LATE.format("MaskTruncated", "TopEntropy")

# A mask comes before all that read it, the old log-probs before the KL that reads them, and the
# weights of tokens before TopEntropy, which keeps them and leaves tokens out. Named is the nearest
# of several readers.
ORDERS: dict[str, str | None] = {
    "MCKT": None,
    "MCTK": None,
    "MKCT": OLD_LATE,
    "MKTC": OLD_LATE,
    "MTCK": WEIGHT_TWICE,
    "MTKC": OLD_LATE,
    "KMCT": K_FIRST,
    "KMTC": K_FIRST,
    "KCMT": OLD_LATE,
    "KCTM": OLD_LATE,
    "KTMC": T_FIRST,
    "KTCM": OLD_LATE,
    "CMKT": C_FIRST,
    "CMTK": C_FIRST,
    "CKMT": K_FIRST,
    "CKTM": T_FIRST,
    "CTMK": T_FIRST,
    "CTKM": K_FIRST,
    "TMCK": T_FIRST,
    "TMKC": T_FIRST,
    "TCMK": WEIGHT_TWICE,
    "TCKM": WEIGHT_TWICE,
    "TKMC": K_FIRST,
    "TKCM": OLD_LATE,
}


def refusal(steps: Sequence[Step], read_after: Sequence[str] = REWARDS) -> str | None:
    """The line that refuses an order; None if it may run."""
    try:
        check_order(steps, read_after)
    except ValueError as error:
        line = str(error)
        assert "\n" not in line and line.startswith("model.steps: ")
        return line.removeprefix("model.steps: ")
    return None


def module(steps: list[Step], objective: Any) -> GRPOModule:
    return GRPOModule(
        str(ROOT / "models/mini"),
        objective=objective,
        rewards=[DigitShare()],
        sampling=Sampling(max_tokens=8),
        steps=steps,
    )


def test_the_table_has_every_order() -> None:
    assert ORDERS.keys() == {"".join(order) for order in permutations(STEPS)}


@pytest.mark.parametrize("order", ORDERS)
def test_each_order_of_the_four_runs_or_is_refused_in_one_line(order: str) -> None:
    assert refusal([STEPS[letter] for letter in order]) == ORDERS[order]


class Takes(Critic):
    """A critic under the name of the policy."""

    def models(self, run: Run) -> dict[str, Any]:
        """Return it."""
        return {"policy": super().models(run)["critic"]}


def test_a_model_of_a_name_that_is_taken_is_refused(fit) -> None:
    taken = {"class_path": "test_order.Takes"}
    change = {"objective": {"class_path": "r1lit.objectives.PPO"}, "steps": [taken]}
    with pytest.raises(ValueError, match="Takes names a model 'policy', which the module has"):
        fit("run", {"model": {"init_args": change}})


def test_a_misspelt_field_is_named() -> None:
    class Misspells(MaskTruncated):
        reads = ("rewards_PG",)

    with pytest.raises(ValueError, match=r"names rewards_PG, .*did you mean reward_PG\?$"):
        check_order([Misspells()], ())


@pytest.mark.parametrize(("one", "other"), permutations(STEPS, 2))
def test_two_of_them_may_run_one_way_at_least(one: str, other: str) -> None:
    pair = [STEPS[one], STEPS[other]]
    assert refusal(pair) is None or refusal(pair[::-1]) is None


def test_values_are_of_the_rewards_with_the_penalty() -> None:
    late = "KLInReward writes reward_BT, which Critic reads before it; put it first"
    assert refusal([Critic(), KLInReward(0.1)], GAE.reads) == late
    assert refusal([KLInReward(0.1), Critic()], GAE.reads) is None


@pytest.mark.parametrize(
    ("steps", "objective", "line"),
    [
        ([], PPO(), "no step writes value_BT, which the advantages or the loss read;"
                    " r1lit.steps.Critic does"),
        ([], PPO(advantage=Whitened(GAE())), "no step writes value_BT, .* r1lit.steps.Critic does"),
        ([Critic()], GRPO(advantage=ImplicitProcess()),
         "Critic writes value_BT, which neither the advantages nor the loss read; leave it out"),
        ([], GRPO(advantage=ImplicitProcess()),
         "no step writes process_reward_BT, .* r1lit.steps.ProcessModel does"),
        ([ProcessModel()], GRPO(), "ProcessModel writes process_reward_BT, which neither"),
        ([KLInReward(0.1)], GRPO(advantage=NormalizedPerReward()),
         "KLInReward writes reward_BT, which neither the advantages nor the loss read"),
        ([KLInReward(0.1)], GRPO(advantage=Whitened(OnlyKept())),
         "KLInReward writes reward_BT, which neither the advantages nor the loss read"),
    ],
)  # fmt: skip
def test_a_module_refuses_what_nobody_reads_or_writes(steps, objective, line) -> None:
    with pytest.raises(ValueError, match=rf"^model\.steps: {line}"):
        module(steps, objective)


def test_a_critic_and_a_process_model_stand_beside_one_another() -> None:
    both = (*GAE.reads, *ImplicitProcess.reads)
    assert refusal([ProcessModel(), Critic()], both) is None
    assert refusal([Critic(), ProcessModel()], both) is None


class Writes(Step):
    """Writes a number of each token under a name."""

    writes = ("novelty_BT",)

    def __call__(self, rollout: Rollout, run: Run) -> tuple[Rollout, dict[str, float]]:
        return rollout, {}


class Reads(Writes):
    """Reads it, and pays for it."""

    reads = ("novelty_BT", "reward_BT")
    writes = ("reward_BT",)


def test_an_extra_of_one_s_own_is_written_before_it_is_read() -> None:
    assert refusal([Writes(), Reads()]) is None
    assert refusal([Reads(), Writes()]) == "Reads reads novelty_BT, which no step before it writes"
    nobody = refusal([Writes()])
    assert nobody is not None and nobody.startswith("Writes writes novelty_BT, which neither")
    twice = refusal([Writes(), Writes(), Reads()])
    assert twice is not None and twice.startswith("Writes overwrites novelty_BT of Writes")


def test_a_field_that_every_rollout_has_needs_no_writer() -> None:
    assert refusal([MaskTruncated()]) is None
    assert refusal([KLInReward(0.1)]) is None
