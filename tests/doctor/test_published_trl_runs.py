"""``r1lit doctor`` on logs of TRL that others have published: what it says today."""

from __future__ import annotations

import pytest

from r1lit.doctor.rules import findings
from r1lit.doctor.trl import TRLRun
from tests.doctor.published_trl_runs import published, written

SAID = {
    "UnslothGRPO": ["never_earned"],
    "Gemma-3-RL-Finetuning": ["never_earned"],
    "text2sql-grpo": ["truncated", "flat"],
    "grpo-verified-reasoner": ["apart_at_once", "padded", "flat"],
    "IITD_Feb26_AAIPL": ["truncated", "flat"],
    "F1_Simulator_OpenENV": ["truncated", "no_mixed_groups"],
    "Believe-it-or-Not": ["apart_at_once"],
    "Chaos-Economy": ["truncated", "flat"],
    "CAS_NLP_MODULE4_GRPO": ["flat"],
}
"""Each repository -> the rules that apply, in the order of the doctor."""


def test_every_run_is_held():
    assert SAID.keys() == published().keys()


@pytest.mark.parametrize("name", SAID)
def test_what_the_doctor_says(name, tmp_path):
    run = TRLRun(written(published()[name], tmp_path))
    assert [rule.name for rule, _ in findings(run)] == SAID[name]


@pytest.mark.parametrize("name", SAID)
def test_a_transcription_is_whole(name):
    line = published()[name]
    steps = [row[line["columns"].index("step")] for row in line["rows"]]
    assert 10 <= len(steps) <= 60 and steps == sorted(set(steps))
    assert len(steps) <= line["entries"] and len(line["commit"]) == 40 and line["note"]


@pytest.mark.parametrize("name", ["UnslothGRPO", "IITD_Feb26_AAIPL", "Chaos-Economy"])
def test_rewards_add_up_to_the_reward_as_on_the_page(name):
    line = published()[name]
    for row in line["rows"]:
        logged = line["constants"] | dict(zip(line["columns"], row, strict=True))
        means = [v for k, v in logged.items() if k.startswith("rewards/") and k[-4:] != "/std"]
        assert sum(means) == pytest.approx(logged["reward"], abs=2e-3, rel=1e-3)
