"""Searches from YAML, through ``r1lit test`` and ``predict``, on a tiny policy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny import ROOT, DigitShare, merge
from tiny_evaluation import evaluation_config, lines, report, texts
from tiny_reward import save_critic
from tree_engine import query

from r1lit.cli import main
from r1lit.policy import load_policy, load_tokenizer
from r1lit.rollout import InProcessEngine, ModelSpec, Sampling
from r1lit.search import BeamSearch, BestOfN, RewardScorer, Step

JUDGE = {"class_path": "stand_ins.DigitJudge"}
TOKENS = {"separator": None, "max_tokens": 2}
DIGITS = {"class_path": "r1lit.search.RewardScorer", "init_args": {"reward": "tiny.DigitShare"}}
NOISY = {"class_path": "r1lit.search.Noisy", "init_args": {"scorer": DIGITS, "std": 0.1}}
SEARCHES: dict[str, dict[str, Any]] = {
    "WeightedBestOfN": {"n": 3, "scorer": DIGITS, "grader": JUDGE},
    "DVTS": {"n": 4, "beam_width": 2, "scorer": NOISY, "step": TOKENS},
    "MCTS": {
        "num_simulations": 4,
        "num_children": 2,
        "rollouts": 1,
        "scorer": {"class_path": "r1lit.search.VerifierScorer", "init_args": {"grader": JUDGE}},
        "step": {"separator": None, "max_tokens": 1},
        "token_budget": 40,
    },
}


def with_search(name: str, num_samples: int = 2, **init_args: Any) -> dict[str, Any]:
    search = {"class_path": f"r1lit.search.{name}", "init_args": init_args}
    return {
        "model": {"init_args": {"search": search}},
        "data": {"init_args": {"evaluation": {"num_samples": num_samples}}},
    }


def evaluate(folder: Path, policy: Path, change: dict[str, Any], *args: str) -> Path:
    folder.mkdir(exist_ok=True)
    main(["test", "-c", str(evaluation_config(folder, policy, change)), *args])
    return folder / "run"


@pytest.mark.long
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_makes_the_responses_of_an_evaluation(policy, tmp_path, name):
    run = evaluate(tmp_path, policy, with_search(name, **SEARCHES[name]))
    found, numbers = lines(run), report(run)
    assert len(found) == 8 and all(line["num_tokens"] <= 8 for line in found)
    assert all(line["search"]["num_tokens"] >= line["num_tokens"] for line in found)
    assert all(line["search"]["num_tokens"] <= 40 for line in found) or name != "MCTS"
    mean = sum(line["search"]["num_tokens"] for line in found) / 8
    assert numbers["search"]["num_tokens"] == pytest.approx(mean)
    assert (
        f"| tokens generated for a response by its search, mean | {mean:.0f} |"
        in (run / "report.md").read_text()
    )
    settings = numbers["settings"]["search"]
    assert settings["class"] == name and settings["scorer"]["class"]


@pytest.mark.long
def test_an_interrupted_evaluation_makes_the_missing_ones_again_and_no_other(policy, tmp_path):
    change = with_search("DVTS", **SEARCHES["DVTS"])
    run = evaluate(tmp_path, policy, change)
    whole, path = texts(run), run / "responses.jsonl"
    kept = path.read_bytes().splitlines(keepends=True)[:3]
    path.write_bytes(b"".join(kept))
    evaluate(tmp_path, policy, change)
    assert texts(run) == whole and path.read_bytes().startswith(b"".join(kept))
    other = with_search("DVTS", **{**SEARCHES["DVTS"], "n": 6})
    with pytest.raises(ValueError, match="search was"):
        evaluate(tmp_path, policy, other)


@pytest.mark.long
def test_it_finds_better_responses_than_sampling_does(policy, tmp_path):
    """Of 8 responses the one with most digits has one where any has."""
    plain = {"data": {"init_args": {"evaluation": {"num_samples": 2}}}}
    sampled = evaluate(tmp_path / "a", policy, plain)
    searched = evaluate(tmp_path / "b", policy, with_search("BestOfN", n=8, scorer=DIGITS))
    right = [report(run)["pass_at_1"]["value"] for run in (sampled, searched)]
    assert right[0] < right[1]
    assert "search" not in report(sampled) and "search" not in lines(sampled)[0]


@pytest.mark.long
def test_the_page_has_a_search_that_runs(policy, tmp_path):
    """docs/SEARCH.md, with a policy, a critic and a budget of this size; as a prediction too."""
    block = re.search(r"```yaml search.yaml\n(.*?)```", (ROOT / "docs/SEARCH.md").read_text(), re.S)
    critic = {"scorer": {"init_args": {"model": str(save_critic(tmp_path))}}}
    smaller = {"search": {"init_args": critic}, "sampling": {"max_tokens": 8}}
    assert block is not None
    config = merge(yaml.safe_load(block[1]), {"model": {"init_args": smaller}})
    path = evaluation_config(tmp_path, policy, config, num_problems=2)
    settings = yaml.safe_load(path.read_text())
    settings["data"]["init_args"]["predict"] = settings["data"]["init_args"].pop("test")
    path.write_text(yaml.safe_dump(settings))
    main(["predict", "-c", str(path)])
    run = tmp_path / "run"
    assert len(lines(run)) == 8
    described = report(run)["settings"]["search"]
    assert described["n"] == 16 and described["step"]["separator"] == "\n\n"
    assert described["scorer"]["fingerprint"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_search("BeamSearch", n=6, scorer=DIGITS), "n: 6 is not a multiple of beam_width 4"),
        (
            merge(
                with_search("BestOfN", scorer=DIGITS),
                {"model": {"init_args": {"sampling": {"temperature": 0}}}},
            ),
            r"sampling\.temperature: 0 generates the same response",
        ),
        (with_search("BeamSearch", scorer=DIGITS, width=3), "width"),
    ],
)
def test_bad_input_is_named_before_anything_is_generated(policy, tmp_path, change, message):
    with pytest.raises(ValueError, match=message) as error:
        evaluate(tmp_path, policy, change)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run" / "responses.jsonl").exists()


def test_a_response_made_of_steps_is_what_the_engine_says_at_once(policy):
    """Where only the likeliest token is generated, prefixes that go on change nothing."""
    engine = InProcessEngine()
    engine.bind(
        ModelSpec(
            name="tiny", tokenizer=load_tokenizer(str(policy)), policy=load_policy(str(policy))
        )
    )
    sampling = Sampling(top_k=1, max_tokens=9)
    scorer = RewardScorer(DigitShare())
    steps = BeamSearch(scorer, n=2, beam_width=2, step=Step(separator=None, max_tokens=2))
    queries = [query(), query("What is 2 + 2?")]
    with torch.no_grad():
        whole = BestOfN(scorer, n=2).run(queries, engine, sampling, 0)
        found = steps.run(queries, engine, sampling, 0)
    for one, other in zip(whole, found, strict=True):
        assert one.chosen.response.token_ids == other.chosen.response.token_ids
        assert len(one.chosen.response.token_ids) > 2
