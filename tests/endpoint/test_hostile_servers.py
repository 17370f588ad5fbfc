"""Every user of the HTTP client against a real server with one malformed reply among good ones.

The malformed reply costs its own item, with a reason, or nothing; the other items are as without
it, and an API key that the server echoes reaches neither messages nor files.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from http_server import HTTPServer, Received
from tiny_evaluation import evaluation_config, lines, report
from tiny_models import VOCABULARY, make_policy, make_tokenizer

from r1lit.batches import Problem
from r1lit.cli import main
from r1lit.curation import Context, EngineRefiner
from r1lit.endpoint import Endpoint, ServedModel
from r1lit.policy import Responses, ServerTeacher
from r1lit.rollout import ModelSpec, Request, Sampling, ServerEngine
from r1lit.verifiers import GenerativePreference, GenerativeVerifier

KEY = "sk-0123456789abcdef"
ODD = "odd one"
ODD_ID = 9
REFINED = "<reasoning> So. I add. </reasoning> <summary> 7 </summary>"


def server_of(fault: Callable[[dict[str, Any], str], tuple[int, str]]) -> HTTPServer:
    """Speaks chat, completions and prompt log-probs; ``fault`` makes the reply to the odd item.

    A fault takes the good reply and the API key that came, and returns a status and a body.
    """

    def answer(request: Received) -> Any:
        if request.method == "GET":
            return 404, {}
        reply, is_odd = good_reply(request.body)
        key = request.headers.get("Authorization", "Bearer none").split()[-1]
        return fault(reply, key) if is_odd else reply

    return HTTPServer(answer)


def good_reply(body: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The good reply to a request, and whether it is about the odd item."""
    usage = {"prompt_tokens": 5, "completion_tokens": 7}
    if "messages" in body:
        prompt = body["messages"][-1]["content"]
        content = "LABEL: A>B" if "LABEL" in prompt else "VERDICT: CORRECT"
        message = {"role": "assistant", "content": f"So.\n{content}"}
        return {"choices": [{"message": message}], "usage": usage}, ODD in prompt
    prompt = body["prompt"]
    if "prompt_logprobs" in body:
        tops = [{str(t): {"logprob": -1.0}, "60": {"logprob": -2.0}} for t in prompt[1:]]
        choice = {"text": "a", "prompt_logprobs": [None, *tops]}
        return {"choices": [choice], "usage": usage}, prompt[0] == ODD_ID
    return {"choices": [{"text": REFINED, "finish_reason": "stop"}], "usage": usage}, ODD in prompt


# what may be wrong


def with_usage(usage: Any) -> Any:
    return lambda reply, key: (200, json.dumps({**reply, "usage": usage}))


def with_choices(change: Callable[[list[Any]], Any]) -> Any:
    return lambda reply, key: (200, json.dumps({**reply, "choices": change(reply["choices"])}))


def with_text(change: Callable[[str, str], str]) -> Any:
    """Change the text wherever a reply holds one."""

    def fault(reply: dict[str, Any], key: str) -> tuple[int, str]:
        (choice,) = reply["choices"]
        holder, name = (choice["message"], "content") if "message" in choice else (choice, "text")
        holder[name] = change(holder[name], key)
        return 200, json.dumps(reply)

    return fault


def body(text: str, status: int = 200) -> Any:
    return lambda reply, key: (status, text.replace("KEY", key))


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" for c in text)


HARMLESS = {
    "usage as text": with_usage("many"),
    "usage as a list": with_usage([5, 7]),
    "usage as a number": with_usage(7),
    "a count of 400 digits": with_usage({"prompt_tokens": 10**400, "completion_tokens": 10**400}),
    "counts as text": with_usage({"prompt_tokens": "5", "completion_tokens": "7"}),
    "negative counts": with_usage({"prompt_tokens": -5, "completion_tokens": -7}),
    "counts that are true": with_usage({"prompt_tokens": True, "completion_tokens": True}),
    "no usage": with_usage(None),
    "a lone surrogate": with_text(lambda text, key: text.replace("So.", "So \ud800 \udfff.")),
    "the key in the text": with_text(lambda text, key: text.replace("So.", f"So {key}.")),
    "the key beside the text": lambda reply, key: (200, json.dumps({**reply, key: key})),
}
COSTLY = {
    "several choices": with_choices(lambda choices: choices * 2),
    "no choice": with_choices(lambda choices: []),
    "choices as an object": with_choices(lambda choices: choices[0]),
    "choices as text": with_choices(lambda choices: "a"),
    "a choice that is none": with_choices(lambda choices: [None]),
    "a choice that is a list": with_choices(lambda choices: [[1]]),
    "an empty choice": with_choices(lambda choices: [{}]),
    "no JSON": body("<html>busy</html>"),
    "no object": body("[7]"),
    "an empty object": body("{}"),
    "nothing": body(""),
    "deep nesting": body("[" * 100_000),
    "deep nesting that is read": body('{"choices": ' + "[" * 900 + "]" * 900 + "}"),
    "a number without end": body("9" * 10_000),
    "no encoding": body("\udc80"),
    "the key in JSON": body('{"error": "bad key KEY"}'),
    "the escaped key in JSON": body(f'{{"error": "bad key {escaped(KEY)}"}}'),
    "the key in no JSON": body("bad key KEY"),
    "the key in a list of choices": body('{"choices": ["KEY", "KEY"]}'),
}
NO_TEXT = {
    f"the text is {name}": with_text(lambda text, key, value=value: value)  # type: ignore[misc]
    for name, value in (("null", None), ("a number", 7), ("a list", ["a"]), ("an object", {}))
}


def with_tops(change: Callable[[list[Any]], Any]) -> Any:
    return with_choices(
        lambda choices: [{**choices[0], "prompt_logprobs": change(choices[0]["prompt_logprobs"])}]
    )


def with_last(entry: dict[str, Any], keep: bool = True) -> Any:
    """Change what is given for the last token."""
    return with_tops(lambda tops: [*tops[:-1], {**(tops[-1] if keep else {}), **entry}])


def own(logp: Any) -> Any:
    """A log-prob of the last token itself."""
    return with_tops(
        lambda tops: [
            *tops[:-1],
            {token: {"logprob": logp} if token != "60" else top for token, top in tops[-1].items()},
        ]
    )


NO_LOG_PROBS = {
    "a positive log-prob": own(0.5),
    "NaN": own(float("nan")),
    "infinity": own(float("inf")),
    "minus infinity": own(float("-inf")),
    "a log-prob of 400 digits": own(-(10**400)),
    "a log-prob as text": own("-1.0"),
    "a log-prob that is false": own(False),
    "no log-prob": own(None),
    "NaN of another token": with_last({"61": {"logprob": float("nan")}}),
    "a positive log-prob of another token": with_last({"61": {"logprob": 3}}),
    "probabilities above 1": with_last({"61": {"logprob": -0.01}, "62": {"logprob": -0.01}}),
    "a foreign token": with_last({str(VOCABULARY): {"logprob": -3.0}}),
    "a token of 30 digits": with_last({"9" * 30: {"logprob": -3.0}}),
    "a token of 5,000 digits": with_last({"9" * 5000: {"logprob": -3.0}}),
    "a negative token": with_last({"-1": {"logprob": -3.0}}),
    "a token that is a word": with_last({"cat": {"logprob": -3.0}}),
    "another token alone": with_last({}, keep=False),
    "a position too few": with_tops(lambda tops: tops[:-1]),
    "a position too many": with_tops(lambda tops: [*tops, tops[-1]]),
    "positions as an object": with_tops(lambda tops: {"0": tops}),
    "a position as a list": with_tops(lambda tops: [*tops[:-1], [-1.0]]),
    "a position as a number": with_tops(lambda tops: [*tops[:-1], -1.0]),
}


# who asks: each returns what became of three items (None: lost) and the reason of the middle one

User = Callable[[str, Path], tuple[list[Any], str]]


def at(base_url: str) -> Endpoint:
    return Endpoint(url=base_url, timeout_s=20.0, max_retries=0)


def chat(base_url: str) -> ServedModel:
    return ServedModel("m", at(base_url))


def judge(base_url: str, folder: Path) -> tuple[list[Any], str]:
    verifier = GenerativeVerifier(
        chat(base_url), cache=str(folder / "cache.sqlite"), log=str(folder / "log"), num_threads=3
    )
    problem = Problem(uid="p", question="Q?", answer="7", source="s")
    verdicts = verifier.verify_batch(["first", ODD, "last"], [problem] * 3)
    return [v.status if v.status != "error" else None for v in verdicts], verdicts[1].reason


def preference(base_url: str, folder: Path) -> tuple[list[Any], str]:
    compare = GenerativePreference(
        chat(base_url), cache=str(folder / "cache.sqlite"), log=str(folder / "log")
    )
    differences = [compare("Q?", first, "b") for first in ("first", ODD, "last")]
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    return differences, lines[1]["error"] or ""


def model_spec(folder: Path) -> ModelSpec:
    make_tokenizer().save_pretrained(folder / "model")
    make_policy("llama").config.save_pretrained(folder / "model")
    return ModelSpec(name=str(folder / "model"), tokenizer=make_tokenizer())


def engine(base_url: str, folder: Path) -> tuple[list[Any], str]:
    model = model_spec(folder)
    requests = [
        Request(
            prompt=tuple(model.tokenizer(text)["input_ids"]),
            samples=(n,),
            sampling=Sampling(),
            seed=0,
        )
        for n, text in enumerate(["first", ODD, "last"])
    ]
    server = ServerEngine(at(base_url))
    server.bind(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        completions = server.generate(requests)
    kept = [one.text if one.finished else None for one in completions]
    return kept, "".join(str(warning.message) for warning in caught)


def refiner(base_url: str, folder: Path) -> tuple[list[Any], str]:
    asks = EngineRefiner(
        engine=ServerEngine(at(base_url)),
        sampling=Sampling(max_tokens=16),
        instruction="{response} of {question}",
        template="plain",
        attempts=1,
    )
    asks.begin(Context(seed=0, folder=folder, model=model_spec(folder)))
    problem = Problem(uid="p", question="Q?", answer="7", source="s")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        refined = asks.refine([problem] * 3, ["first", ODD, "last"])
    told = "".join(str(warning.message) for warning in caught)
    return [one.text for one in refined], refined[1].why and refined[1].why + told


def teacher(base_url: str, folder: Path) -> tuple[list[Any], str]:
    asks = ServerTeacher("m", model_spec(folder).name, at(base_url), top_k=2)
    response_BT = torch.tensor([[40, 41, 42]]).expand(3, -1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = asks.score_responses(
            Responses(
                prompts=[[5, 6], [ODD_ID, 6], [7, 6]],
                response_BT=response_BT,
                mask_BT=response_BT > 0,
            )
        )
    known_BT = torch.ones(3, 3).bool() if scores.known_K is None else scores.known_K.view(3, 3)
    assert (known_BT.all(1) == known_BT.any(1)).all() and scores.logp_KC.isfinite().all()
    own_BT = scores.logp_KC[:, 0].view(3, 3)
    kept = [row_T.tolist() if k else None for row_T, k in zip(own_BT, known_BT[:, 0], strict=True)]
    return kept, "".join(str(warning.message) for warning in caught)


USERS: dict[str, User] = {
    "judge": judge, "preference": preference, "engine": engine, "refiner": refiner,
    "teacher": teacher,
}  # fmt: skip
CASES = [
    pytest.param(user, fault, costly, id=f"{name}: {what}")
    for name, user in USERS.items()
    for faults, costly in (
        (HARMLESS, False),
        (COSTLY, True),
        (NO_LOG_PROBS if name == "teacher" else NO_TEXT, True),
    )
    for what, fault in faults.items()
    if name != "teacher" or "text" not in what or costly
]


@pytest.fixture
def serve() -> Iterator[Callable[..., HTTPServer]]:
    servers: list[HTTPServer] = []

    def start(fault: Any) -> HTTPServer:
        servers.append(server_of(fault))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.mark.parametrize(("user", "fault", "costly"), CASES)
def test_a_malformed_reply_costs_one_item_at_most(
    serve, monkeypatch, tmp_path: Path, capfd, user: User, fault: Any, costly: bool
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    items, reason = user(serve(fault).base_url, tmp_path)
    assert items[0] is not None and items[2] == items[0]
    if isinstance(items[1], str):
        items[1] = items[1].replace("So \ufffd \ufffd.", "So.").replace("So [API key].", "So.")
    assert items[1] == (None if costly else items[0])
    assert ("gave no answer in 1 tries" in reason) == costly
    reason.encode()  # it can be written
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    shown = "".join(capfd.readouterr())
    assert KEY not in repr(items) + reason + shown and KEY.encode() not in written


@pytest.mark.long
def test_an_evaluation_ends_with_a_report_whatever_one_reply_is(
    serve, policy: Path, tmp_path: Path
):
    """Of four problems with four samples each, the replies to one are garbage."""
    config = evaluation_config(tmp_path, policy)
    path = tmp_path / "sums.jsonl"
    path.write_text(path.read_text().replace("What is 3", f"{ODD}: what is 3"))
    with pytest.warns(UserWarning, match="one response is left empty: .* not JSON"):
        main(
            ["test", "-c", str(config), "--model.engine=r1lit.rollout.ServerEngine",
             f"--model.engine.endpoint.url={serve(body('<html>')).base_url}",
             "--model.engine.endpoint.max_retries=0"]
        )  # fmt: skip
    records = lines(tmp_path / "run")
    assert len(records) == 16 and report(tmp_path / "run")
    lost = [r for r in records if not r["response"]]
    assert len(lost) == 4 and all(ODD in r["question"] and not r["finished"] for r in lost)
