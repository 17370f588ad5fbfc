"""Habits and accuracy by level, read back from responses of known authors."""

from __future__ import annotations

import json

import pytest
import yaml
from tiny import ROOT

from experiments.compose import merge
from experiments.earned_length.levels import by_level, habits_of, main
from r1lit.cli import main as cli
from r1lit.seeding import generator
from r1lit.worlds import WorldSearch
from r1lit.worlds.habits import SLIP_RATE, Habits, write
from r1lit.worlds.long_search import LEVELS, places

AHA = "configs/mini/aha"
PRETRAIN = "configs/mini/pretrain_search"
GPU = "configs/hardware/one_gpu"
LONG = "experiments/aha_long"


@pytest.mark.parametrize(
    "own",
    [
        [PRETRAIN],
        [AHA],
        [AHA, f"{LONG}/longer"],
        [PRETRAIN, GPU, f"{LONG}/gpu/pretrain"],
        [AHA, GPU, f"{LONG}/gpu/r1_zero"],
    ],
    ids="+".join,
)
def test_a_config_is_read(capsys, own):
    paths = [ROOT / f"{name}.yaml" for name in own]
    with pytest.raises(SystemExit) as exit_:
        cli(["fit", *(f"--config={path}" for path in paths), "--print_config"])
    printed = capsys.readouterr()
    assert exit_.value.code in (0, None), printed.err
    merged = {}
    for path in paths:
        merged = merge(merged, yaml.safe_load(path.read_text()))
    config = yaml.safe_load(printed.out)
    for key in ("policy", "micro_batch_tokens"):
        assert config["model"]["init_args"][key] == merged["model"]["init_args"][key]
    assert (
        config["data"]["init_args"]["num_iterations"]
        == merged["data"]["init_args"]["num_iterations"]
    )


def responses(habits: Habits, num_problems: int = 240) -> list[dict]:
    found = []
    for p in WorldSearch("train", num_problems).problems():
        own = write(places(tuple(p.meta["numbers"])), p.meta["target"], habits, generator(5, p.uid))
        right = own.claimed and own.claimed.attempt.second.result == p.meta["target"]
        found.append({"uid": p.uid, "response": own.text, "value": float(bool(right)),
                      "num_tokens": 10 * own.stop, "finished": True})  # fmt: skip
    return found


def test_habits_are_read_back():
    found = habits_of(responses(Habits(go_on=0.9, check=0.5)))
    assert found["wrong_equations"] == 0
    assert found["gives_up_per_attempt"] == pytest.approx(0.1, abs=0.03)
    assert found["deceptive_checked"] == pytest.approx(0.5, abs=0.15)
    assert found["wrong_glances"] == pytest.approx(SLIP_RATE, abs=0.012)


def test_patience_is_right_on_every_level_and_takes_longer_on_harder_ones(tmp_path, capsys):
    found = responses(Habits(go_on=1.0, check=1.0))
    levels = by_level(found)
    assert list(levels) == [f"attempts {low}-{high}" for low, high in LEVELS]
    assert all(level["pass_at_1"] == 1 for level in levels.values())
    tokens = [level["tokens"] for level in levels.values()]
    assert tokens == sorted(tokens)
    lines = [{**r, "split": "val", "iteration": i} for i in (0, 8) for r in found[:12]]
    path = tmp_path / "responses.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    main([str(tmp_path)])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["iteration"] for line in printed] == [0, 8]
    assert printed[0]["levels"] == json.loads(json.dumps(by_level(found[:12])))
    with pytest.raises(ValueError, match="uid: 'chain-7'"):
        by_level([{"uid": "chain-7"}])
