"""The server engine over HTTP: what it sends, how it retries, how it gives up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from completion_server import CompletionServer
from tiny import ROOT, save_policy
from tiny_evaluation import evaluation_config, lines, report, texts

from r1lit.cli import main
from r1lit.client import Client
from r1lit.data.prompts import encode_prompts
from r1lit.policy import load_policy, load_tokenizer
from r1lit.rollout import Draw, PolicyEngine, Request, Sampling, ServerEngine, Source

SAMPLING = Sampling(temperature=0.6, top_p=0.95, max_tokens=16, stop=("\n\n",))


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(str(ROOT / "models" / "mini"))


@pytest.fixture
def serve() -> Iterator[Any]:
    started: list[CompletionServer] = []

    def start(**options: Any) -> CompletionServer:
        started.append(CompletionServer(**options))
        return started[-1]

    yield start
    for server in started:
        server.close()


def requests(tokenizer, num_prompts: int = 3, group_size: int = 2) -> list[Request]:
    prompts = encode_prompts(tokenizer, [f"What is {i} + {i}" for i in range(num_prompts)])
    return [
        Request(prompt=prompt, sample=100 * p + g)
        for p, prompt in enumerate(prompts)
        for g in range(group_size)
    ]


def draw(engine, tokenizer, asked, policy=None, sampling=SAMPLING, seed=0) -> dict[int, Draw]:
    drawn: dict[int, Draw] = {}

    def finished(index: int, one: Draw) -> None:
        assert index not in drawn
        drawn[index] = one

    source = Source(name="tiny", tokenizer=tokenizer, policy=policy)
    try:
        engine.draw(source, asked, sampling=sampling, seed=seed, iteration=0, finished=finished)
    except ValueError as error:
        error.add_note(str(len(drawn)))
        raise
    return drawn


def test_each_request_is_answered_once_with_a_seed_of_its_own(serve, tokenizer):
    server, asked = serve(), requests(tokenizer)
    drawn = draw(ServerEngine(server.base_url), tokenizer, asked)
    assert set(drawn) == set(range(6)) and len(server.bodies) == 6
    assert len({body["seed"] for body in server.bodies}) == 6
    assert {body["prompt"] for body in server.bodies} == {f"What is {i} + {i}" for i in range(3)}
    for body in server.bodies:
        assert (body["model"], body["max_tokens"]) == ("tiny", 16)
        assert (body["temperature"], body["top_p"], body["stop"]) == (0.6, 0.95, ["\n\n"])
        assert "top_k" not in body
    for one in drawn.values():
        assert one.num_tokens == 7
        assert one.finished == bool(int(one.text.split()[-1]) % 2)
    again = draw(ServerEngine(server.base_url), tokenizer, asked)
    assert again == drawn
    assert draw(ServerEngine(server.base_url), tokenizer, asked, seed=1) != drawn
    alone = draw(ServerEngine(server.base_url), tokenizer, asked[4:5])
    assert alone[0] == drawn[4]  # whatever else is asked


def test_vllm_gets_token_ids_and_its_own_defaults_undone(serve, tokenizer):
    server, asked = serve(is_vllm=True), requests(tokenizer)
    draw(ServerEngine(server.base_url, extra={"top_k": 20}), tokenizer, asked)
    assert sorted(map(tuple, (b["prompt"] for b in server.bodies))) == sorted(
        request.prompt for request in asked
    )
    for body in server.bodies:
        assert body["repetition_penalty"] == 1.0 and body["include_stop_str_in_output"] is True
        assert body["top_k"] == 20  # extra has the last word


def test_a_server_that_stumbles_is_asked_again(serve, tokenizer):
    server = serve(faults={1: 503, 2: 429, 3: -1})
    drawn = draw(ServerEngine(server.base_url, backoff_s=0.01), tokenizer, requests(tokenizer))
    assert len(drawn) == 6 and set(server.tries.values()) == {4}


def test_a_dead_server_ends_with_what_it_answered_handed_over(serve, tokenizer):
    server, asked = serve(limit=5), requests(tokenizer, num_prompts=10)
    engine = ServerEngine(server.base_url, concurrency=4, max_retries=2, backoff_s=0.01)
    with pytest.raises(ValueError, match=r"completions gave no answer in 3 tries") as error:
        draw(engine, tokenizer, asked)
    assert error.value.__notes__ == ["5"]
    assert len(server.tries) < len(asked), "no request is begun after the end"


def test_a_refusal_is_not_asked_again(serve, tokenizer):
    server = serve(faults={1: 400})
    with pytest.raises(ValueError, match=r"refused the request, status 400: .*fault 400"):
        draw(ServerEngine(server.base_url, concurrency=1), tokenizer, requests(tokenizer))
    assert sum(server.tries.values()) == 1


def test_no_more_requests_are_under_way_than_allowed(serve, tokenizer):
    server = serve()
    draw(ServerEngine(server.base_url, concurrency=3), tokenizer, requests(tokenizer, 10))
    assert 2 <= server.most_at_once <= 3


def test_what_the_caller_raises_ends_the_drawing(serve, tokenizer):
    server = serve()
    source = Source(name="tiny", tokenizer=tokenizer)

    def refuse(index: int, one: Draw) -> None:
        raise RuntimeError("full")

    with pytest.raises(RuntimeError, match="full"):
        ServerEngine(server.base_url, concurrency=2).draw(
            source, requests(tokenizer, 20), sampling=SAMPLING, seed=0, iteration=0,
            finished=refuse,
        )  # fmt: skip
    assert len(server.bodies) < 20


def test_a_server_that_ignores_the_temperature_is_told_of_once(serve, tokenizer, recwarn):
    asked = requests(tokenizer, num_prompts=6, group_size=3)
    engine = ServerEngine(serve(greedy=True).base_url)
    draw(engine, tokenizer, asked)
    draw(engine, tokenizer, asked, seed=1)
    (said,) = [str(warning.message) for warning in recwarn]
    assert "all the same" in said and "temperature is above 0" in said and "do_sample" in said
    assert engine.client.base_url in said


def test_a_long_evaluation_is_told_before_its_end(serve, tokenizer):
    asked = requests(tokenizer, num_prompts=8, group_size=4)
    told: list[int] = []
    with pytest.warns(UserWarning, match=r"\(10 repeats of 4 prompts\)"):
        ServerEngine(serve(greedy=True).base_url, concurrency=1).draw(
            Source(name="tiny", tokenizer=tokenizer), asked, sampling=SAMPLING, seed=0, iteration=0,
            finished=lambda index, one: told.append(index),
        )  # fmt: skip
    assert len(told) == 32


@pytest.mark.parametrize(
    ("options", "group_size", "temperature"),
    [({}, 3, 0.6), ({"greedy": True}, 1, 0.6), ({"greedy": True}, 3, 0.0)],
)
def test_sampling_single_responses_and_greedy_decoding_are_no_cause_to_warn(
    serve, tokenizer, recwarn, options, group_size, temperature
):
    asked = requests(tokenizer, num_prompts=6, group_size=group_size)
    sampling = Sampling(temperature=temperature, max_tokens=16)
    draw(ServerEngine(serve(**options).base_url), tokenizer, asked, sampling=sampling)
    assert not list(recwarn)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"base_url": "127.0.0.1:8000"}, "base_url: '127.0.0.1:8000' is not like http"),
        ({"base_url": "http://x", "timeout_s": 0.0}, "timeout_s: 0"),
        ({"base_url": "http://x", "max_retries": -1}, "max_retries: -1"),
        ({"base_url": "http://x", "backoff_s": -1.0}, "backoff_s: -1"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Client(**options)
    with pytest.raises(ValueError, match="concurrency: 0"):
        ServerEngine(concurrency=0)


def test_nobody_at_the_address_is_said():
    client = Client("http://127.0.0.1:9/v1", max_retries=1, backoff_s=0.01)
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:9/v1/models gave no answer in 2 tries"):
        client.request("models", dict)


def test_the_policy_engine_hands_over_what_the_rollout_engine_draws(tokenizer, tmp_path: Path):
    """The same responses, in whatever shares, with missing ones drawn alone; cut ones too."""
    policy = load_policy(str(save_policy(tmp_path, seed=3))).eval()
    asked = requests(tokenizer, num_prompts=3, group_size=4)
    sampling = Sampling(max_tokens=8, stop=("1", "3"))
    everything = draw(PolicyEngine(compile=False), tokenizer, asked, policy, sampling)
    assert set(everything) == set(range(12))
    assert {one.finished for one in everything.values()} == {True, False}
    assert all(one.num_tokens == 8 for one in everything.values() if not one.finished)
    shares = draw(PolicyEngine(max_rows=3, compile=False), tokenizer, asked, policy, sampling)
    assert shares == everything
    some = [0, 1, 3, 6, 9]
    part = draw(PolicyEngine(compile=False), tokenizer, [asked[i] for i in some], policy, sampling)
    assert part == {n: everything[i] for n, i in enumerate(some)}


def test_an_evaluation_goes_on_when_its_server_is_back(serve, tmp_path):
    config = evaluation_config(tmp_path, save_policy(tmp_path / "policy", seed=3))

    def command(server: CompletionServer) -> list[str]:
        return [
            "test", "-c", str(config), "--model.engine=r1lit.rollout.ServerEngine",
            f"--model.engine.base_url={server.base_url}", "--model.engine.concurrency=2",
            "--model.engine.max_retries=1", "--model.engine.backoff_s=0.01",
        ]  # fmt: skip

    dying, back = serve(limit=5), serve()
    with pytest.raises(ValueError, match="gave no answer in 2 tries"):
        main(command(dying))
    run = tmp_path / "run"
    left = (run / "responses.jsonl").read_bytes()
    assert len(lines(run)) == 5 and not (run / "report.json").exists()
    cli = main(command(back))
    assert not hasattr(cli.model, "policy"), "the weights are the server's"
    assert len(back.bodies) == 11 and len(texts(run)) == 16
    assert (run / "responses.jsonl").read_bytes().startswith(left)
    assert report(run)["settings"]["device"] == "server"
