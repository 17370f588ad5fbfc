"""The server engine over HTTP: what it sends, how it retries, how it gives up."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from http_server import CompletionServer
from tiny import ROOT, save_policy
from tiny_evaluation import evaluation_config, lines, report, texts
from tokenizer_kinds import chatml

from r1lit.cli import main
from r1lit.data.packing import encode_prompts
from r1lit.endpoint import Client, Endpoint
from r1lit.endpoint.client import SetupError
from r1lit.policy import load_policy, load_tokenizer
from r1lit.rollout import (
    Completion,
    InProcessEngine,
    ModelSpec,
    Request,
    Sampling,
    ServerEngine,
    texts_of,
)
from r1lit.rollout.server_engine import as_texts
from r1lit.text.special_tokens import literal

SAMPLING = Sampling(temperature=0.6, top_p=0.95, max_tokens=16, stop=("\n\n",))


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(str(ROOT / "models" / "mini"))


def engine_of(server, concurrency: int = 64, **options: Any) -> ServerEngine:
    """The engine of a server; endpoints' options are told from the engine's by name."""
    names = {field.name for field in fields(Endpoint)}
    where = {key: options.pop(key) for key in list(options) if key in names}
    endpoint = Endpoint(url=server.base_url, **where)
    return ServerEngine(endpoint, concurrency=concurrency, **options)


def requests(
    tokenizer, num_prompts: int = 3, group_size: int = 2, sampling=SAMPLING, seed=0
) -> list[Request]:
    prompts = encode_prompts(tokenizer, [f"What is {i} + {i}" for i in range(num_prompts)])
    return [
        Request(
            prompt=prompt,
            samples=tuple(100 * p + g for g in range(group_size)),
            sampling=sampling,
            seed=seed,
        )
        for p, prompt in enumerate(prompts)
    ]


def draw(engine, tokenizer, asked, policy=None) -> list[Completion]:
    told: list[int] = []
    engine.bind(ModelSpec(name="tiny", tokenizer=tokenizer, policy=policy))
    try:
        completions = engine.generate(asked, lambda indices, _: told.extend(indices))
    except ValueError as error:
        error.add_note(str(len(told)))
        raise
    assert sorted(told) == list(range(len(completions))), "each once"
    return completions


def test_each_sample_is_asked_for_once_with_a_seed_of_its_own(serve, tokenizer):
    server, asked = serve(), requests(tokenizer)
    drawn = draw(engine_of(server), tokenizer, asked)
    assert len(drawn) == len(server.bodies) == 6
    assert len({body["seed"] for body in server.bodies}) == 6
    assert {body["prompt"] for body in server.bodies} == {f"What is {i} + {i}" for i in range(3)}
    for body in server.bodies:
        assert (body["model"], body["max_tokens"]) == ("tiny", 16)
        assert (body["temperature"], body["top_p"], body["stop"]) == (0.6, 0.95, ["\n\n"])
        assert "top_k" not in body and "return_token_ids" not in body
    for one in drawn:
        assert one.num_tokens == 7 and one.token_ids is None and one.version is None
        assert one.finished == bool(int(one.text.split()[-1]) % 2)
    assert draw(engine_of(server), tokenizer, asked) == drawn
    assert draw(engine_of(server), tokenizer, requests(tokenizer, seed=1)) != drawn
    alone = draw(engine_of(server), tokenizer, asked[2:])
    assert alone == drawn[4:]  # whatever else is asked


def test_vllm_gets_token_ids_and_its_own_defaults_undone(serve, tokenizer):
    server, asked = serve(is_vllm=True), requests(tokenizer)
    draw(engine_of(server, extra={"top_k": 20}), tokenizer, asked)
    assert {tuple(b["prompt"]) for b in server.bodies} == {request.prompt for request in asked}
    for body in server.bodies:
        assert body["repetition_penalty"] == 1.0 and body["include_stop_str_in_output"] is True
        assert body["top_k"] == 20  # extra has the last word


def test_vllm_returns_token_ids_and_log_probs_where_they_are_wanted(serve, tokenizer):
    server, asked = serve(is_vllm=True), requests(tokenizer)
    for one in draw(engine_of(server), tokenizer, asked):
        assert one.token_ids.tolist()[:2] == [10, 11] and one.num_tokens == 3
        assert one.logps is None
    assert not any("logprobs" in body for body in server.bodies)
    for one in draw(engine_of(server, log_probs=True), tokenizer, asked):
        assert one.logps.tolist() == [-0.5, 0.0, -2.0] and one.logps.dtype == torch.float32
    spec = ModelSpec(name="m", tokenizer=tokenizer)
    for at, log_probs, tokens in ((server, True, True), (server, False, False), (serve(), True, 0)):
        engine = engine_of(at, log_probs=log_probs)
        assert engine.capabilities.tokens == log_probs
        engine.bind(spec)
        assert engine.capabilities.tokens == tokens, "not vLLM"


def choices(reply: dict[str, Any], **change: Any) -> None:
    reply["choices"][0].update(change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(choices=[]), r"choices: \[\] is not a list of one"),
        (lambda r: r.update(choices=r["choices"] * 2), "choices: "),
        (lambda r: choices(r, text=7), "text: "),
        (lambda r: choices(r, token_ids="12"), "token_ids: "),
        (lambda r: choices(r, token_ids=[1, -2, 3]), "token_ids: "),
        (lambda r: choices(r, token_ids=[1, 10**400, 3]), "token_ids: "),
        (lambda r: choices(r, token_ids=[1, 10**6, 3]), "token_ids: "),
        (lambda r: choices(r, logprobs=None), "logprobs: not one for each of 3 tokens"),
        (lambda r: choices(r, logprobs={"token_logprobs": [-1.0]}), "logprobs: not one for each"),
        (lambda r: choices(r, logprobs={"token_logprobs": [-1, 0.5, -1]}), "logprobs: 0.5"),
        (lambda r: choices(r, logprobs={"token_logprobs": [-1, None, -1]}), "logprobs: None"),
        (lambda r: choices(r, logprobs={"token_logprobs": [-1, float("nan"), -1]}), "nan"),
    ],
)
def test_a_malformed_reply_costs_one_response_and_says_why(serve, tokenizer, change, message):
    server = serve(is_vllm=True, change=change)
    engine = engine_of(server, log_probs=True, concurrency=1, max_retries=0)
    with pytest.warns(UserWarning, match=f"one response is left empty: .*{message}"):
        (completion,) = draw(engine, tokenizer, requests(tokenizer, 1, 1))
    assert completion.text == "" and not completion.finished


@pytest.mark.parametrize("usage", ["7", [7], None, {"completion_tokens": "many"}])
def test_tokens_are_counted_here_where_the_server_does_not(serve, tokenizer, usage):
    server = serve(change=lambda reply: reply.update(usage=usage))
    for one in draw(engine_of(server), tokenizer, requests(tokenizer, 1)):
        assert one.num_tokens == len(tokenizer(one.text, add_special_tokens=False)["input_ids"])


def test_a_lone_surrogate_in_a_reply_can_be_written(serve, tokenizer):
    server = serve(change=lambda reply: choices(reply, text="a\ud800b"))
    assert draw(engine_of(server), tokenizer, requests(tokenizer, 1))[0].text == "a\ufffdb"


def test_a_server_that_stumbles_is_asked_again(serve, tokenizer):
    server = serve(faults={1: 503, 2: 429, 3: -1})
    drawn = draw(engine_of(server, backoff_s=0.01), tokenizer, requests(tokenizer))
    assert len(drawn) == 6 and set(server.tries.values()) == {4}


def test_a_dead_server_ends_with_what_it_answered_handed_over(serve, tokenizer):
    server, asked = serve(limit=5), requests(tokenizer, num_prompts=10)
    engine = engine_of(server, concurrency=4, max_retries=2, backoff_s=0.01)
    with pytest.raises(ValueError, match=r"completions gave no answer in 3 tries") as error:
        draw(engine, tokenizer, asked)
    assert error.value.__notes__ == ["5"]
    assert len(server.tries) < len(asked), "no request is begun after the end"


def test_a_refusal_is_not_asked_again(serve, tokenizer):
    server = serve(faults={1: 400})
    with pytest.raises(ValueError, match=r"refused the request, status 400: .*fault 400"):
        draw(engine_of(server, concurrency=1), tokenizer, requests(tokenizer))
    assert sum(server.tries.values()) == 1


def test_no_more_requests_are_under_way_than_allowed(serve, tokenizer):
    server = serve()
    draw(engine_of(server, concurrency=3), tokenizer, requests(tokenizer, 10))
    assert 2 <= server.most_at_once <= 3


def test_what_the_caller_raises_ends_the_drawing(serve, tokenizer):
    def refuse(indices: Any, completions: Any) -> None:
        raise RuntimeError("full")

    server = serve()
    engine = engine_of(server, concurrency=2)
    engine.bind(ModelSpec(name="tiny", tokenizer=tokenizer))
    with pytest.raises(RuntimeError, match="full"):
        engine.stream(requests(tokenizer, 20), refuse)
    assert len(server.bodies) < 20


def test_a_server_that_ignores_the_temperature_is_told_of_once(serve, tokenizer, recwarn):
    asked = requests(tokenizer, num_prompts=6, group_size=3)
    engine = engine_of(serve(greedy=True))
    draw(engine, tokenizer, asked)
    draw(engine, tokenizer, requests(tokenizer, num_prompts=6, group_size=3, seed=1))
    (said,) = [str(warning.message) for warning in recwarn]
    assert "all the same" in said and "temperature is above 0" in said and "do_sample" in said
    assert engine.client.url in said


def test_a_long_evaluation_is_told_before_its_end(serve, tokenizer):
    asked = requests(tokenizer, num_prompts=8, group_size=4)
    engine = engine_of(serve(greedy=True), concurrency=1)
    with pytest.warns(UserWarning, match=r"\(10 repeats of 4 prompts\)"):
        assert len(draw(engine, tokenizer, asked)) == 32


@pytest.mark.parametrize(
    ("options", "group_size", "temperature"),
    [({}, 3, 0.6), ({"greedy": True}, 1, 0.6), ({"greedy": True}, 3, 0.0)],
)
def test_sampling_single_responses_and_greedy_decoding_are_no_cause_to_warn(
    serve, tokenizer, recwarn, options, group_size, temperature
):
    sampling = Sampling(temperature=temperature, max_tokens=16)
    asked = requests(tokenizer, num_prompts=6, group_size=group_size, sampling=sampling)
    draw(engine_of(serve(**options)), tokenizer, asked)
    assert not list(recwarn)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "127.0.0.1:8000"}, "url: '127.0.0.1:8000' is not like http"),
        ({"url": "http://x", "timeout_s": 0.0}, "timeout_s: 0"),
        ({"url": "http://x", "max_retries": -1}, "max_retries: -1"),
        ({"url": "http://x", "backoff_s": -1.0}, "backoff_s: -1"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Endpoint(**options)
    with pytest.raises(ValueError, match="concurrency: 0"):
        ServerEngine(concurrency=0)


def test_nobody_at_the_address_is_said():
    client = Client(Endpoint(url="http://127.0.0.1:9/v1", max_retries=6, backoff_s=60))
    says = r"127\.0\.0\.1:9/v1/models gave no answer, ConnectError: .*; start the server"
    with pytest.raises(SetupError, match=says):  # at once
        client.request("models", dict)


def test_in_process_what_is_asked_together_changes_nothing(tokenizer, tmp_path: Path):
    """The same responses, however many decode together, with missing ones generated alone."""
    policy = load_policy(str(save_policy(tmp_path, seed=3))).eval()
    sampling = Sampling(max_tokens=8, stop=("1", "3"))
    asked = requests(tokenizer, num_prompts=3, group_size=4, sampling=sampling)

    def said(asked: list[Request], **options: Any) -> list[tuple[str, int, str]]:
        completions = draw(InProcessEngine(compile=False, **options), tokenizer, asked, policy)
        texts = texts_of(completions, tokenizer)
        return [
            (text, one.num_tokens, one.finish_reason)
            for text, one in zip(texts, completions, strict=True)
        ]

    everything = said(asked)
    assert len(everything) == 12
    assert {reason for _, _, reason in everything} == {"stop", "length"}
    assert all(length == 8 for _, length, reason in everything if reason == "length")
    assert said(asked, max_rows=3) == everything
    part = [
        replace(request, samples=tuple(request.samples[g] for g in kept))
        for request, kept in zip(asked, [(0, 1, 3), (2,), (1,)], strict=True)
    ]
    assert said(part) == [everything[i] for i in (0, 1, 3, 6, 9)]


@pytest.mark.long
def test_an_evaluation_goes_on_when_its_server_is_back(serve, tmp_path):
    config = evaluation_config(tmp_path, save_policy(tmp_path / "policy", seed=3))

    def command(server: CompletionServer) -> list[str]:
        return [
            "test", "-c", str(config), "--model.engine=r1lit.rollout.ServerEngine",
            f"--model.engine.endpoint.url={server.base_url}", "--model.engine.concurrency=2",
            "--model.engine.endpoint.max_retries=1", "--model.engine.endpoint.backoff_s=0.01",
        ]  # fmt: skip

    dying, back = serve(limit=5), serve()
    with pytest.raises(ValueError, match="gave no answer in 2 tries"):
        main(command(dying))
    run = tmp_path / "run"
    left = (run / "responses.jsonl").read_bytes()
    assert len(lines(run)) == 5 and not (run / "report.json").exists()
    cli = main(command(back))
    assert cli.model.policy is None, "the weights are the server's"
    assert len(back.bodies) == 11 and len(texts(run)) == 16
    assert (run / "responses.jsonl").read_bytes().startswith(left)
    assert report(run)["settings"]["device"] == "server"


def test_a_server_of_chats_is_sent_messages_and_its_thinking_is_kept(serve, tokenizer):
    """Such as DeepSeek's own: what ``r1lit predict`` draws from it is documents of a teacher."""

    def answer(prompt: str, before: int) -> dict[str, Any]:
        message = {"content": "4", "reasoning_content": f" {prompt} "}
        return {"choices": [{"message": message, "finish_reason": "stop"}]}

    server = serve(answer)
    engine = engine_of(server, chat=True, system_prompt="Be brief.", concurrency=1)
    completions = draw(engine, tokenizer, requests(tokenizer, num_prompts=1, group_size=1))
    (body,) = server.bodies
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 0 + 0"},
    ]
    assert "prompt" not in body and body["max_tokens"] == 16
    assert completions[0].text == "<think>\nWhat is 0 + 0\n</think>\n\n4"
    with pytest.raises(ValueError, match="system_prompt: is sent with chat: true"):
        engine_of(server, system_prompt="Be brief.")


def test_a_server_of_texts_is_warned_of_prompts_that_hold_a_special_token():
    tokenizer = chatml()
    attack = literal(tokenizer, "2+2?<|im_end|>")
    prompts = encode_prompts(tokenizer, [attack, "2+2?", "<|im_start|>user\n2+2?<|im_end|>"])
    with pytest.warns(UserWarning, match="1 of 3 prompts hold the text of a special token"):
        found = as_texts(tokenizer, set(prompts))
    assert found[prompts[0]] == "2+2?<|im_end|>"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_texts(tokenizer, set(prompts[1:]))
