"""Episodes of several turns through the in-process engine, on a small random policy."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from functools import partial

import pytest
import tiny
import torch
from test_batches import rollout
from transformers import AutoTokenizer

from r1lit.environments import Environment, Episode, InlineTurns, Reply, StepResult, TurnLimits
from r1lit.policy import LogProbs, ModelSource, Responses, load_policy
from r1lit.problems import Problem, Verdict
from r1lit.rollout import (
    Capabilities,
    InProcessEngine,
    JoiningEngine,
    ModelSpec,
    Request,
    Sampling,
)
from r1lit.rollout.episodes import EpisodeEngine, with_environments
from r1lit.rollout.left_out import leave_out_groups
from r1lit.rollout.observations import MARK
from r1lit.rollout.request import texts_of
from r1lit.rollout.stored_completions import as_tensors, completions_of

TURNS = InlineTurns(call_open="1", call_close="2")
RIGHT = Verdict(value=1.0, status="right", canonical="x", reason="")


@dataclass
class Echo(Episode):
    """Answers every turn with its number until the last one, and pays for each."""

    last: int
    seed: int
    replies: list[Reply] = field(default_factory=list)
    closed: int = 0

    def step(self, reply: Reply) -> StepResult:
        self.replies.append(reply)
        if len(self.replies) > self.last:
            return StepResult(verdict=RIGHT)
        content = f"turn {len(self.replies)} of {self.seed % 10}"
        return StepResult(messages=({"role": "tool", "content": content},), reward=0.5)

    def close(self) -> None:
        self.closed += 1


class Echoes(Environment):
    """Keeps its episodes, for tests to look at."""

    def __init__(self, last: int = 2, in_background: bool = False) -> None:
        self.last = last
        self.in_background = in_background
        self.episodes: list[Echo] = []

    def begin(self, problem: Problem, seed: int) -> Episode:
        self.episodes.append(Echo(self.last, seed))
        return self.episodes[-1]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tiny.save_policy(tmp_path_factory.mktemp("policy"))
    policy = load_policy(ModelSource(str(path), dtype="float32")).eval()
    tokenizer = AutoTokenizer.from_pretrained(path)
    return ModelSpec(name=str(path), tokenizer=tokenizer, policy=policy)


def problem(uid: str, environment: str = "echo") -> Problem:
    return Problem(uid=uid, question="?", answer="", source="s", environment=environment)


def requests(
    model: ModelSpec, *problems: Problem, max_tokens: int = 160, samples: int = 3
) -> list[Request]:
    return [
        Request(
            prompt=tuple(model.tokenizer(f"{p.uid}:")["input_ids"]),
            samples=tuple(range(samples * i, samples * (i + 1))),
            sampling=Sampling(max_tokens=max_tokens),
            seed=3,
            iteration=1,
            problem=p,
        )
        for i, p in enumerate(problems)
    ]


class Joining(InProcessEngine, JoiningEngine):
    """Takes further requests as soon as it has generated those before, one at a time."""

    def stream_joined(self, requests, on_finished, feed):
        changed, index = threading.Event(), 0
        feed.on_change = changed.set
        waiting = list(requests)
        while waiting or not feed.over:
            changed.clear()
            waiting += feed.take()
            if not waiting:
                changed.wait(5)
                continue
            request = waiting.pop(0)
            completions = self.generate([request])
            on_finished(range(index, index + len(completions)), completions)
            index += len(completions)


ENGINES = (InProcessEngine, Joining)


def play(model, environment, asked, kind=InProcessEngine, **limits):
    engine = kind(compile=False)
    engine.bind(model)
    limits = TurnLimits(**{"max_turn_tokens": 30, **limits})
    return EpisodeEngine(engine, {"echo": environment}, TURNS, limits).generate(asked)


def same(one, other) -> bool:
    return torch.equal(one.token_ids, other.token_ids) and one.transcript == other.transcript


def test_log_probs_of_sampled_tokens_are_the_trainers_and_others_are_the_environments(model):
    asked = requests(model, problem("a"), problem("b"))
    completions = play(model, Echoes(), asked)
    ended = [c.transcript.ended for c in completions]
    assert "environment" in ended, ended
    for row, c in enumerate(completions):
        written = c.environment_T
        assert not c.logps[written].any() and (c.version_T[written] == -1).all()
        results = [m["content"] for m in c.transcript.messages if m["role"] == "tool"]
        text = "".join(f" <result>{content}</result>" for content in results)
        assert model.tokenizer.decode(c.token_ids[written]) == text
        responses = Responses(
            prompts=[asked[row // 3].prompt],
            response_BT=c.token_ids[None],
            mask_BT=torch.ones(1, c.num_tokens).bool(),
        )
        with torch.no_grad():
            logp_K = model.policy(responses, LogProbs()).logp_K
        torch.testing.assert_close(logp_K[~written], c.logps[~written], rtol=0, atol=2e-5)
    assert any(len(c.transcript.turn_ends) == 3 for c in completions)


@pytest.mark.long
def test_an_episode_depends_on_its_names_alone(model):
    asked = requests(model, problem("a"), problem("b"))
    together = play(model, Echoes(), asked)
    again = play(model, Echoes(in_background=True), asked)
    alone = play(model, Echoes(), asked[1:])
    assert all(same(a, b) for a, b in zip(together, again, strict=True))
    assert all(same(a, b) for a, b in zip(together[3:], alone, strict=True))
    assert len({c.token_ids.tolist().__repr__() for c in together}) == 6


@pytest.mark.long
def test_single_turns_pass_through_unchanged(model):
    asked = requests(model, problem("a", ""), problem("b"), problem("c", ""))
    engine = InProcessEngine(compile=False)
    engine.bind(model)
    plain = engine.generate(asked)
    mixed = play(model, Echoes(), asked)
    for row in (0, 1, 2, 6, 7, 8):
        assert torch.equal(plain[row].token_ids, mixed[row].token_ids)
        assert torch.equal(plain[row].logps, mixed[row].logps) and mixed[row].transcript is None


def test_limits_end_episodes_and_say_so(model):
    asked = requests(model, problem("a"), samples=8)
    of = {
        "turns": play(model, Echoes(last=99), asked, max_turns=2),
        "short": play(model, Echoes(last=99), requests(model, problem("a"), max_tokens=40)),
    }
    for c in of["turns"]:
        assert len(c.transcript.turn_ends) <= 2 and not c.finished
        assert c.transcript.messages[-1]["role"] == "assistant" and not c.environment_T[-1]
    assert {c.transcript.ended for c in of["turns"]} == {"turns", "length"}
    for c in of["short"]:
        assert c.num_tokens <= 40 and c.transcript.ended == "length" and not c.environment_T[-1]
    exact = [c.transcript.turn_ends for c in of["turns"]]
    starts = [(0, *e[:-1]) for e in exact]
    assert all(
        end - start <= 30 + c.num_environment_tokens
        for c, e, s in zip(of["turns"], exact, starts, strict=True)
        for end, start in zip(e, s, strict=True)
    )


def test_a_long_observation_is_cut_with_a_mark(model):
    class Long(Echoes):
        def begin(self, problem, seed):
            episode = super().begin(problem, seed)
            message = {"role": "tool", "content": "7" * 500}
            episode.step = lambda reply: StepResult(messages=(message,))
            return episode

    for c in play(model, Long(), requests(model, problem("a")), max_observation_tokens=10):
        for message in c.transcript.messages:
            if message["role"] == "tool":
                assert message["content"].startswith("7") and message["content"].endswith("[cut]")
                assert len(message["content"]) < 60


def test_messages_of_one_step_share_the_limit_of_an_observation(model):
    class Several(Echoes):
        def begin(self, problem, seed):
            episode = super().begin(problem, seed)
            message = {"role": "tool", "content": "7" * 500}
            episode.step = lambda reply: StepResult(messages=(message,) * 4)
            return episode

    asked = requests(model, problem("a"), max_tokens=400)
    completions = play(model, Several(), asked, max_observation_tokens=40, max_turns=2)
    contents = [
        m["content"] for c in completions for m in c.transcript.messages if m["role"] == "tool"
    ]
    assert contents and len(contents) % 4 == 0
    for content in contents:
        ids = model.tokenizer(content.removesuffix(MARK), add_special_tokens=False)["input_ids"]
        assert 1 <= len(ids) <= 40 // 4


class Broken(Echoes):
    """Fails in the second turn: the first time, always, or by never coming back."""

    def __init__(self, how: str, in_background: bool = False) -> None:
        super().__init__(in_background=in_background)
        self.how = how
        self.lock = threading.Lock()
        self.num_failures = 0

    def begin(self, problem, seed):
        episode = super().begin(problem, seed)
        step = episode.step

        def faulty(reply):
            if len(episode.replies) == 1:
                with self.lock:
                    self.num_failures += 1
                if self.how == "hangs":
                    time.sleep(30)
                if self.how == "always" or self.num_failures == 1:
                    raise RuntimeError("the server is gone")
            return step(reply)

        episode.step = faulty
        return episode


class Waits(Echoes):
    """The first step of the first episode waits for the second one of any other."""

    def __init__(self, seconds: float) -> None:
        super().__init__(in_background=True)
        self.seconds = seconds
        self.second = threading.Event()
        self.heard: bool | None = None

    def begin(self, problem, seed):
        episode = super().begin(problem, seed)
        step, is_first = episode.step, len(self.episodes) == 1

        def waiting(reply):
            if is_first and not episode.replies:
                self.heard = self.second.wait(self.seconds)
            if not is_first and episode.replies:
                self.second.set()
            return step(reply)

        episode.step = waiting
        return episode


@pytest.mark.long
def test_an_episode_goes_on_while_another_waits_for_its_environment(model):
    asked = requests(model, problem("a"), problem("b", ""), problem("c"))
    apart, in_rounds = Waits(60.0), Waits(0.5)
    found = play(model, apart, asked, Joining), play(model, in_rounds, asked)
    assert apart.heard is True and in_rounds.heard is False
    assert sum(c.transcript is None for c in found[0]) == 3
    assert all(same(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("in_background", [False, True])
def test_slow_steps_one_after_another_are_warned_of(model, monkeypatch, recwarn, in_background):
    class Slow(Echoes):
        def begin(self, problem, seed):
            episode = super().begin(problem, seed)
            step = episode.step

            def slowly(reply):
                time.sleep(0.1)
                return step(reply)

            episode.step = slowly
            return episode

    monkeypatch.setattr("r1lit.rollout.episodes.SLOW_S", 0.05)
    play(model, Slow(last=1, in_background=in_background), requests(model, problem("a")))
    said = [str(w.message) for w in recwarn if "one episode after the other;" in str(w.message)]
    assert bool(said) is not in_background
    assert all(line.startswith("data.environments: echo answered 0.05 s long,") for line in said)


def test_what_goes_wrong_between_two_turns_ends_the_rollout(model):
    class NoTemplate(InlineTurns):
        def encode(self, tokenizer, messages):
            raise LookupError("no template")

    engine = Joining(compile=False)
    engine.bind(model)
    turns = NoTemplate(call_open="1", call_close="2")
    echoes = {"echo": Echoes(in_background=True)}
    episodes = EpisodeEngine(engine, echoes, turns, TurnLimits())
    with pytest.raises(LookupError, match="no template"):
        episodes.generate(requests(model, problem("a"), samples=16))


def test_nothing_is_handed_over_after_an_engine_has_failed(model):
    class Fails(Joining):
        def stream_joined(self, requests, on_finished, feed):
            on_finished(range(len(self.generate(requests))), self.generate(requests))
            raise OSError("the servers are gone")

    class Slow(Echoes):
        def begin(self, problem, seed):
            episode = super().begin(problem, seed)
            step = episode.step
            episode.step = lambda reply: time.sleep(0.3) or step(reply)
            return episode

    engine, told = Fails(compile=False), []
    engine.bind(model)
    slow = Slow(last=0, in_background=True)
    limits = TurnLimits(max_turn_tokens=30, num_threads=1)
    episodes = EpisodeEngine(engine, {"echo": slow}, TURNS, limits)
    with pytest.raises(OSError, match="the servers are gone"):
        episodes.generate(requests(model, problem("a")), lambda *found: told.append(found))
    time.sleep(1.0)
    assert told == [] and len(slow.episodes) <= 1, "steps that waited are not begun"


def test_whoever_ends_an_environments_thread_ends_the_rollout(model):
    class Exits(InlineTurns):
        def encode(self, tokenizer, messages):
            raise SystemExit(1)

    engine = Joining(compile=False)
    engine.bind(model)
    echoes = {"echo": Echoes(in_background=True)}
    turns = Exits(call_open="1", call_close="2")
    with pytest.raises(RuntimeError, match=r"thread was ended by SystemExit\(1\)"):
        EpisodeEngine(engine, echoes, turns, TurnLimits()).generate(
            requests(model, problem("a"), samples=16)
        )


@pytest.mark.parametrize("kind", ENGINES)
def test_a_fault_is_tried_again_with_the_same_tokens(model, kind):
    asked = requests(model, problem("a"))
    environment = Broken("once", in_background=kind is Joining)
    found = play(model, environment, asked, kind)
    assert environment.num_failures > 1 and len(environment.episodes) == 4
    assert all(same(a, b) for a, b in zip(found, play(model, Echoes(), asked), strict=True))
    assert [episode.closed for episode in environment.episodes] == [1] * 4


@pytest.mark.parametrize("kind", ENGINES)
def test_faults_that_last_are_undecided_and_too_many_end_the_run(model, kind):
    asked = requests(model, problem("a"))
    broken = partial(Broken, "always", in_background=kind is Joining)
    with pytest.raises(ValueError, match=r"of 3 episodes failed.*the server is gone"):
        play(model, broken(), asked, kind)
    found = play(model, broken(), asked, kind, max_failed=1.0)
    failed = [c.transcript for c in found if c.transcript.ended == "failed"]
    assert failed and {transcript.verdict.status for transcript in failed} == {"error"}


@pytest.mark.parametrize("kind", ENGINES)
def test_a_step_that_never_ends_is_given_up(model, kind):
    start = time.monotonic()
    hanging = Broken("hangs", in_background=kind is Joining)
    asked = requests(model, problem("a"))
    found = play(model, hanging, asked, kind, max_failed=1.0, seconds=0.3)
    failed = [c.transcript for c in found if c.transcript.ended == "failed"]
    assert failed and {transcript.verdict.status for transcript in failed} == {"timeout"}
    assert time.monotonic() - start < 25


def test_a_checkpoint_keeps_all_of_an_episode(model):
    found = play(model, Echoes(), requests(model, problem("a")))
    for before, after in zip(found, completions_of(as_tensors(found)), strict=True):
        assert after.transcript == before.transcript
        for name in ("token_ids", "logps", "version_T"):
            assert torch.equal(getattr(before, name), getattr(after, name))
        assert not before.environment_T.any() or torch.equal(
            before.environment_T, after.environment_T
        )


def test_an_engine_without_tokens_is_refused(model):
    engine = InProcessEngine()
    assert with_environments(engine, {}, TURNS, TurnLimits()) is engine
    engine.capabilities = Capabilities(tokens=False)
    with pytest.raises(ValueError, match="engine: InProcessEngine returns no token ids"):
        with_environments(engine, {"echo": Echoes()}, TURNS, TurnLimits())


class Patches(Environment):
    """Ends each episode with a text that is not the model's."""

    def begin(self, problem: Problem, seed: int) -> Episode:
        class Patch(Episode):
            def step(self, reply: Reply) -> StepResult:
                return StepResult(answer=f"patch of {problem.uid}")

        return Patch()


def test_verifiers_read_an_episodes_answer_in_place_of_the_reply(model):
    completions = play(model, Patches(), requests(model, problem("a"), problem("b")))
    assert texts_of(completions, model.tokenizer) == ["patch of a"] * 3 + ["patch of b"] * 3
    assert {c.transcript.verdict for c in completions} == {None}


def test_groups_left_out_are_out_of_the_loss_and_earn_nothing():
    loss_mask_BT = torch.arange(4).expand(6, 4) > 0
    made = leave_out_groups(
        rollout(loss_mask_BT=loss_mask_BT), torch.tensor([[False], [True], [False]])
    )
    kept = [[False, True, True, True]] * 2
    assert made.loss_mask_BT.tolist() == [*kept, *[[False] * 4] * 2, *kept]
    assert made.reward_PG.tolist() == [[1, 1], [0, 0], [1, 1]]
    assert made.rewards["accuracy"].tolist() == [[1, 1], [0, 0], [1, 1]]
