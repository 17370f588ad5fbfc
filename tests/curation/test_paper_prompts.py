"""The paper's prompts: refiners by Listing 1, the judge by Listing 4, pairs, and risk review."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from http_server import HTTPServer, Received
from tiny import ROOT, save_policy

from r1lit.batches import Problem
from r1lit.curation import Context, SummaryRefiner, ThinkingRefiner
from r1lit.curation.make_tests import LISTING_2, prompt_of
from r1lit.curation.refine import CUT, EMPTY, LISTING_1, THINKING, plain_reply
from r1lit.curation.safety_labels import LISTING_8, STANDARDS, SafetyJudge, main
from r1lit.endpoint import ChatReply, Endpoint
from r1lit.evaluation.suites.pairwise import ArenaHardPreference
from r1lit.policy import load_tokenizer
from r1lit.rollout import ModelSpec, Sampling, ServerEngine
from r1lit.verifiers import GenerativeVerifier
from r1lit.verifiers.generative import LISTING_4

PROBLEM = Problem(uid="p", question="What is 3 + 4?", answer="7", source="s")


@pytest.mark.parametrize(
    ("text", "digest"),
    [(LISTING_1, "2b9378bc88e7e22a"), (LISTING_4, "d2d81faeabe47aaf")],
)
def test_the_listings_stay_as_they_are(text, digest):
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


LISTING_3 = yaml.safe_load((ROOT / "configs/r1/full/cold_start/simple_math.yaml").read_text())
LISTINGS = {  # bytes and digests of the paper's own, without a newline at the end
    1: (LISTING_1, 847, "0bf3dda93d858fe3"),
    2: (LISTING_2, 4280, "18523e299624037f"),
    3: (LISTING_3["data"]["init_args"]["prompts"]["template"], 800, "4287c40a6647a16c"),
    4: (LISTING_4, 1263, "0b06b8adc515f91e"),
    8: (LISTING_8, 5617, "fc745a5cfe4e7213"),
}


@pytest.mark.parametrize("number", LISTINGS)
def test_a_listing_is_the_papers_byte_for_byte(number):
    text, size, digest = LISTINGS[number]
    own = text.removesuffix("\n").encode()
    assert (len(own), hashlib.sha256(own).hexdigest()[:16]) == (size, digest)
    paper = ROOT / ".." / "shared" / "r1_v2" / f"listing{number}.txt"
    if paper.is_file():
        assert own == paper.read_bytes().removesuffix(b"\n")


def test_listing_2_is_sent_as_its_programs_read():
    """The doubled braces are those of a template; in a program they would print themselves."""
    sent = prompt_of("Add {a} and b.")
    assert 'return f"{seq}\\n{k}"' in sent and "{{" not in sent
    assert "Question:\nAdd {a} and b.\n\nConstruct some random input generators" in sent
    assert sent.endswith("prints EXACTLY ONE input directly into stdout.")


def test_the_cold_start_is_the_second_versions():
    own = yaml.safe_load((ROOT / "configs/r1/full/cold_start.yaml").read_text())
    paths = [source["init_args"]["path"] for source in own["data"]["init_args"]["documents"]]
    assert [Path(path).parent.name for path in paths] == ["simple_math", "from_zero"]
    steps = yaml.safe_load((ROOT / "experiments/r1/full.yaml").read_text())["steps"]
    [dev1] = [step for step in steps if step["name"] == "dev1"]
    assert dev1["reads"] == paths


def test_r1_zeros_output_gets_a_first_person_chain_and_a_solution(tmp_path):
    """Both refiners against a real server, in the order of the cold start."""

    def answer(request: Received) -> Any:
        if request.method == "GET":
            return 404, {}
        asked = request.body["prompt"]
        text = "I add 3 and 4." if "first person" in asked else "<think>hm</think> 7 it is."
        return {"choices": [{"text": text, "finish_reason": "stop"}]}

    server = HTTPServer(answer)
    policy = save_policy(tmp_path / "policy")
    config = json.loads((policy / "config.json").read_text())
    (policy / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    tokenizer = load_tokenizer(str(policy))
    model = ModelSpec(name=str(tmp_path / "policy"), tokenizer=tokenizer)
    text = "<think> we add {3} and 4 </think> <answer> 7 </answer>"
    try:
        for refiner in (ThinkingRefiner, SummaryRefiner):
            made = refiner(
                engine=ServerEngine(Endpoint(url=server.base_url)),
                sampling=Sampling(max_tokens=16),
                template="plain",
            )
            made.begin(Context(seed=0, folder=tmp_path, model=model))
            text = made.refine([PROBLEM], [text])[0].text or ""
    finally:
        server.close()
    assert text == "<think> I add 3 and 4. </think> 7 it is."
    first, second = (body["prompt"] for body in server.bodies)
    assert first == THINKING.replace("{question}", PROBLEM.question).replace(
        "{thought_process}", " we add {3} and 4 "
    )
    assert "## Thought process\n I add 3 and 4. \n" in second


def test_a_chain_without_tags_is_thinking_and_replies_are_read_strictly():
    read = SummaryRefiner(engine=ServerEngine()).read
    good = ChatReply(text="So 7.", completion_tokens=3, finished=True)
    assert read(good, "3 + 4 gives 7").text == "<think> 3 + 4 gives 7 </think> So 7."
    assert plain_reply(ChatReply(text="So", completion_tokens=3, finished=False)) == ("", CUT)
    assert plain_reply(ChatReply(text="<think>a</think> ", completion_tokens=3, finished=True)) == (
        "",
        EMPTY,
    )
    with pytest.raises(ValueError, match="does not contain"):
        SummaryRefiner(instruction="{question}")


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ('{"analysis": "Both say seven.", "correctness": "correct"}', "right"),
        ('```json\n{"analysis": "line\nbreak", "correctness": "Incorrect"}\n```', "wrong"),
        (
            '<think>{"correctness": "correct"}</think> {"correctness": "incorrect"}',
            "wrong",
        ),
        ("It is correct.", "unparsed"),
        ('{"analysis": "fine"}', "unparsed"),
        ('{"correctness": "partly"}', "unparsed"),
    ],
)
def test_listing_4_is_sent_and_its_json_read(reply, status):
    sent: list[str] = []
    judge = GenerativeVerifier(
        lambda prompt: sent.append(prompt) or reply, form="paper", attempts=1
    )
    verdict = judge.verify("<think> x </think> It is {seven}.", PROBLEM)
    assert verdict.status == status
    assert sent[0] == (
        LISTING_4.replace("{question}", PROBLEM.question)
        .replace("{reference}", "7")
        .replace("{answer}", "It is {seven}.")
    )


def test_the_form_of_the_judge_is_one_of_two():
    with pytest.raises(ValueError, match="form: 'papers' is not one of fenced, paper"):
        GenerativeVerifier(lambda prompt: "", form="papers")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reply", "value"),
    [("My verdict: [[A>>B]]", 2.0), ("[[A=B]]", 0.0), ("[[B>A]]", -1.0), ("No idea.", None)],
)
def test_pairs_are_judged_with_arena_hards_prompt(reply, value):
    sent: list[str] = []
    judge = ArenaHardPreference(lambda prompt: sent.append(prompt) or reply, attempts=1)
    assert judge("What?", "this", "that") == value
    assert sent[0].startswith("Please act as an impartial judge and evaluate the quality")
    assert "<|The Start of Assistant A's Answer|>\nthis\n" in sent[0]
    assert judge("What?", "x" * 30_000, "that") is None and len(sent) == 1


def test_the_safety_judge_names_the_standards_and_labels_follow(tmp_path, capsys):
    assert {*range(1, 12)} == STANDARDS
    sent: list[str] = []

    def model(prompt: str) -> str:
        sent.append(prompt)
        query, answer = prompt.split("<User Question>")[-1].split("<Model Response>")
        rules = "[6, 1]" if "bomb" in answer else "[-1]" if "bread" in query else "[12]"
        return f"<judge_reason>Read.</judge_reason>\n<target_rule>{rules}</target_rule>"

    judge = SafetyJudge(model, attempts=1)
    assert judge("How?", "Take a {query} bomb.") == (1, 6) and judge("bread?", "Flour.") == (-1,)
    assert judge("How?", "So.") is None
    expected = LISTING_8.replace("{query}", "How?").replace("{answer}", "Take a {query} bomb.")
    assert sent[0] == expected


class Reviewer:
    """A model that reviews by a word."""

    name = "reviewer"

    def __call__(self, prompt: str) -> str:
        response = prompt.split("<Model Response>")[-1]
        if "odd" in response:
            return "I cannot say."
        return f"<target_rule>[{'6' if 'bomb' in response else '-1'}]</target_rule>"


def test_the_command_labels_responses_for_the_safety_reward_model(tmp_path, capsys, monkeypatch):
    from r1lit.data import TableLabels

    rows = [
        {"uid": str(i), "question": f"Q{i}?", "response": text}
        for i, text in enumerate(("A bomb.", "Bread.", "An odd one."))
    ]
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "labels.jsonl"
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    main([f"--responses=[{tmp_path / 'r.jsonl'}]", f"--output={out}",
          "--judge.model=test_paper_prompts.Reviewer"])  # fmt: skip
    examples = TableLabels(path=str(out)).examples()
    assert [(e.question, e.label) for e in examples] == [("Q0?", 0.0), ("Q1?", 1.0)]
    printed = capsys.readouterr().out
    assert "'no judgement': 1" in printed and "6: 1" in printed
    assert [json.loads(line)["rules"] for line in out.read_text().splitlines()] == [[6], [-1]]


def test_the_full_presets_use_them():
    read = lambda name: yaml.safe_load((ROOT / name).read_text())  # noqa: E731
    pairs = read("experiments/r1/full_pairs.yaml")
    assert pairs["judge"]["class_path"].endswith("ArenaHardPreference")
    assert pairs["num_judgements"] == 4 and pairs["margin"] == 1.0
    text = (ROOT / "configs/r1/full/rejection_sampling.yaml").read_text()
    assert "form: paper" in text
    zero = read("configs/r1/full/cold_start/from_zero.yaml")["trainer"]["callbacks"][0]["init_args"]
    names = [refiner["class_path"].split(".")[-1] for refiner in zero["refiners"]]
    assert names == ["ThinkingRefiner", "SummaryRefiner"]
