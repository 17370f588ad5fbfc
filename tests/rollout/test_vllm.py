"""Training on real vLLM servers: what they generate, their weights, and what becomes of faults."""

from __future__ import annotations

import asyncio
import copy
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from real_vllm import MINI, RealServer, needs_vllm
from test_episodes import TURNS, Echoes, Waits, problem

from r1lit.endpoint.client import run
from r1lit.environments import TurnLimits
from r1lit.policy import LogProbs, ModelSource, Policy, Responses, load_policy, load_tokenizer
from r1lit.rollout import Completion, ModelSpec, Request, Sampling, VLLMEngine
from r1lit.rollout.episodes import EpisodeEngine
from r1lit.rollout.vllm import weights as module

pytestmark = [pytest.mark.slow, needs_vllm, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RealServer]]:
    folder = tmp_path_factory.mktemp("servers")
    started = [RealServer(folder / f"{name}.log").start() for name in "ab"]
    yield started
    for server in started:
        server.kill()


@pytest.fixture
def policy() -> Policy:
    return load_policy(ModelSource(str(MINI), dtype="float32", attention="sdpa"))


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(str(MINI))


def engine_of(servers, policy, tokenizer, **options) -> VLLMEngine:
    engine = VLLMEngine(urls=[server.url for server in servers], **{"patience_s": 60, **options})
    engine.bind(ModelSpec(name=str(MINI), tokenizer=tokenizer, policy=policy))
    return engine


def sync(engine: VLLMEngine, policy: Policy, version: int = 0) -> None:
    engine.update_weights(policy.model.state_dict().items(), version)


def move(policy: Policy, size: float = 0.01) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in policy.parameters():
            weight += size * torch.randn(weight.shape, generator=generator)


def requests(tokenizer, prompts: int = 3, size: int = 4, tokens: int = 48, seed: int = 0):
    return [
        Request(
            prompt=tuple(tokenizer(f"What is {p} + {7 * p}?")["input_ids"]),
            samples=tuple(range(p * size, (p + 1) * size)),
            sampling=Sampling(max_tokens=tokens),
            seed=seed,
        )
        for p in range(prompts)
    ]


def differences(policy, asked: list[Request], completions: list[Completion]) -> list[torch.Tensor]:
    """Compare log-probs with the training forward's, response by response."""
    prompts = [request.prompt for request in asked for _ in request.samples]
    assert len(prompts) == len(completions)
    found = []
    for prompt, completion in zip(prompts, completions, strict=True):
        token_1T = completion.token_ids[None]
        responses = Responses(
            prompts=[prompt], response_BT=token_1T, mask_BT=torch.ones_like(token_1T, dtype=bool)
        )
        with torch.no_grad():
            logp_T = policy(responses, LogProbs()).logp_K
        found.append((logp_T - completion.logps).abs())
    return found


def largest_difference(policy, asked: list[Request], completions: list[Completion]) -> float:
    return max(float(d_T.max()) for d_T in differences(policy, asked, completions))


def wait_until_up(engine: VLLMEngine, count: int) -> None:
    async def wait() -> None:
        while len(engine._fleet.up) < count:
            engine._fleet.refresh()
            await asyncio.sleep(0.2)

    run(engine._lent(wait()))


def test_log_probs_are_the_policys_and_a_run_can_be_repeated(servers, policy, tokenizer):
    engine = engine_of(servers[:1], policy, tokenizer)
    sync(engine, policy)
    asked, told = requests(tokenizer), []
    first = engine.generate(asked, lambda indices, _: told.extend(indices))
    assert sorted(told) == list(range(12))
    assert largest_difference(policy, asked, first) < 1e-4
    assert {c.version for c in first} == {0}
    end = set(engine.model.end_ids())
    for completion in first:
        ended = int(completion.token_ids[-1]) in end
        assert ended == completion.finished or len(completion.token_ids) == 48
        assert not end & set(completion.token_ids[:-1].tolist())
    assert len({tuple(c.token_ids.tolist()) for c in first[:4]}) > 1
    again = engine.generate(asked)
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.token_ids, other.token_ids)
        assert torch.equal(one.logps, other.logps)
    # a sample is what it is by its name, whichever others are asked for
    prompt = asked[1].prompt
    single = Request(prompt=prompt, samples=(6, 4), sampling=asked[1].sampling, seed=0)
    for completion, place in zip(engine.generate([single]), (6, 4), strict=True):
        assert torch.equal(completion.token_ids, first[place].token_ids)
    other = engine.generate(requests(tokenizer, seed=1))
    assert any(not torch.equal(a.token_ids, b.token_ids) for a, b in zip(first, other, strict=True))


def test_a_token_that_the_model_lacks_is_named(servers, policy, tokenizer):
    engine = engine_of(servers[:1], policy, tokenizer)
    sync(engine, policy)
    lacking = policy.config.vocab_size
    request = Request(prompt=(5, lacking), samples=(0,), sampling=Sampling(max_tokens=4), seed=0)
    with pytest.raises(ValueError, match=f"{lacking} is out of vocabulary") as error:
        engine.generate([request])
    assert "\n" not in str(error.value) and servers[0].url in str(error.value)


def test_more_prompts_than_a_step_computes(servers, policy, tokenizer):
    engine = engine_of(servers[:1], policy, tokenizer)
    sync(engine, policy)
    text = "Some numbers, of which some are odd: " + ", ".join(map(str, range(60)))
    prompts = [tuple(tokenizer(f"{p} {text}")["input_ids"]) for p in range(30)]
    assert sum(map(len, prompts)) > 2 * 2048, "tokens of a step"
    asked = [
        Request(prompt=prompt, samples=(2 * p, 2 * p + 1), sampling=Sampling(max_tokens=8), seed=0)
        for p, prompt in enumerate(prompts)
    ]
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4


def test_new_weights_reach_all_servers_with_their_tied_head(servers, policy, tokenizer):
    engine = engine_of(servers, policy, tokenizer)
    asked = requests(tokenizer, prompts=8)
    sync(engine, policy)
    old = engine.generate(asked)
    move(policy)
    assert largest_difference(policy, asked, old) > 0.1
    sync(engine, policy, version=4)
    new = engine.generate(asked)
    assert {c.version for c in new} == {4}
    assert largest_difference(policy, asked, new) < 1e-4


def test_weights_change_in_the_middle_of_responses(servers, policy, tokenizer):
    engine = engine_of(servers, policy, tokenizer, in_flight_updates=True)
    sync(engine, policy)
    before = copy.deepcopy(policy)
    asked = requests(tokenizer, prompts=16, tokens=400)
    with ThreadPoolExecutor(1) as thread:
        drawing = thread.submit(engine.generate, asked)
        time.sleep(1)
        move(policy)
        sync(engine, policy, version=4)
        assert not drawing.done()
        drawn = drawing.result(300)
    versions = [completion.versions_T() for completion in drawn]
    mixed = [version_T for version_T in versions if len(version_T.unique()) > 1]
    assert len(mixed) > 10 and all(version_T.diff().min() >= 0 for version_T in mixed)
    for version, of in ((0, before), (4, policy)):
        d_T, is_own_T = torch.cat(differences(of, asked, drawn)), torch.cat(versions) == version
        assert float(d_T[is_own_T].max()) < 1e-4 and float(d_T[~is_own_T].max()) > 0.1
    # the next rollout is of the new weights alone
    assert largest_difference(policy, asked[:3], engine.generate(asked[:3])) < 1e-4


@pytest.mark.parametrize("lost", ["", "lm_head", "model.layers.2.mlp.up_proj"])
def test_stale_and_partial_weights_stop_the_run(servers, policy, tokenizer, lost):
    engine = engine_of(servers[:1], policy, tokenizer)
    sync(engine, policy)
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    move(policy)
    weights = policy.model.state_dict()
    sent = {n: w for n, w in weights.items() if not n.startswith(lost)} if lost else before
    with pytest.raises(ValueError, match=r"differ from the policy's, such as .* stale or in part"):
        engine.update_weights(sent.items(), 1)
    sync(engine, policy, version=2)
    asked = requests(tokenizer)
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4


NUDGED = ("model.layers.2.mlp.up_proj.weight", "model.norm.weight", "model.embed_tokens.weight")


@pytest.mark.parametrize("name", [*NUDGED, "model.layers.0.self_attn.k_proj.weight"])
def test_one_element_by_one_bit_is_found(servers, policy, tokenizer, name):
    engine = engine_of(servers[:1], policy, tokenizer)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*digest.*")  # every tensor is read
        sync(engine, policy)
    stale = {key: tensor.clone() for key, tensor in policy.model.state_dict().items()}
    with torch.no_grad():  # the smallest update there is
        element = policy.model.state_dict()[name].view(-1)[7:8]
        element.copy_(torch.nextafter(element, element + 1))
    with pytest.raises(
        ValueError, match=f"tensors . differ from the policy's, such as .*{name[-9:]}"
    ):
        engine.update_weights(stale.items(), 1)
    blind = engine_of(servers[:1], policy, tokenizer, receipts=False)
    blind.update_weights(stale.items(), 2)  # log-probs do not show it
    sync(engine, policy, version=3)


def test_a_failed_transfer_leaves_the_server_alive(servers, policy, tokenizer, monkeypatch):
    engine = engine_of(servers[:1], policy, tokenizer)
    sync(engine, policy)
    real = module.write_weights

    def torn(folder: Path, weights) -> list[str]:
        names = real(folder, weights)
        for file in folder.glob("*.safetensors"):
            file.write_bytes(file.read_bytes()[:-1000])
        return names

    monkeypatch.setattr(module, "write_weights", torn)
    with pytest.raises(ValueError, match="has not taken the weights"):
        sync(engine, policy, version=1)
    monkeypatch.undo()
    sync(engine, policy, version=2)
    asked = requests(tokenizer)
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4


def test_a_server_that_is_killed_in_a_rollout(servers, policy, tokenizer):
    move(policy)  # a restarted server has other weights
    engine = engine_of(servers, policy, tokenizer, concurrency=2)
    sync(engine, policy)
    asked = requests(tokenizer, prompts=24, tokens=200)
    whole = engine.generate(asked)
    told: list[int] = []

    def finished(indices, _) -> None:
        if not told:
            servers[1].kill()
            servers[1].start(wait=False)
        told.extend(indices)

    with pytest.warns(UserWarning, match="is left out until it is back"):
        drawn = engine.generate(asked, finished)
    assert sorted(told) == list(range(96))
    assert largest_difference(policy, asked, drawn) < 1e-4
    # not a biased subset: the same responses but for rounding
    same = [torch.equal(a.token_ids, b.token_ids) for a, b in zip(whole, drawn, strict=True)]
    assert sum(same) > 90
    wait_until_up(engine, 2)  # the one that is back has the weights, and takes part
    assert servers[1].answers()
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4


def test_a_server_that_hangs_in_a_rollout(servers, policy, tokenizer):
    engine = engine_of(servers, policy, tokenizer, concurrency=2, hang_s=5)
    sync(engine, policy)
    asked, told = requests(tokenizer, prompts=12, tokens=200), []

    def finished(indices, _) -> None:
        if not told:
            servers[0].signal(signal.SIGSTOP)
        told.extend(indices)

    try:
        with pytest.warns(UserWarning, match="is left out until it is back"):
            drawn = engine.generate(asked, finished)
    finally:
        servers[0].signal(signal.SIGCONT)
    assert sorted(told) == list(range(48))
    assert largest_difference(policy, asked, drawn) < 1e-4


def test_an_idle_server_that_was_restarted_is_given_the_weights(servers, policy, tokenizer):
    move(policy)
    engine = engine_of(servers[:1], policy, tokenizer)
    sync(engine, policy)
    servers[0].kill()
    servers[0].start()
    asked = requests(tokenizer)
    with pytest.warns(UserWarning, match="it was restarted"):
        drawn = engine.generate(asked)
    assert largest_difference(policy, asked, drawn) < 1e-4


def test_no_server_is_left(servers, policy, tokenizer):
    engine = engine_of(servers[:1], policy, tokenizer, patience_s=3)
    sync(engine, policy)
    timer = threading.Timer(0.5, servers[0].kill)
    timer.start()
    try:
        with (
            pytest.warns(UserWarning, match="is left out"),
            pytest.raises(ValueError, match="no server has been up for 3 s"),
        ):
            engine.generate(requests(tokenizer, prompts=200, tokens=300))
    finally:
        timer.join()
        servers[0].start()


def test_a_paused_server_of_a_killed_trainer_is_taken_over(servers, policy, tokenizer):
    server = engine_of(servers[:1], policy, tokenizer)._servers[0]
    run(server.post("pause?mode=keep"))
    run(server.post("start_weight_update"))
    engine = engine_of(servers[:1], policy, tokenizer)
    asked = requests(tokenizer)  # without a sync: the first request makes one
    assert largest_difference(policy, asked, engine.generate(asked)) < 1e-4


def test_episodes_go_on_each_by_itself(servers, policy, tokenizer):
    """A first step waits for a second turn of another episode; tokens are those of rounds."""
    asked = [
        replace(request, problem=problem(str(place), "echo" if place else ""))
        for place, request in enumerate(requests(tokenizer, tokens=120))
    ]
    limits = TurnLimits(max_turn_tokens=40, max_observation_tokens=20)

    def played(environment: Echoes) -> list[Completion]:
        engine = engine_of(servers, policy, tokenizer)
        sync(engine, policy)
        return EpisodeEngine(engine, {"echo": environment}, TURNS, limits).generate(asked)

    waits = Waits(60.0)
    apart, in_rounds = played(waits), played(Echoes())
    assert waits.heard is True, "the others did not go on"
    assert [c.transcript is None for c in apart] == [True] * 4 + [False] * 8
    assert max(len(c.transcript.turn_ends) for c in apart[4:]) == 3
    for one, other in zip(apart, in_rounds, strict=True):
        assert torch.equal(one.token_ids, other.token_ids)
        torch.testing.assert_close(one.logps, other.logps, rtol=0, atol=1e-4)
        assert one.transcript == other.transcript


def test_a_server_that_is_killed_loses_no_turn(servers, policy, tokenizer):
    class Kills(Echoes):
        def begin(self, problem, seed):
            if len(self.episodes) == 3:
                servers[0].kill()
            return super().begin(problem, seed)

    asked = [
        replace(request, problem=problem(str(place), "echo"))
        for place, request in enumerate(requests(tokenizer, tokens=120))
    ]
    limits = TurnLimits(max_turn_tokens=40, max_observation_tokens=20)
    engine = engine_of(servers, policy, tokenizer)
    sync(engine, policy)
    with pytest.warns(UserWarning, match="is left out until it is back"):
        killed = Kills(in_background=True)
        found = EpisodeEngine(engine, {"echo": killed}, TURNS, limits).generate(asked)
    servers[0].start()
    whole = EpisodeEngine(engine, {"echo": Echoes()}, TURNS, limits).generate(asked)
    for one, other in zip(found, whole, strict=True):
        assert torch.equal(one.token_ids, other.token_ids) and one.transcript == other.transcript
