"""``r1lit doctor``: what it prints, since when, what it cannot judge, and looking again."""

from __future__ import annotations

import copy
import json

import pytest
from test_doctor_rules import FAULTS, GOOD, HEALTHY, WHOLE, line, run

import r1lit.objectives
import r1lit.steps
from r1lit.cli.doctor import look_once, main, watch
from r1lit.doctor import settings
from r1lit.doctor.rules import RULES, began, examined, findings, unjudged
from r1lit.doctor.run import Run


def test_the_command(tmp_path, capsys):
    run(tmp_path, *FAULTS["truncated"])
    assert main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "train/length/truncated is 0.5 at the start, 0.5 on average" in out
    assert "raise model.sampling.max_tokens" in out
    assert "docs/TROUBLESHOOTING.md#truncated" in out
    assert main([str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"][0]["rule"] == "truncated"
    assert main([str(HEALTHY)]) == 0
    with pytest.raises(ValueError, match=r"run: .*metrics\.jsonl"):
        main([str(tmp_path / "nowhere")])


def test_responses_of_evaluations_are_counted_too(tmp_path, capsys):
    run(tmp_path, {}, {}, GOOD + [{**line("x"), "split": "val"}] * 1536)
    main([str(tmp_path)])
    out = capsys.readouterr().out
    assert "10 iterations; recorded responses: 4 of training, 1,536 of evaluations" in out


def test_a_finding_says_when_it_began_and_shows_the_first_response(tmp_path, capsys):
    healthy = [{**line(GOOD[0]["response"], "right"), "iteration": i} for i in range(4)]
    bad = [{**line("!" * 40), "iteration": 5, "uid": f"p{i}"} for i in range(4)]
    made = run(tmp_path, {}, {}, healthy * 2 + bad)
    (found,) = examined(made)
    assert (found.rule.name, found.began, found.example) == ("one_sign", 5, bad[0])
    assert "from iteration 5 on; first response: iteration 5, p0: '!!!!" in found.since
    main([str(tmp_path)])
    assert found.since in capsys.readouterr().out


def test_a_metric_that_turns_bad_is_dated(tmp_path):
    series = {"train/grad_norm": [1e-6] * 6 + [0.5] * 4}
    made = run(tmp_path, series, {"model.max_grad_norm": 1e-6}, GOOD)
    assert findings(made) == []  # the median is small yet
    later = run(
        tmp_path,
        {"train/grad_norm": [1e-6] * 3 + [0.5] * 7},
        {"model.max_grad_norm": 1e-6},
        GOOD,
    )
    (found,) = examined(later)
    assert found.began == 5  # from there on half of the iterations are above


@pytest.mark.parametrize("name", FAULTS)
def test_a_closer_look_says_the_same(name, tmp_path, capsys):
    run(tmp_path, *FAULTS[name])
    assert main([str(tmp_path), "--rule", name]) == 1
    out = capsys.readouterr().out
    assert f"{name}: " in out and f"docs/TROUBLESHOOTING.md#{name}" in out
    assert main([str(HEALTHY), "--rule", name]) == 0


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_has_a_beginning_within_the_run(name, tmp_path):
    made = run(tmp_path, *copy.deepcopy(FAULTS[name]))
    first = examined(made)[0]
    assert first.rule.name == name and 0 <= first.began <= made.metrics[-1]["iteration"]


@pytest.mark.parametrize(("gain", "tokens"), [(-0.02, 9000), (-0.05, 300), (0.1, 900)])
def test_a_gain_that_chance_explains_is_none(gain, tokens, tmp_path):
    lines = [{**WHOLE, "iteration": i, "gain": gain, "num_tokens": tokens} for i in range(3)]
    assert findings(run(tmp_path, {}, {}, GOOD, lines)) == []


def test_a_critic_may_learn_alone_first(tmp_path):
    still = [{**WHOLE, "num_matrices_moved": 0, "num_others_moved": 0, "iteration": 2}]
    alone = {"train/approx_kl_old": [None] * 5 + [1e-3] * 5}
    assert findings(run(tmp_path, alone, {}, GOOD, still)) == []
    later = [*still, {**still[0], "iteration": 9}]
    (found,) = findings(run(tmp_path, alone, {}, GOOD, later))
    assert found[0].name == "frozen"


def test_a_closer_look_prints_what_a_rule_reads(tmp_path, capsys):
    run(tmp_path, {"train/grad_norm": 0.5}, {"model.max_grad_norm": 1e-6}, [line("!" * 40)] * 3)
    main([str(tmp_path), "--rule", "clipped_gradients"])
    assert "train/grad_norm: 0.5 0.5" in capsys.readouterr().out
    main([str(tmp_path), "--rule", "one_sign"])
    assert capsys.readouterr().out.count("!" * 40) == 3
    with pytest.raises(ValueError, match="--rule: 'clips' is none; there are"):
        main([str(tmp_path), "--rule", "clips"])


def test_what_a_run_does_not_log_is_named(tmp_path, capsys):
    made = run(tmp_path, {}, {}, GOOD)
    assert unjudged(made)["memory_grows"] == ["memory/device_gib", "memory/host_gib"]
    assert "few_problems" not in unjudged(made)
    (tmp_path / "responses.jsonl").unlink()
    (tmp_path / "config.yaml").unlink()
    bare = unjudged(Run(tmp_path))
    assert {"one_sign", "few_problems", "temperature", "small_groups"} <= bare.keys()
    assert bare["one_sign"] == ["responses.jsonl"]
    main([str(tmp_path)])
    out = capsys.readouterr().out
    assert "not judged" in out and "config.yaml" in out and "responses.jsonl" in out


def test_watching_prints_each_finding_once_and_ends_with_the_run(tmp_path, capsys):
    run(tmp_path, {}, {"data.num_iterations": 20}, GOOD)
    said: set[str] = set()
    assert look_once(tmp_path, said) is False and not said
    run(tmp_path, *FAULTS["truncated"])  # of 10 iterations that are planned no longer than that
    look_once(tmp_path, said)
    look_once(tmp_path, said)
    assert capsys.readouterr().out.count("truncated: ") == 1 and said == {"truncated"}
    run(tmp_path, {"train/length/truncated": 0.5}, {"data.num_iterations": 10}, GOOD)
    assert watch(tmp_path, 0.01) == 1
    assert look_once(tmp_path / "not_yet", said) is False


def test_a_run_is_cut_after_an_iteration(tmp_path):
    lines = [{**line("x"), "iteration": i} for i in (0, 4, 8)]
    made = run(tmp_path, {"train/reward": (0.0, 9.0)}, {}, lines)
    early = made.until(5)
    assert early.values("train/reward") == pytest.approx([0, 1, 2, 3, 4])
    assert [x["iteration"] for x in early.responses] == [0, 4]
    assert began(made, RULES[0]) == 9  # a rule that never applies: the last iteration


def test_a_key_is_found_wherever_the_model_has_it(tmp_path):
    made = run(tmp_path, {}, {"model.max_staleness": 3}, GOOD)
    assert settings.max_staleness(made) == ("model.max_staleness", 3)
    moved = {"class_path": "r1lit.collect.Ahead", "init_args": {"max_staleness": 4}}
    made = run(tmp_path, {}, {"model.collector": moved}, GOOD)
    assert settings.max_staleness(made) == ("model.collector.max_staleness", 4)
    assert "stale" in [rule.name for rule, _ in findings(made)]


def test_steps_and_terms_are_found_by_their_class(tmp_path):
    steps = [
        {"class_path": "r1lit.steps.KLInReward", "init_args": {"beta": 2.0}},
        {"class_path": "r1lit.steps.Correction", "init_args": {"weighting": "some.Weighting"}},
        "r1lit.steps.Critic",
    ]
    terms = [{"class_path": "r1lit.objectives.EntropyBonus", "init_args": {"weight": 0.5}}]
    made = run(tmp_path, {}, {"model.steps": steps, "model.objective.terms": terms}, GOOD)
    assert settings.correction(made) and settings.is_corrected(made) and settings.has_critic(made)
    assert ("KLInReward in model.steps", 2.0) in settings.kl_weights(made)
    assert [rule.name for rule, _ in findings(made)] == ["entropy_bonus", "kl_strong"]
    for name in ("KLInReward", "Correction", "Critic"):
        assert hasattr(r1lit.steps, name)
    assert hasattr(r1lit.objectives, "EntropyBonus")
    bare = run(tmp_path, {}, {}, GOOD)
    assert not settings.correction(bare) and not settings.has_critic(bare)


def test_every_objective_that_clips_responses_is_known():
    objectives = (getattr(r1lit.objectives, name) for name in dir(r1lit.objectives))
    clipped = [
        found
        for found in objectives
        if isinstance(found, type)
        and issubclass(found, r1lit.objectives.ClippedObjective)
        and getattr(found, "log_ratio_BT", None) is not None
    ]
    ratios = {found.__name__: found.log_ratio_BT.__name__ for found in clipped}
    names = {name for name, ratio in ratios.items() if ratio != "token_log_ratio_BT"}
    assert len(ratios) > len(names) > 0 and names == set(settings.RATIO_OF_RESPONSE)
