"""What a larger model learns to judge from: replies that r1lit reads, errors, the split."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from r1lit.curation.refine import read_reply
from r1lit.endpoint import ChatReply
from r1lit.verifiers.generative import read_label, read_verdict
from r1lit.worlds import WorldOpinions, WorldRequests
from r1lit.worlds.countdown import number_sets
from r1lit.worlds.grading import helpfulness, is_right, is_safe, request_asked
from r1lit.worlds.judging import label_of
from r1lit.worlds.requests import pool, reference_answer

FENCED = re.compile(r"BEGIN ([A-Z ]+?) ([0-9a-f]+)\n(.*?)\nEND \1 \2", re.DOTALL)


@pytest.fixture(scope="module")
def documents():
    return WorldOpinions(num_documents=600, seed=3).documents()


def fields(prompt: str) -> dict[str, str]:
    return {name: text for name, _, text in FENCED.findall(prompt)}


def test_each_is_a_prompt_of_r1lit_and_a_reply_that_it_reads(documents):
    tasks: Counter[str] = Counter()
    for document in documents:
        assert document.chat
        shown = fields(document.prompt)
        if "REFERENCE ANSWER" in shown:
            tasks["judge"] += 1
            assert read_verdict(document.response, "f00d") is not None
        elif "ANSWER A" in shown:
            tasks["preference"] += 1
            assert read_label(document.response, "f00d") is not None
        else:
            tasks["refine"] += 1
            reply = ChatReply(text=document.response, completion_tokens=9, finished=True)
            assert read_reply(reply).text is not None
    assert tasks["judge"] > tasks["preference"] > tasks["refine"] > 60


def test_a_document_is_a_function_of_seed_and_index(documents):
    assert WorldOpinions(num_documents=20, seed=3).documents() == documents[:20]
    assert WorldOpinions(num_documents=20, seed=4).documents() != documents[:20]


def test_judges_err_in_a_few_of_a_hundred(documents):
    wrong = num = 0
    for document in documents:
        shown = fields(document.prompt)
        if "REFERENCE ANSWER" not in shown or not shown["QUESTION"][-1:].strip():
            continue
        try:
            request = request_asked(shown["QUESTION"])
        except ValueError:
            continue
        truth = (is_safe if request.kind == "harmful" else is_right)(
            request, shown["ANSWER TO GRADE"]
        )
        num, wrong = num + 1, wrong + (read_verdict(document.response, "f00d") != truth)
    assert num > 80 and 0 < wrong / num < 0.1


def test_labels_are_of_people_with_noise(documents):
    agree: dict[bool, list[bool]] = {True: [], False: []}  # by whether the difference is large
    for document in documents:
        shown = fields(document.prompt)
        if "ANSWER A" not in shown:
            continue
        request = request_asked(shown["MESSAGE"])
        points = 10 * (
            helpfulness(request, shown["ANSWER A"]) - helpfulness(request, shown["ANSWER B"])
        )
        if abs(points) > 0.1:
            label = read_label(document.response, "f00d")
            agree[abs(points) > 3].append(label * points > 0)
    assert len(agree[True]) > 80 and sum(agree[True]) / len(agree[True]) > 0.95
    assert len(agree[False]) > 20 and sum(agree[False]) / len(agree[False]) < 0.95


def test_only_the_train_split_is_read(documents):
    held_out = {tuple(sorted(numbers)) for numbers in number_sets("held_out")}
    for document in documents:
        shown = fields(document.prompt)
        text = shown.get("QUESTION") or shown.get("MESSAGE")
        text = text or document.prompt.split("Question:\n")[1].split("\n")[0]
        if re.match(r"Using|用 \d", text):
            assert tuple(sorted(map(int, re.findall(r"\d+", text)[:3]))) not in held_out
        elif not re.match(r"Start with|从 \d", text):
            request = request_asked(text)
            assert (request.wording, request.slots) in set(pool(request.family, "train"))


def test_requests_may_come_with_an_answer_that_is_right():
    source = WorldRequests(split="held_out", num_problems=60, references=True)
    for problem, request in zip(source.problems(), source.requests(), strict=True):
        assert problem.answer == reference_answer(request)
        assert is_right(request, problem.answer), (problem.question, problem.answer)
    assert {p.answer for p in WorldRequests(num_problems=5).problems()} == {""}


def test_labels_by_points():
    assert [label_of(p) for p in (1.5, 1.4, 0.5, 0.4, -0.5, -0.6, -1.5, -1.6)] == [
        "A>>B", "A>B", "A>B", "A=B", "A=B", "B>A", "B>A", "B>>A",
    ]  # fmt: skip
