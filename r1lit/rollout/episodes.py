"""Episodes of several turns, through any engine that returns tokens.

    turn of the model -> Episode.step -> its messages as tokens -> next turn -> … -> Completion

In rounds, one call of the engine generates the next turn of all unfinished episodes. An engine that
requests may join (vLLM) generates each episode's next turn as soon as its environment has answered.
Sampled tokens are never changed: a turn is appended to the tokens before it, and only the
environment's messages are tokenised.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from r1lit.batches import Candidates
from r1lit.environments import Environment, Episode, Reply, StepResult, TurnFormat, TurnLimits
from r1lit.environments.exits import no_exit
from r1lit.errors import in_one_line
from r1lit.problems import Ended, Problem, Status, Transcript, Verdict
from r1lit.rollout.engine import JoiningEngine, RolloutEngine
from r1lit.rollout.feed import RequestFeed
from r1lit.rollout.observations import observe
from r1lit.rollout.request import Completion, OnFinished, Request
from r1lit.seeding import name_of
from r1lit.waiting import warned_if_slow

ATTEMPTS = 2
SLOW_S = 30.0
"""Seconds of steps one after another in one round, after which a remedy is named."""


@dataclass(kw_only=True)
class Row:
    """An episode while it goes on; ``parts`` are its tokens, turn by turn."""

    index: int
    request: Request
    sample: int
    problem: Problem
    environment: Environment
    attempts: int = 0
    play: Play = field(default_factory=lambda: Play())
    parts: list[tuple[Completion | None, Tensor]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    messages: list[Mapping[str, Any]] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    num_calls: int = 0
    num_invalid: int = 0
    invalid_in_a_row: int = 0
    ended: Ended | None = None
    verdict: Verdict | None = None
    answer: str | None = None
    error: BaseException | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens after the prompt so far."""
        return sum(len(ids) for _, ids in self.parts)

    @property
    def left(self) -> int:
        """Tokens that may still come."""
        return self.request.sampling.max_tokens - self.num_tokens

    def prompt(self) -> tuple[int, ...]:
        """Return the tokens that the next turn is conditioned on."""
        return (*self.request.prompt, *(i for _, ids in self.parts for i in ids.tolist()))

    def name(self) -> int:
        """Return the name under which the next turn is sampled; the first one's is the row's."""
        turn = len(self.texts)
        return self.sample if turn == 0 else name_of(self.sample, turn)

    def seed(self) -> int:
        """Return the seed of the environment's random numbers."""
        request = self.request
        return name_of(request.seed, request.iteration, self.problem.uid, self.sample)

    def restart(self) -> None:
        """Begin again from the start, with the same names; the caller closes the old episode."""
        fresh = Row(
            index=self.index,
            request=self.request,
            sample=self.sample,
            problem=self.problem,
            environment=self.environment,
            attempts=self.attempts,
            error=self.error,
        )
        vars(self).update(vars(fresh))


class Play:
    """The episode of a row, and whether a thread is in one of its steps."""

    def __init__(self) -> None:
        self.episode: Episode | None = None
        self.seconds = 0.0  # of all steps so far
        self._lock = threading.Lock()
        self._busy = self._closed = False

    def step(self, row: Row, reply: Reply) -> StepResult:
        """Take a turn, and begin the episode if this is the first one."""
        with self._lock:
            self._busy = True
        started = time.perf_counter()
        try:
            with no_exit(f"environment {row.problem.environment!r}"):
                if self.episode is None:
                    self.episode = row.environment.begin(row.problem, row.seed())
                step = self.episode.step(reply)
        finally:
            self.seconds += time.perf_counter() - started
            with self._lock:
                self._busy = False
            if self._closed:  # given up meanwhile
                self.close()
        if not isinstance(step, StepResult):
            raise TypeError(f"step() returned {step!r:.60}, not a StepResult")
        return step.checked()

    def close(self) -> None:
        """Let the episode go, once, after a step that is under way; faults change nothing."""
        with self._lock:
            self._closed = True
            episode = None if self._busy else self.episode
            if episode is not None:
                self.episode = None
        if episode is not None:
            with suppress(Exception), no_exit("an environment"):
                episode.close()


class EpisodeEngine(RolloutEngine):
    """Plays episodes with an engine; requests of problems without an environment pass through.

    Args:
        engine: samples the turns; it returns tokens.
        environments: by the names that problems give.
        turns: how turns stand in tokens.
        limits: of an episode.
    """

    def __init__(
        self,
        engine: RolloutEngine,
        environments: Mapping[str, Environment],
        turns: TurnFormat,
        limits: TurnLimits,
    ) -> None:
        self.engine = engine
        self.environments = environments
        self.turns = turns
        self.limits = limits
        self.model = getattr(engine, "model", None)  # type: ignore[assignment]  # bound later
        self.version = engine.version
        self.capabilities = engine.capabilities

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return the completions; those of episodes have a transcript.

        Raises:
            ValueError: if more than ``max_failed`` of the episodes fail, each of them twice.
        """
        done: dict[int, Completion] = {}

        def finished(indices: Sequence[int], completions: Sequence[Completion]) -> None:
            done.update(zip(indices, completions, strict=True))
            if on_finished is not None:
                on_finished(indices, completions)

        rows = self._rows(requests)
        first = [
            replace(r, sampling=self._sampling(r, r.sampling.max_tokens))
            if r.problem is not None and r.problem.environment
            else r
            for r in requests
        ]
        by_itself = all(row.environment.in_background for row in rows.values())
        try:
            if isinstance(self.engine, JoiningEngine) and rows and by_itself:
                self._follow(self.engine, first, rows, finished)
            else:
                self._rounds(first, requests, rows, finished)
        finally:
            for row in rows.values():
                row.play.close()
        self._check_failed(list(rows.values()))
        return [done[index] for index in range(len(done))]

    def _rows(self, requests: Sequence[Request]) -> dict[int, Row]:
        rows, index = {}, 0
        for request in requests:
            for sample in request.samples:
                problem = request.problem
                if problem is not None and problem.environment:
                    rows[index] = Row(
                        index=index,
                        request=request,
                        sample=sample,
                        problem=problem,
                        environment=self.environments[problem.environment],
                    )
                index += 1
        return rows

    def _sampling(self, request: Request, left: int) -> Any:
        """Return how a turn is sampled with so many tokens left."""
        most = min(left, self.limits.max_turn_tokens or left)
        stop = (*request.sampling.stop, *self.turns.stop)
        return replace(request.sampling, max_tokens=most, stop=stop)

    def _next_turn(self, row: Row) -> Request:
        sampling = self._sampling(row.request, row.left)
        named = {"prompt": row.prompt(), "samples": (row.name(),), "sampling": sampling}
        return replace(row.request, **named)

    def _follow(
        self,
        engine: JoiningEngine,
        requests: Sequence[Request],
        rows: Mapping[int, Row],
        finished: OnFinished,
    ) -> None:
        """Let each episode go on by itself, while others are sampled and others' tools work."""
        lock, feed = threading.Lock(), RequestFeed(sum(len(r.samples) for r in requests))
        places: dict[int, int] = {}  # of turns after the first
        left, is_over = set(rows), False

        def go_on(row: Row, step: StepResult | BaseException) -> None:
            play = row.play
            with lock:
                if is_over:
                    return
                self._answered(row, step)
                ended, begins_again = row.ended is not None, row.play is not play
                if not ended:
                    places[feed.add(self._next_turn(row))] = row.index
            if ended or begins_again:
                play.close()  # without the lock: it may take its time
            if ended:
                with lock:
                    if is_over:
                        return
                    finished([row.index], [self._completion(row)])
                    left.remove(row.index)
                    if not left:
                        feed.end()

        def stepped(row: Row, step: StepResult | BaseException) -> None:
            try:
                go_on(row, step)
            except Exception as error:  # for the thread that waits
                feed.end(error)
            except BaseException as error:  # it would end the event loop there
                feed.end(RuntimeError(f"an environment's thread was ended by {error!r}"))

        def sampled(indices: Sequence[int], completions: Sequence[Completion]) -> None:
            with lock:
                for index, completion in zip(indices, completions, strict=True):
                    row = rows.get(places.get(index, index))
                    if row is None:
                        finished([index], [completion])
                    else:
                        steps.begin(row, self._take(row, completion))

        try:
            with Steps(self.limits, stepped) as steps:
                engine.stream_joined(requests, sampled, feed)
        finally:
            with lock:
                is_over = True

    def _rounds(
        self,
        first: Sequence[Request],
        requests: Sequence[Request],
        rows: Mapping[int, Row],
        finished: OnFinished,
    ) -> None:
        """Sample a turn of every unfinished episode at a time.

        Limits are rounded up to powers of two, as far as the longest request allows, and what is
        too much is cut again: rows of unlike limits then decode together.
        """
        longest = max((len(r.prompt) + r.sampling.max_tokens for r in requests), default=0)

        def rounded(request: Request) -> Request:
            most = 1 << (request.sampling.max_tokens - 1).bit_length()
            if len(request.prompt) + most > longest:
                return request
            return replace(request, sampling=replace(request.sampling, max_tokens=most))

        self._round(first, range(sum(len(r.samples) for r in requests)), rows, finished)
        while active := [row for row in rows.values() if row.ended is None]:
            turns = [rounded(self._next_turn(row)) for row in active]
            self._round(turns, [row.index for row in active], rows, finished)

    def _round(
        self,
        requests: Sequence[Request],
        places: Sequence[int],
        rows: Mapping[int, Row],
        finished: OnFinished,
    ) -> None:
        """Sample one turn of each row and let its environment answer, some while others decode."""
        with Steps(self.limits) as steps:
            waiting: dict[int, Completion] = {}

            def sampled(indices: Sequence[int], completions: Sequence[Completion]) -> None:
                for index, completion in zip(indices, completions, strict=True):
                    place = places[index]
                    row = rows.get(place)
                    if row is None:
                        finished([place], [completion])
                    elif row.environment.in_background:
                        steps.begin(row, self._take(row, completion))
                    else:
                        waiting[place] = completion

            self.engine.stream(requests, sampled)
            if waiting:
                self._step_in_turn(steps, rows, waiting)
            for place in sorted(set(places) & rows.keys()):
                row, play = rows[place], rows[place].play
                self._answered(row, steps.wait(row))
                if row.ended is not None or row.play is not play:
                    play.close()
                if row.ended is not None:
                    finished([place], [self._completion(row)])

    def _step_in_turn(
        self, steps: Steps, rows: Mapping[int, Row], waiting: Mapping[int, Completion]
    ) -> None:
        """Let environments answer one episode after the other; warn if that takes long."""
        names = sorted({rows[place].problem.environment for place in waiting})
        slow = (
            f"data.environments: {', '.join(names)} answered {SLOW_S:g} s long, one episode after"
            " the other; in_background: true lets limits.num_threads steps run at once, where"
            " several threads may call it"
        )
        with warned_if_slow(SLOW_S, slow):
            for place in sorted(waiting):
                steps.begin(rows[place], self._take(rows[place], waiting[place]))
                steps.wait(rows[place])

    def _take(self, row: Row, completion: Completion) -> Reply:
        """Append a turn of the model; return it as the environment reads it."""
        assert completion.token_ids is not None, "an engine without tokens is refused before"
        most = self._sampling(row.request, row.left).max_tokens
        if completion.num_tokens > most:
            completion = _cut(completion, most)
        assert completion.token_ids is not None
        row.parts.append((completion, completion.token_ids))
        row.ends.append(row.num_tokens)
        tokenizer: Any = self.model.tokenizer
        ids = completion.token_ids.tolist()
        if ids and ids[-1] in self.model.end_ids():
            ids = ids[:-1]
        reply = self.turns.read(tokenizer.decode(ids), completion.finished)
        text = str(tokenizer.decode(ids, skip_special_tokens=True))
        row.texts.append(text)
        row.num_calls += len(reply.calls)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if reply.calls:
            message["tool_calls"] = [  # tools may change their arguments
                {"name": call.name, "arguments": copy.deepcopy(dict(call.arguments))}
                for call in reply.calls
            ]
        row.messages.append(message)
        return replace(reply, text=text)

    def _answered(self, row: Row, step: StepResult | BaseException) -> None:
        """Record the environment's answer, and decide whether the episode goes on."""
        if isinstance(step, BaseException):
            row.error = step
            row.attempts += 1
            if row.attempts < ATTEMPTS:
                row.restart()
                return
            status: Status = "timeout" if isinstance(step, TimeoutError) else "error"
            row.verdict = Verdict(
                value=0.0, status=status, canonical=None, reason=in_one_line(step)
            )
            row.ended = "failed"
            return
        row.rewards.append(step.reward)
        row.num_invalid += step.invalid
        row.invalid_in_a_row = row.invalid_in_a_row + 1 if step.invalid else 0
        last = row.parts[-1][0]
        assert last is not None
        if not step.messages:
            row.verdict, row.answer = step.verdict, step.answer
            row.ended = "environment" if step.verdict is not None else "answered"
            if not last.finished:
                row.ended = "length"
        elif not last.finished:
            row.ended = "length"
        elif row.invalid_in_a_row >= self.limits.max_invalid:
            row.ended = "invalid"
        elif len(row.texts) >= self.limits.max_turns:
            row.ended = "turns"
        else:
            self._observe(row, step)

    def _observe(self, row: Row, step: StepResult) -> None:
        """Append the environment's messages, cut to the limit; end where no turn has room then."""
        most = self.limits.max_observation_tokens
        messages, ids = observe(self.model.tokenizer, self.turns, step.messages, most)
        if len(ids) >= row.left:
            row.ended = "length"
            return
        device = row.parts[-1][1].device
        row.parts.append((None, torch.tensor(ids, dtype=torch.long, device=device)))
        row.messages += messages

    def _completion(self, row: Row) -> Completion:
        """Return an episode as one completion."""
        ids, logps, versions, written = [], [], [], []
        for turn, ids_T in row.parts:
            ids.append(ids_T)
            written.append(torch.full(ids_T.shape, turn is None, device=ids_T.device))
            if turn is None or turn.logps is None:
                logps.append(torch.zeros(len(ids_T), device=ids_T.device))
                versions.append(torch.full((len(ids_T),), -1, dtype=torch.int32))
            else:
                logps.append(turn.logps)
                versions.append(turn.versions_T().cpu())
        first = row.parts[0][0]
        assert first is not None and row.ended is not None
        candidates = None
        if first.candidates is not None:  # so of every turn
            own = [(turn and turn.candidates, ids_T) for turn, ids_T in row.parts]
            candidates = Candidates.joined([c or Candidates.alone(ids_T) for c, ids_T in own])
        by_itself = row.ended in ("answered", "environment")
        return Completion(
            token_ids=torch.cat(ids),
            logps=torch.cat(logps),
            finish_reason="stop" if by_itself else "length",
            version=first.version,
            version_T=torch.cat(versions),
            environment_T=torch.cat(written),
            candidates=candidates,
            transcript=Transcript(
                messages=tuple(row.messages),
                text=self.turns.answer(row.texts) if row.answer is None else row.answer,
                ended=row.ended,
                verdict=row.verdict,
                turn_ends=tuple(row.ends),
                turn_rewards=tuple(row.rewards),
                num_calls=row.num_calls,
                num_invalid=row.num_invalid,
                seconds=row.play.seconds,
            ),
        )

    def _check_failed(self, rows: Sequence[Row]) -> None:
        failed = [row for row in rows if row.ended == "failed"]
        if len(failed) > self.limits.max_failed * len(rows):
            last = failed[-1]
            assert last.error is not None
            raise ValueError(
                f"data.environments: {len(failed)} of {len(rows)} episodes failed, each of them"
                f" twice; {last.problem.environment!r} last with {in_one_line(last.error)}; more"
                f" than limits.max_failed: {self.limits.max_failed} end the run"
            ) from last.error


def with_environments(
    engine: RolloutEngine,
    environments: Mapping[str, Environment],
    turns: TurnFormat,
    limits: TurnLimits,
) -> RolloutEngine:
    """Return ``engine``, or what plays episodes with it where there are environments.

    Raises:
        ValueError: if the engine returns no tokens to go on from.
    """
    if not environments:
        return engine
    if not engine.capabilities.tokens:
        raise ValueError(
            f"engine: {type(engine).__name__} returns no token ids, which turns are appended to;"
            " use r1lit.rollout.InProcessEngine"
        )
    return EpisodeEngine(engine, environments, turns, limits)


class Steps:
    """Runs steps of environments in threads, each for limited seconds from its own start.

    A step that takes longer is given up: its thread cannot be stopped, but it holds nobody up, nor
    the process at its end. Use as a context manager.

    Args:
        limits: ``seconds`` of one step, and ``num_threads``.
        on_end: called with a row and what its step came to, from the step's or a timer's thread;
            ``wait`` returns it if left out.
    """

    def __init__(
        self,
        limits: TurnLimits,
        on_end: Callable[[Row, StepResult | BaseException], None] | None = None,
    ) -> None:
        self.seconds = limits.seconds
        self._free = threading.Semaphore(limits.num_threads)
        self._done: dict[int, StepResult | BaseException] = {}
        self._change = threading.Condition()
        self._on_end = on_end
        self._closed = False

    def begin(self, row: Row, reply: Reply) -> None:
        """Begin the step of a row."""
        play, once = row.play, threading.Lock()
        late = TimeoutError(f"a step took longer than limits.seconds: {self.seconds}")

        def end(found: StepResult | BaseException) -> None:
            if once.acquire(blocking=False):  # the step's own end, or its time's
                self._free.release()
                self._end(row, found)

        def run() -> None:
            self._free.acquire()
            if self._closed:  # given up while it waited for its turn
                self._free.release()
                return
            timer = threading.Timer(min(self.seconds, threading.TIMEOUT_MAX), end, [late])
            timer.daemon = True
            try:
                timer.start()
                found: StepResult | BaseException = play.step(row, reply)
            except BaseException as error:  # the environment's fault: tried again, then counted
                found = error
            timer.cancel()
            end(found)

        threading.Thread(target=run, daemon=True, name="environment").start()

    def _end(self, row: Row, found: StepResult | BaseException) -> None:
        with self._change:
            if self._closed:
                return
            if self._on_end is None:
                self._done[row.index] = found
                self._change.notify_all()
        if self._on_end is not None:
            self._on_end(row, found)

    def wait(self, row: Row) -> StepResult | BaseException:
        """Return the outcome of a row's step: a result, or the environment's fault."""
        with self._change:
            while row.index not in self._done:
                self._change.wait(1.0)
            return self._done[row.index]

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *_: object) -> None:
        with self._change:
            self._closed = True


def _cut(completion: Completion, length: int) -> Completion:
    """Return a completion as a limit of so many tokens would have cut it."""

    def first(values_T: Tensor | None) -> Tensor | None:
        return None if values_T is None else values_T[:length]

    return replace(
        completion,
        token_ids=first(completion.token_ids),
        logps=first(completion.logps),
        version_T=first(completion.version_T),
        finish_reason="length",
    )
