"""Earned length: habits read back from known authors, bans, the shortest run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tiny_sweep import ROOT, data, shortened, study_file

from experiments.__main__ import main as run
from experiments.compose import merge
from experiments.earned_length import simulate
from experiments.earned_length.bans import Banning
from experiments.earned_length.levels import (
    attempts_of_right,
    by_level,
    found_at_k,
    habits_of,
    main,
)
from experiments.earned_length.report import BANS, bans_table
from r1lit.cli import main as cli
from r1lit.files import read_records, write_records
from r1lit.policy import load_policy, load_tokenizer
from r1lit.policy.source import settings_of
from r1lit.rollout import InProcessEngine, ModelSpec, Request, Sampling, texts_of
from r1lit.seeding import generator
from r1lit.worlds import WorldSearch
from r1lit.worlds.search_corpus import LEVELS, SLIP_RATE, Habits, places, write

BASE = str(ROOT / "models" / "search")
AHA = "configs/mini/aha"
PRETRAIN = "configs/mini/pretrain_search"
GPU = "configs/hardware/one_gpu"
LONG = "experiments/aha_long"


@pytest.mark.parametrize(
    "own",
    [
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
    merged = merge({}, *(yaml.safe_load(path.read_text()) for path in paths))
    config = yaml.safe_load(printed.out)
    model, wanted = config["model"]["init_args"], merged["model"]["init_args"]
    assert model["micro_batch_tokens"] == wanted["micro_batch_tokens"]
    assert settings_of(model["policy"]).items() >= settings_of(wanted["policy"]).items()
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


def test_how_right_answers_came_about():
    attempt, gives_up = "9 + 7 ~ 15 < 62, ", "I give up. "
    responses = [
        {"uid": f"search-4-3-9-62-at-{needed}", "sample": sample,
         "response": made * attempt + end, "value": value}
        for sample, (needed, made, end, value) in enumerate((
            (6, 6, "", 1.0), (6, 2, "", 1.0), (6, 9, "", 1.0), (6, 1, gives_up, 1.0),
            (6, 6, "", 0.0), (2, 2, "", 1.0), (2, 1, gives_up, 1.0),
        ))
    ]  # fmt: skip
    assert attempts_of_right(responses) == {"as_needed": 0.25, "fewer": 0.25, "guessed": 0.25}
    found = found_at_k(responses, (1, 2, 4))
    assert found == {"attempts 1-2": {"1": 0.5, "2": 1.0},
                     "attempts 6-11": {"1": pytest.approx(0.6), "2": 0.9, "4": 1.0}}  # fmt: skip


def test_patience_is_right_on_every_level_and_takes_longer_on_harder_ones(tmp_path, capsys):
    found = responses(Habits(go_on=1.0, check=1.0))
    levels = by_level(found)
    assert list(levels) == [f"attempts {low}-{high}" for low, high in LEVELS]
    assert all(level["pass_at_1"] == 1 for level in levels.values())
    tokens = [level["tokens"] for level in levels.values()]
    assert tokens == sorted(tokens)
    lines = [{**r, "split": "val", "iteration": i} for i in (0, 8) for r in found[:12]]
    path = tmp_path / "responses.jsonl"
    write_records(path, lines)
    main([str(tmp_path)])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["iteration"] for line in printed] == [0, 8]
    assert printed[0]["levels"] == json.loads(json.dumps(by_level(found[:12])))
    with pytest.raises(ValueError, match="uid: 'chain-7'"):
        by_level([{"uid": "chain-7"}])


def test_simulated_authors_are_right_where_they_go_on_and_check(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(simulate, "NUM_PROBLEMS", 12)
    monkeypatch.setattr(simulate, "NUM_SAMPLES", 4)
    right, votes, tokens = simulate.simulate(1.0, 1.0)
    assert right == votes == 1
    impatient = simulate.simulate(0.0, None)
    assert impatient[0] < 0.5 and impatient[2] < tokens / 2


def test_a_banned_word_is_never_generated():
    tokenizer, policy = load_tokenizer(BASE), load_policy(BASE)
    spec = ModelSpec(name=BASE, tokenizer=tokenizer, policy=policy)
    request = Request(
        prompt=tuple(tokenizer.encode("Table: 3 + 4")),
        samples=tuple(range(8)),
        sampling=Sampling(max_tokens=24),
        seed=0,
    )
    drawn = []
    for engine in (InProcessEngine(), Banning([" ~", " ="])):
        engine.bind(spec)
        drawn.append(" ".join(texts_of(engine.generate([request]), tokenizer)))
    assert " ~" in drawn[0] and " =" in drawn[0]
    assert " ~" not in drawn[1] and " =" not in drawn[1]
    with pytest.raises(ValueError, match=r"words: ' let me' is 2 tokens of .*search, not one"):
        Banning([" let me"]).bind(spec)


def test_the_words_that_the_page_names_are_those_that_are_banned():
    steps = yaml.safe_load(study_file("earned_length").read_text())
    banned = {
        step["name"]: tuple(step["set"]["model"]["init_args"]["engine"]["init_args"]["words"])
        for step in steps["steps"]
        if "engine" in step["set"].get("model", {}).get("init_args", {})
    }
    assert banned == {name: words for name, (_, words) in BANS.items() if words}


def test_seeds_without_bans_have_no_table_of_them():
    assert bans_table([{"bans": {}}]) == ""


@pytest.mark.slow
def test_from_the_base_to_the_bans(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(ROOT)
    few = {"class_path": "r1lit.worlds.WorldSearch"}
    held_out = merge(few, {"init_args": {"split": "held_out", "num_problems": 12}})
    short = data(
        train=[merge(few, {"init_args": {"split": "train", "num_problems": 12}})],
        validation=[held_out], rollout={"prompts_per_iteration": 2, "group_size": 4},
        num_iterations=3, evaluation={"num_samples": 2},
    )  # fmt: skip
    limits = {"sampling": {"max_tokens": 96}, "max_tokens_from": None, "train_batch_size": 8}
    short["set"] |= {"model": {"init_args": limits}, "trainer": {"val_check_interval": 3}}
    tested = data(test=[held_out], evaluation={"num_samples": 2})
    changes = {"rl": short, **dict.fromkeys(("free", "no_checks", "no_switches"), tested)}
    arguments = shortened(tmp_path, "earned_length", changes)
    assert run(arguments) == 0, capsys.readouterr().out
    readme = (tmp_path / "README.md").read_text()
    assert "| 0 | 0." in readme and "### With words banned" in readme
    (kept,) = read_records(tmp_path / "results.jsonl")
    assert len(kept["tokens"]) == 3 and [e["iteration"] for e in kept["evaluations"]] == [0, 3]
    banned = read_records(tmp_path / "runs" / "seed-0" / "no_checks" / "responses.jsonl")
    assert len(banned) == 24 and not any(" wait" in r["response"] for r in banned)
    assert (tmp_path / "earned_length.png").exists()
