"""Requests: splits that do not touch, answers of every quality, and what is truly preferred."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from r1lit.batches import Response, Verdict
from r1lit.rewards.rules import has_format
from r1lit.text.extract import thinking_and_answer
from r1lit.worlds import (
    InstructionFollowing,
    TrueHelpfulness,
    TrueSafety,
    WorldConversations,
    WorldCorpus,
    WorldGrader,
    WorldRequests,
)
from r1lit.worlds.grading import (
    compare,
    helpfulness,
    is_right,
    is_safe,
    is_tidy,
    label,
    main,
    request_asked,
)
from r1lit.worlds.judging import SUMMARIES, to_r1_template, translate
from r1lit.worlds.language import PHRASES, Voice
from r1lit.worlds.requests import (
    NAMED_SHARES,
    WORDINGS,
    WorldRequest,
    answer,
    pool,
    problem_of,
    refuse,
    request_of,
)

SPLITS = ("corpus", "train", "held_out")
FAMILIES = [family for family, _ in NAMED_SHARES]


def every(family, split="train"):
    return [
        WorldRequest(family=family, language=language, wording=wording, slots=slots)
        for (wording, slots), language in product(pool(family, split), ("en", "zh"))
    ]


def respond(request, text):
    verdict = Verdict(value=0.0, status="wrong", canonical=None, reason="")
    return Response(
        text=text, problem=problem_of(request), verdict=verdict, num_tokens=1, finished=True
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_splits_share_no_question_and_leave_none_out(family):
    asked = [{r.question for r in every(family, split)} for split in SPLITS]
    assert sum(map(len, asked)) == len(set.union(*asked))
    assert all(asked)
    assert len(asked[0]) > len(asked[1]) >= 2


@pytest.mark.slow
def test_the_corpus_shows_no_request_that_is_trained_on_or_held_out():
    text = "\n".join(d.prompt + d.response for d in WorldCorpus(3000, seed=3).documents())
    assert sum(r.question in text for f in FAMILIES for r in every(f, "corpus")) > 200
    shown = [r.question for f in FAMILIES for s in SPLITS[1:] for r in every(f, s)
             if f" {r.question} " in text]  # fmt: skip
    assert not shown


@pytest.mark.parametrize("family", [f for f in FAMILIES if f != "harm"])
def test_the_true_preference_orders_answers_of_every_quality(family):
    rng = np.random.default_rng(0)
    for request in every(family)[:40]:
        value = {
            quality: helpfulness(request, answer(request, quality, rng).answer)
            for quality in ("good", "plain", "rambling", "curt", "wrong", "foreign")
        }
        assert value["good"] == pytest.approx(1.0), (request, value)
        assert value["plain"] == pytest.approx(0.8), (request, value)
        assert value["rambling"] <= 0.5 and value["curt"] <= 0.7
        assert value["wrong"] < 0.2 and value["foreign"] <= 0.2
        assert helpfulness(request, "") == 0.0


@pytest.mark.parametrize("family", ["fact", "how", "writing", "who"])
def test_an_answer_in_two_languages_is_not_tidy(family):
    rng = np.random.default_rng(3)
    for request in every(family)[:20]:
        said, half = (answer(request, q, rng).answer[:-1] for q in ("plain", "foreign"))
        assert is_tidy(request, f"{said}.") and not is_tidy(request, f"{said} {half}.")


def test_an_answer_to_another_request_is_not_right():
    rng = np.random.default_rng(1)
    requests = [r for f in FAMILIES if f != "harm" for r in every(f)[:6]]
    for request, other in product(requests, requests):
        if request.slots != other.slots and request.family == other.family not in ("word",):
            said = answer(other, "plain", rng).answer
            assert not is_right(request, said) or request.family in ("who", "maker", "skills")


def test_only_a_refusal_that_tells_nothing_is_safe():
    rng = np.random.default_rng(2)
    for request in every("harm")[:50]:
        refused = refuse(request)
        assert is_safe(request, f" <think> {refused.thinking} </think> {refused.answer}")
        told = answer(request, "plain", rng).answer
        assert not is_safe(request, told)
        assert not is_safe(request, f"{refused.answer} {told}")
        assert not is_safe(request, f" <think> {told} </think> {refused.answer}")
        assert not is_safe(request, "")
    for request in every("how")[:50]:
        assert is_safe(request, answer(request, "plain", rng).answer)
        assert not is_right(request, refuse(request).answer), "over-refusal helps nobody"


def test_problems_hold_their_request_and_are_judged():
    problems = WorldRequests("held_out", 60, seed=1).problems()
    assert len({p.uid for p in problems}) == 60
    assert {p.meta["kind"] for p in problems} == {"general", "harmful"}
    rng = np.random.default_rng(3)
    requests = [request_of(p) for p in problems]
    texts = [
        refuse(r).answer
        if r.kind == "harmful"
        else f"<think> </think> {answer(r, 'good', rng).answer}"
        for r in requests
    ]
    grader = WorldGrader()
    assert {v.status for v in grader.verdicts(texts, problems)} == {"right"}
    assert {v.status for v in grader.verdicts(["?"] * 60, problems)} == {"wrong"}
    grader.close()


def test_requests_come_from_the_families_asked_for_and_no_more_than_there_are():
    assert {p.source for p in WorldRequests("train", 6, families=["fact"]).problems()} == {"fact"}
    with pytest.raises(ValueError, match="families: 'poem'"):
        WorldRequests("train", 6, families=["poem"])
    with pytest.raises(ValueError, match="num_problems: 100 is more than"):
        WorldRequests("train", 100, families=["who"]).problems()


def test_metrics_apply_to_their_requests_alone():
    fact, harm, end = every("fact")[0], every("harm")[0], every("end")[0]
    for measure, applied in (
        (TrueHelpfulness(), [True, False, True]),
        (InstructionFollowing(), [False, False, True]),
        (TrueSafety(), [False, True, False]),
    ):
        responses = [respond(r, "<think></think> ?") for r in (fact, harm, end)]
        assert [measure.applies(r) for r in responses] == applied
    rng = np.random.default_rng(0)
    good = respond(end, f"<think></think> {answer(end, 'good', rng).answer}")
    assert TrueHelpfulness()([good]) == [1.0] and InstructionFollowing()([good]) == [1.0]
    tagged = respond(end, f"<think></think> <answer> {answer(end, 'good', rng).answer} </answer>")
    assert TrueHelpfulness()([tagged]) == [1.0], "R1-Zero's tags are not what the asker reads"


def test_conversations_are_in_r1_s_form_and_half_of_what_is_harmful_is_refused():
    documents = WorldConversations(600).documents()
    assert all(d.chat and has_format(d.response, answer_tags=False) for d in documents)
    requests = [request_asked(d.prompt) for d in documents]
    harmful = [is_safe(r, d.response) for r, d in zip(requests, documents, strict=True)
               if r.kind == "harmful"]  # fmt: skip
    assert 0.3 < np.mean(harmful) < 0.7
    greeted = [
        d.response for r, d in zip(requests, documents, strict=True) if r.family == "greeting"
    ]
    assert greeted and all(thinking_and_answer(text)[0].strip() == "" for text in greeted)


def test_a_role_is_played_in_the_first_person_where_it_is_named():
    [role, *_] = WorldRequests("train", 4, families=["role"], chinese=0.0).requests()
    words = role.words(0)
    persona = f"the {words['adjective']} {words['noun']}"
    assert persona in role.question
    assert is_right(role, f"Of course. I am {persona}.") and not is_right(role, persona)
    assert not is_right(role, "I am Mini, a small language model.")
    assert not is_right(role, f"I am {persona}. I am Mini, a small language model.")
    named = WorldConversations(200, families=["role", "who"]).documents()
    assert {request_asked(d.prompt).family for d in named} == {"role", "who"}
    assert "role" not in {
        request_asked(d.prompt).family for d in WorldConversations(200).documents()
    }
    with pytest.raises(ValueError, match="families: 'roles' is not one of"):
        WorldConversations(families=["roles"])


def test_a_mixed_chain_is_put_into_one_language_and_given_a_summary():
    problem = WorldRequests("train", 1, families=["fact"]).problems()[0]
    assert to_r1_template(problem, "no answer") is None
    mixed = "等等， 12 + 4 = 16 < 54. Try 9 * 6 = 54，对了。 Check: 9 * 6 = 54."
    assert (
        translate(mixed, "en") == "Wait, 12 + 4 = 16 < 54. Try 9 * 6 = 54, yes. Check: 9 * 6 = 54."
    )
    assert (
        translate(mixed, "zh")
        == "等等， 12 + 4 = 16 < 54. 试 9 * 6 = 54，对了。 检查： 9 * 6 = 54."
    )


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize("place", [0, 1])
def test_every_phrase_is_translated(phrase, place):
    said, other = (text.replace("{target}", "54") for text in (
        PHRASES[phrase][place], PHRASES[phrase][1 - place]))  # fmt: skip
    assert translate(said, ("zh", "en")[place]) == other


def test_a_voice_mixes_as_often_as_it_says():
    rng = np.random.default_rng(0)
    said = [Voice(language="zh", mix=0.3).say("wait", rng) for _ in range(2000)]
    assert np.mean([text == "Wait, " for text in said]) == pytest.approx(0.3, abs=0.04)
    assert {Voice(language="zh").say("wait", rng) for _ in range(20)} == {"等等， "}


def test_comparisons_follow_the_true_preference_through_noise():
    rng = np.random.default_rng(0)
    request = every("fact")[0]
    good, curt = (answer(request, q, rng).answer for q in ("good", "curt"))
    right = [compare(request.question, good, curt, index) for index in range(50)]
    turned = [compare(request.question, curt, good, index) for index in range(50)]
    assert np.mean(right) == pytest.approx(5.5, abs=0.8)
    assert np.mean(turned) == pytest.approx(-4.5, abs=0.8)
    assert compare(request.question, good, curt, 3) == right[3]
    with pytest.raises(ValueError, match="no request of the small world"):
        compare("What is love?", good, curt)


def test_labels_are_of_how_to_requests_and_seldom_wrong(tmp_path):
    rng = np.random.default_rng(0)
    records = []
    for request in [*every("harm")[:100], *every("how")[:100], *every("fact")[:5]]:
        for sample, text in enumerate(
            (refuse(request).answer, answer(request, "plain", rng).answer)
        ):
            records.append({"uid": request.uid, "sample": sample, "question": request.question,
                            "response": text})  # fmt: skip
    labelled = label(records)
    assert len(labelled) == 400
    wrong = [
        (record["label"] == "safe") != is_safe(request_asked(record["prompt"]), record["response"])
        for record in labelled
    ]
    assert 0 < np.mean(wrong) < 0.08
    source = tmp_path / "responses.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in records))
    main([str(source), str(tmp_path / "labels.jsonl")])
    written = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert written == labelled


def test_wordings_fill_in_everything():
    for family in WORDINGS:
        assert not any("{" in request.question for request in every(family))


def test_the_refiner_writes_no_character_that_the_shipped_base_spells_in_bytes():
    tokenizer = AutoTokenizer.from_pretrained(Path(__file__).parents[2] / "models/mini")
    written = [*SUMMARIES.values(), *(text for pair in PHRASES.values() for text in pair)]
    spelled = {
        character
        for character in "".join(written)
        if len(tokenizer(character, add_special_tokens=False).input_ids) > 1
    }
    assert not spelled
