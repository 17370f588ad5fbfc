"""``r1lit predict`` with RejectionSampling: what is kept, what is dropped, and why."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import ROOT, save_policy

sys.path.insert(0, str(ROOT / "tests" / "curation"))

from tiny_prediction import FILES, prediction_config, rows

from r1lit.cli import main
from r1lit.text.extract import thinking_and_answer


def filter_(name: str, **init_args: Any) -> dict[str, Any]:
    return {"class_path": f"r1lit.curation.{name}", "init_args": init_args}


SPELL_OUT = {"class_path": "r1lit.curation.RuleRefiner", "init_args": {"rule": "rules.spell_out"}}
REJECTION = {
    "filters": [filter_("Correct"), filter_("RepeatedText", most=0.9, n=2)],
    "refiners": [SPELL_OUT],
    "final_filters": [filter_("Dedupe"), filter_("MaxPerProblem", n=1)],
}


def predict(folder: Path, policy: Path, rejection: dict[str, Any] | None = REJECTION) -> Path:
    folder.mkdir(exist_ok=True)
    main(["predict", "-c", str(prediction_config(folder, policy, rejection))])
    return folder / "run"


def contents(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in FILES}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, policy) -> Path:
    return predict(tmp_path_factory.mktemp("whole"), policy)


@pytest.mark.long
def test_every_response_drawn_is_kept_or_dropped_once(whole):
    drawn = {(r["uid"], r["sample"]): r for r in rows(whole / "responses.jsonl")}
    kept, dropped = rows(whole / "sft.jsonl"), rows(whole / "dropped.jsonl")
    names = [(r["uid"], r["sample"]) for r in [*kept, *dropped]]
    assert len(names) == len(set(names)) and set(names) == set(drawn)
    assert kept and dropped, "the test needs both"
    for row in kept:
        assert drawn[row["uid"], row["sample"]]["status"] == "right"
        assert row["prompt"].startswith("What is ")
        assert row["response"] == f"<think> {row['thinking']} </think> {row['summary']}"
        assert row["thinking"] == f"I try {row['uid']}"
        assert row["num_tokens"] > 8  # counted anew
    right = {uid for (uid, _), r in drawn.items() if r["status"] == "right"}
    assert {r["uid"] for r in kept} == right and len(kept) == len(right)  # one of each
    for row in dropped:
        record = drawn[row["uid"], row["sample"]]
        if row["filter"] == "correct":
            assert row["stage"] == "generated" and record["status"] == "wrong"
            assert row["why"] == "wrong: no digit" and row["text"] == record["response"]
        else:
            assert row["filter"] in ("max_per_problem", "dedupe") and row["stage"] == "final"


def test_the_card_adds_up(whole):
    import json

    card = json.loads((whole / "card.json").read_text())
    kept, dropped = rows(whole / "sft.jsonl"), rows(whole / "dropped.jsonl")
    assert card["num_drawn"] == 16 == card["num_kept"] + card["num_dropped"]
    assert card["num_kept"] == len(kept)
    for group in ("source", "kind", "language"):
        counts = card[f"by_{group}"]
        assert sum(c["drawn"] for c in counts.values()) == 16
        for name, count in counts.items():
            assert count["kept"] == sum(row[group] == name for row in kept)
    assert card["by_kind"]["general"]["drawn"] == 4
    losses = {loss["filter"]: loss for loss in card["losses"]}
    for name, loss in losses.items():
        if loss["stage"] == "generated" or name in ("dedupe", "max_per_problem"):
            assert loss["dropped"] == sum(row["filter"] == name for row in dropped), name
    assert sum(loss["dropped"] for loss in card["losses"]) == len(dropped)
    assert losses["max_per_problem"]["seen"] >= len(kept)
    assert card["lengths"]["kept"]["total"] == sum(row["num_tokens"] for row in kept)
    assert sum(card["kept_per_problem"].values()) == 4
    settings = card["settings"]
    assert settings["evaluation"]["fingerprint"] and settings["seed"] == 0 and settings["k"] == 4
    assert settings["filters"][1] == {
        "class": "RepeatedText", "kinds": None, "most": 0.9, "n": 2
    }  # fmt: skip
    assert settings["refiners"][0]["rule"] == "rules.spell_out"
    text = (whole / "card.md").read_text()
    assert f"{len(kept)} of 16 responses" in text and "| generated | correct | 16 |" in text
    assert (whole / "lengths.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_the_same_responses_in_any_order_give_the_same_bytes(whole, policy, tmp_path):
    predict(tmp_path, policy)
    run = tmp_path / "run"
    wanted = contents(run)
    assert wanted["sft.jsonl"] == (whole / "sft.jsonl").read_bytes()
    assert wanted["dropped.jsonl"] == (whole / "dropped.jsonl").read_bytes()
    predict(tmp_path, policy)  # again
    assert contents(run) == wanted
    lines = (run / "responses.jsonl").read_text().splitlines(keepends=True)
    random.Random(0).shuffle(lines)
    (run / "responses.jsonl").write_text("".join(lines))
    predict(tmp_path, policy)
    assert contents(run) == wanted


@pytest.mark.long
def test_an_interrupted_prediction_is_continued_to_the_same_files(whole, policy, tmp_path):
    predict(tmp_path, policy)
    run = tmp_path / "run"
    wanted = contents(run)
    content = (run / "responses.jsonl").read_bytes()
    (run / "responses.jsonl").write_bytes(content[: len(content) // 2])
    for name in FILES:
        (run / name).unlink()
    (run / ".sft.jsonl.tmp").write_text("half of a line")
    predict(tmp_path, policy)
    assert contents(run) == wanted
    assert not list(run.glob(".*.tmp"))


@pytest.mark.long
def test_what_a_refiner_spoils_is_dropped(policy, tmp_path):
    """It loses its digits, on which the verdict hangs; or the rule gives up."""
    options = {"lose_digits": True, "give_up": True}
    spoiling = {**SPELL_OUT, "init_args": {**SPELL_OUT["init_args"], "options": options}}
    with pytest.raises(ValueError, match="kept 0 of 16 responses"):
        predict(tmp_path, policy, {"filters": [filter_("Correct")], "refiners": [spoiling]})
    run = tmp_path / "run"
    drawn = rows(run / "responses.jsonl")
    given_up = [r for r in drawn if r["status"] == "right" and r["question"] == "What is 0 + 0?"]
    by_stage: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows(run / "dropped.jsonl"):
        by_stage.setdefault((row["stage"], row["filter"]), []).append(row)
    assert not rows(run / "sft.jsonl")
    assert len(by_stage["refined", "RuleRefiner"]) == len(given_up) > 0
    assert by_stage["refined", "RuleRefiner"][0]["why"] == "rules.spell_out dropped it"
    spoiled = by_stage["refined", "correct"]
    assert spoiled and all(row["text"].startswith("<think> I try </think> So") for row in spoiled)
    assert sum(map(len, by_stage.values())) == len(drawn) == 16


@pytest.mark.long
def test_only_other_kinds_pass_by(policy, tmp_path):
    rejection = {
        "filters": [filter_("Correct", kinds=["reasoning"])],
        "refiners": [{**SPELL_OUT, "init_args": {"rule": "rules.spell_out", "kinds": ["none"]}}],
        "response_template": {"text": "|special_token|{thinking}|special_token|{summary}",
                 "without_thinking": "|special_token||special_token|{summary}"},
        "cut": ["\nQuestion:"],
    }  # fmt: skip
    run = predict(tmp_path, policy, rejection)
    kept = rows(run / "sft.jsonl")
    drawn = {(r["uid"], r["sample"]): r for r in rows(run / "responses.jsonl")}
    assert {r["kind"] for r in kept} == {"reasoning", "general"}
    summed_up = 0
    for (uid, sample), record in drawn.items():
        thinking, summary = (t.strip() for t in thinking_and_answer(record["response"]))
        general = record["question"] == "What is 3 + 3?"
        wanted = bool(summary) and (general or record["status"] == "right")
        found = [r for r in kept if (r["uid"], r["sample"]) == (uid, sample)]
        assert len(found) == wanted
        for row in found:
            chain = f"|special_token|{thinking}" if thinking else "|special_token|"
            assert row["response"] == f"{chain}|special_token|{summary}"
            summed_up += 1
    assert summed_up


@pytest.mark.long
@pytest.mark.parametrize(
    ("rejection", "message"),
    [
        (
            {"filters": [filter_("LanguageConsistent", least=1.5)]},
            "least: 1.5 is not between 0 and 1",
        ),
        ({"filters": [filter_("MaxPerProblem", n=0)]}, "n: 0 is not at least 1"),
        ({"filters": [filter_("Length", max_words=3)]}, "max_words"),
        ({"filters": []}, "filters: none is given"),
        ({"response_template": {"text": "{thinking}"}}, "does not contain {summary} once"),
        (
            {"refiners": [{**SPELL_OUT, "init_args": {"rule": "rules.absent"}}]},
            "rule: 'rules.absent' cannot be imported",
        ),
        ({"cut": [""]}, "cut: "),
    ],
)
def test_bad_settings_are_named_before_anything_is_drawn(policy, tmp_path, rejection, message):
    with pytest.raises(ValueError, match=message):
        predict(tmp_path, policy, rejection)
    assert not (tmp_path / "run").exists()


def test_it_needs_an_evaluation(tmp_path, policy):
    from r1lit.callbacks import RejectionSampling

    class NoFolder:
        pass

    with pytest.raises(ValueError, match="EvaluationModule generated, and the model is NoFolder"):
        RejectionSampling().setup(None, NoFolder(), "predict")  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_shipped_base_is_curated(tmp_path):
    """The real small policy on Countdown, with R1's filters."""
    save_policy(tmp_path / "unused")
    rejection = {
        "filters": [filter_("Finished"), filter_("Correct"), filter_("CodeBlocks")],
        "refiners": [filter_("ToR1Template")],
    }
    config = prediction_config(tmp_path, ROOT / "models" / "mini", rejection)
    with pytest.raises(ValueError, match="kept 0 of 16 responses; finished dropped 16 of them"):
        main(["predict", "-c", str(config)])  # eight tokens end no response
    assert len(rows(tmp_path / "run" / "responses.jsonl")) == 16


@pytest.mark.long
def test_nothing_kept_is_an_error_that_names_the_filter(tmp_path, policy):
    rejection = {"filters": [filter_("Length", min_tokens=10_000)]}
    with pytest.raises(ValueError, match=r"kept 0 of \d+ responses; length dropped \d+ of them"):
        predict(tmp_path, policy, rejection)
    assert (tmp_path / "run" / "card.md").exists() and rows(tmp_path / "run" / "dropped.jsonl")


def test_data_to_decontaminate_with_are_looked_for_before_anything_is_generated(tmp_path, policy):
    missing = {"class_path": "r1lit.data.TableProblems", "init_args": {"path": "no.jsonl"}}
    kept = filter_("Decontaminate", evaluations=[missing])
    with pytest.raises(ValueError, match=r"Decontaminate.evaluations\[0\]: path: .*no.jsonl"):
        predict(tmp_path, policy, {"filters": [kept]})
    assert not (tmp_path / "run" / "responses.jsonl").exists()
