"""Refiners: by rule, and by a model behind a real server or in this process."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from http_server import HTTPServer, Received
from transformers import AutoTokenizer

from r1lit.batches import Problem
from r1lit.curation import Context, EngineRefiner, RuleRefiner, ToR1Template
from r1lit.curation.refine import CUT, NO_PARTS, read_reply
from r1lit.endpoint import ChatReply, Endpoint
from r1lit.policy import ModelSource, load_policy, load_tokenizer
from r1lit.rollout import InProcessEngine, ModelSpec, Sampling, ServerEngine

PROBLEM = Problem(uid="p", question="What is 3 + 4?", answer="7", source="s")
ZH = Problem(uid="z", question="三加四?", answer="7", source="s", meta={"language": "zh"})


def made(refiner: Any, response: str, problem: Problem = PROBLEM) -> str | None:
    return refiner.refine([problem], [response])[0].text


def test_zeros_form_becomes_r1s():
    zero = "<think> 3 + 4 is\n7 </think> <answer> 7 </answer>"
    assert made(ToR1Template(), zero) == (
        "<think> 3 + 4 is\n7 </think> The answer is <answer> 7 </answer>."
    )
    wording = ToR1Template("It is {answer}.", {"zh": "答案是 {answer}。"})
    assert made(wording, zero) == "<think> 3 + 4 is\n7 </think> It is 7."
    assert made(wording, zero, ZH) == "<think> 3 + 4 is\n7 </think> 答案是 7。"


def test_a_chain_without_tags_is_thinking_throughout():
    assert made(ToR1Template("It is {answer}."), r"3 + 4 gives \boxed{7}") == (
        r"<think> 3 + 4 gives \boxed{7} </think> It is 7."
    )
    assert made(ToR1Template("It is {answer}."), "So <answer> 7 </answer>.") == (
        "<think> So 7 . </think> It is 7."
    )
    assert made(ToR1Template("It is {answer}."), "<think> </think> <answer>7</answer>") == (
        "<think>  </think> It is 7."
    )


def test_without_a_final_answer_there_is_no_summary():
    for response in ("<think> 7 </think> seven", "<think> <answer> 7 </answer>", ""):
        refined = ToR1Template().refine([PROBLEM], [response])[0]
        assert refined.text is None and refined.why == "no final answer to put into the summary"
    with pytest.raises(ValueError, match=r"summary: 'It is\.' does not contain"):
        ToR1Template("It is.")


def test_a_rule_is_any_callable():
    def shout(problem: Problem, response: str, mark: str = "!") -> str | None:
        return None if problem.uid == "z" else response + mark

    rule = RuleRefiner(shout, options={"mark": "?"})
    assert made(rule, "a") == "a?" and made(rule, "a", ZH) is None
    with pytest.raises(ValueError, match="returned int for problem 'p'"):
        made(RuleRefiner(lambda problem, response: 3), "a")  # type: ignore[arg-type,return-value]
    for path in ("absent.rule", "os.path.absent", "os.sep", "plain"):
        with pytest.raises(ValueError, match="rule: "):
            RuleRefiner(path)


# by a model

GOOD = "<reasoning> I add. </reasoning>\n<summary> <answer> 7 </answer> </summary>"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (GOOD, ""),
        (f"<think> hm <summary> </think> {GOOD}", ""),
        (f"Sure! {GOOD}", NO_PARTS),
        (f"{GOOD} {GOOD}", NO_PARTS),
        ("<reasoning> I add. </reasoning>", NO_PARTS),
        ("<reasoning>  </reasoning><summary> 7 </summary>", NO_PARTS),
        (f"<think> {GOOD}", NO_PARTS),
    ],
)
def test_a_reply_is_read_strictly(text, why):
    refined = read_reply(ChatReply(text=text, completion_tokens=3, finished=True))
    assert refined.why == why and (refined.text is None) == bool(why)
    assert read_reply(ChatReply(text=text, completion_tokens=3, finished=False)).why == CUT
    if not why:
        assert refined.text == "<think> I add. </think> <answer> 7 </answer>"


class RefiningServer(HTTPServer):
    """Completes well, but badly at first what holds "odd", and always what holds "never"."""

    def __init__(self) -> None:
        self.alive = True
        super().__init__(self._answer)

    def _answer(self, request: Received) -> Any:
        if request.method == "GET":
            return 404, {}
        if not self.alive:
            return 400, {}
        prompt = request.body["prompt"]
        first = self.prompts.count(prompt) == 1
        bad = "never" in prompt or ("odd" in prompt and first)
        return {"choices": [{"text": "I will not." if bad else GOOD, "finish_reason": "stop"}]}

    @property
    def prompts(self) -> list[str]:
        return [body["prompt"] for body in self.bodies]


@pytest.fixture
def server():
    running = RefiningServer()
    yield running
    running.close()


@pytest.fixture
def spec(policy) -> ModelSpec:
    return ModelSpec(name=str(policy), tokenizer=load_tokenizer(str(policy)))


def by_server(server: RefiningServer, **settings: Any) -> EngineRefiner:
    return EngineRefiner(
        engine=ServerEngine(Endpoint(url=server.base_url, max_retries=0), model="m"),
        sampling=Sampling(max_tokens=16),
        instruction="Rewrite {response} of {question} in {language}",
        template="plain",
        attempts=2,
        **settings,
    )


def test_a_server_refines_and_is_asked_again_and_never_twice_the_same(server, spec, tmp_path):
    context = Context(seed=0, folder=tmp_path, model=spec)
    problems = [PROBLEM, PROBLEM, ZH, PROBLEM, PROBLEM]
    responses = ["7 odd", "7", "7 and {question}", "7 never", "7"]

    def refine() -> list[str]:
        refiner = by_server(server)
        refiner.begin(context)
        return [r.text or r.why for r in refiner.refine(problems, responses)]

    good = "<think> I add. </think> <answer> 7 </answer>"
    assert refine() == [good, good, good, NO_PARTS, good]
    assert len(server.prompts) == 4 + 2  # two were asked about once more; equal ones once
    # braces in a response are not filled in
    assert any("7 and {question} of" in p for p in server.prompts)
    assert refine() == [good, good, good, NO_PARTS, good]
    assert len(server.prompts) == 6
    with closing(sqlite3.connect(tmp_path / "refined_replies.sqlite")) as cache, cache:
        cache.execute("DELETE FROM reply WHERE rowid = (SELECT MAX(rowid) FROM reply)")
    assert refine()[0] == good and len(server.prompts) == 7


def test_what_was_replied_before_a_failure_is_kept(server, spec, tmp_path):
    refiner = by_server(server)
    refiner.begin(Context(seed=0, folder=tmp_path, model=spec))
    refiner.refine([PROBLEM], ["7"])
    server.alive = False
    with pytest.raises(ValueError, match=r"endpoint\.url: .* refused"):
        refiner.refine([PROBLEM, ZH], ["7", "8"])
    server.alive = True
    before = len(server.prompts)
    again = by_server(server)
    again.begin(Context(seed=0, folder=tmp_path, model=spec))
    assert all(r.text for r in again.refine([PROBLEM, ZH], ["7", "8"]))
    assert len(server.prompts) == before + 1


def test_the_policy_itself_refines_in_this_process(policy, tmp_path, monkeypatch):
    spec = ModelSpec(
        name=str(policy),
        tokenizer=AutoTokenizer.from_pretrained(policy),
        policy=load_policy(ModelSource(str(policy), dtype="float32")).eval(),
    )

    def refine() -> list[str]:
        refiner = EngineRefiner(
            engine=InProcessEngine(compile=False),
            sampling=Sampling(max_tokens=4),
            instruction="{question} {response}",
            template="plain",
            attempts=2,
        )
        refiner.begin(Context(seed=0, folder=tmp_path, model=spec))
        return [r.why for r in refiner.refine([PROBLEM, ZH], ["7", "8 " * 300])]

    first = refine()
    assert first[0] in (CUT, NO_PARTS)  # a random policy writes no two parts
    assert "exceed the 252 that fit" in first[1]
    with closing(sqlite3.connect(tmp_path / "refined_replies.sqlite")) as cache:
        assert cache.execute("SELECT COUNT(*) FROM reply").fetchone() == (2,)

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("something is drawn")

    monkeypatch.setattr(InProcessEngine, "stream", refuse)
    assert refine() == first


def test_settings_are_checked(spec, tmp_path):
    with pytest.raises(ValueError, match=r"does not contain \{response\}"):
        EngineRefiner(instruction="{question}")
    with pytest.raises(ValueError, match="attempts: 0"):
        EngineRefiner(attempts=0)
    with pytest.raises(ValueError, match="policy: the responses came from a server"):
        EngineRefiner().begin(Context(seed=0, folder=tmp_path, model=spec))
    bad = tmp_path / "cache.jsonl"
    bad.write_text('{"key": 1}\n')
    with pytest.raises(ValueError, match=r"cache: .*cache\.jsonl is not a cache of replies"):
        EngineRefiner(cache=str(bad)).begin(Context(seed=0, folder=Path(), model=spec))
