"""Rollouts from vLLM servers, which are given the policy's weights as training goes on.

T response tokens
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor
from torch import distributed as dist

from r1lit.client import RequestError
from r1lit.policy import LogProbs, Policy, Responses, evaluating
from r1lit.rollout.engine import (
    Completion,
    ModelSpec,
    OnFinished,
    Request,
    RolloutEngine,
    collect,
)
from r1lit.rollout.fleet import Fleet
from r1lit.rollout.vllm_process import VLLMProcess, find_python
from r1lit.rollout.vllm_server import VLLMServer, Weights, units
from r1lit.rollout.weights_folder import write_weights
from r1lit.settings import check_at_least

PROBE_TEXT = "If 3 + 4 = 7 and 7 - 2 = 5, then 2 * 5 + 7 = 17. What is 17 - 9?"
PROBE_TOKENS = 32
TOLERANCE = {torch.float32: 1e-3}
ROUNDED = 0.05  # of 16-bit weights, whose log-probs differ by some 0.01 on average
REPLY_SAMPLES = 64


class VLLMEngine(RolloutEngine):
    """Generates on vLLM servers; each update's weights reach them as a folder of safetensors.

    Requests are spread over the servers, whoever has least to do first. A request whose server
    dies, hangs, restarts or answers with an error is drawn by another, or by the same once it is
    back and has the weights: no response is dropped. The seed of a sample is a function of (seed,
    iteration, sample), so that a run can be repeated as far as the servers' batches round alike.

    After each transfer a text's log-probs are compared with the policy's own, and the run stops if
    they differ. What a server generates from other weights than the policy's is not taken.
    Log-probs are those of what is sampled: with top-k or top-p they are renormalised.

    Args:
        urls: of servers that run already, ``http://127.0.0.1:8000``, each with the options of
            docs/SCALE_OUT.md, and on machines that see ``weights_dir``.
        serve: start one on this machine, and stop it with the run.
        python: a Python that has vLLM, for ``serve``; that of R1LIT_VLLM_PYTHON or of ``make vllm``
            if left out.
        flags: options of the served vLLM, such as ``{max-model-len: 4096}``.
        concurrency: requests under way at each server; one asks for the samples of a group.
        timeout_s: seconds one request may take, and one transfer of weights.
        hang_s: seconds without any answer after which a server counts as hung.
        patience_s: seconds without any server after which the run stops.
        weights_dir: where weights are passed on; in the run folder if left out.
        tolerance: what the mean difference of log-probs may be after a transfer; 0.001 in float32
            and 0.05 in other dtypes if left out.
        api_key_env: the environment variable that holds the key, if the servers want one.
    """

    whole_distribution = False
    in_background = True

    def __init__(
        self,
        urls: Sequence[str] = (),
        serve: bool = False,
        python: str | None = None,
        flags: dict[str, Any] | None = None,
        concurrency: int = 32,
        timeout_s: float = 3600.0,
        hang_s: float = 60.0,
        patience_s: float = 600.0,
        weights_dir: str | None = None,
        tolerance: float | None = None,
        api_key_env: str = "OPENAI_API_KEY",
    ) -> None:
        if bool(urls) == serve:
            raise ValueError(
                f"urls: {list(urls)} with serve: {str(serve).lower()}; give the urls of running"
                " servers, or serve: true to start one"
            )
        if isinstance(urls, str):
            raise ValueError(f"urls: {urls!r} is not a list, as [{urls}]")
        check_at_least("concurrency", concurrency, 1)
        for key, value in (("hang_s", hang_s), ("patience_s", patience_s)):
            if not value > 0:
                raise ValueError(f"{key}: {value} is not a positive number of seconds")
        self._python = find_python(python) if serve else ""
        self._flags = dict(flags or {})
        self.concurrency = concurrency
        self._options = (timeout_s, hang_s, api_key_env)
        self._patience_s = patience_s
        self._weights_dir = weights_dir
        self._tolerance = tolerance
        self._process: VLLMProcess | None = None
        self._fleet: Fleet[VLLMServer] | None = None
        self._servers = [VLLMServer(url, *self._options) for url in urls]

    def bind(self, model: ModelSpec) -> None:
        """Generate from ``model`` from now on; start the server, or look at those there are.

        Raises:
            ValueError: if a server does not answer, serves another model or lacks an option.
        """
        super().bind(model)
        if self._fleet is not None:
            self._fleet.close()
        self._run = _from_first(secrets.token_hex(4))
        if self._weights_dir is None and model.folder is None:
            self._weights_dir = _from_first(tempfile.mkdtemp(prefix="r1lit-weights-"))
            weakref.finalize(self, shutil.rmtree, self._weights_dir, ignore_errors=True)
        own = None if model.folder is None else model.folder / "weights"
        self._folder = Path(self._weights_dir or own or "").absolute()
        if self._python and not self._servers:
            url = None
            if _rank() == 0:
                log = (model.folder or self._folder).absolute() / "vllm.log"
                self._process = VLLMProcess(self._python, model, self._flags, log)
                self._process.start()
                url = self._process.url
            self._servers = [VLLMServer(_from_first(url), *self._options)]
        elif not self._python:
            for server in self._servers:
                try:
                    server.check(model)
                except RequestError as error:
                    raise ValueError(
                        f"urls: no vLLM server answers at {server.url} ({error}); start it first,"
                        " or let serve: true do it"
                    ) from error
        self._fleet = Fleet(self._servers, self._bring_up, self._patience_s)
        ids = model.tokenizer(PROBE_TEXT)["input_ids"][:PROBE_TOKENS]
        self._probe = tuple(ids) if len(ids) > 1 else model.end_ids() * 2

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Hand the weights over to all servers; see ``RolloutEngine.update_weights``.

        A server that cannot be reached gets them later. All ranks call it.

        Raises:
            ValueError: if a server refuses them, or its log-probs are not the policy's afterwards,
                or none is there for ``patience_s``.
        """
        assert self.model.policy is not None
        self._expected_T = log_probs(self.model.policy, self._probe)
        folder = self._folder / f"{self._run}-{version}"
        names: list[str] = []
        if _rank() == 0:
            names = write_weights(folder, weights)
        else:
            for _ in weights:  # sharded ones are gathered by all ranks together
                pass
        self._weights = Weights(
            folder=folder,
            names=tuple(_from_first(names)),
            version=version,
            label=f"{self._run}-{version}",
        )
        assert self._fleet is not None
        self._fleet.renew()
        if _rank() == 0:
            for old in self._folder.iterdir():
                if old.is_dir() and old != folder:
                    shutil.rmtree(old, ignore_errors=True)
        self.version = version

    def generate(
        self, requests: Sequence[Request], on_finished: OnFinished | None = None
    ) -> list[Completion]:
        """Return the completions; see ``RolloutEngine.generate`` and ``stream``."""
        return collect(self.stream, requests, on_finished)

    def stream(self, requests: Sequence[Request], on_finished: OnFinished) -> None:
        """Hand completions over as their requests end; see ``RolloutEngine.stream``.

        Raises:
            ValueError: if a response may become longer than a server takes, or a request is
                refused, or no server is there for ``patience_s``.
        """
        if self.version is None:
            policy = self.model.policy
            assert policy is not None
            self.update_weights(policy.named_weights(), 0)
        assert self._fleet is not None
        known = [server for server in self._servers if server.max_model_len]
        limit = min(server.max_model_len for server in known)
        for request in requests:
            if len(request.prompt) + request.sampling.max_tokens > limit:
                raise ValueError(
                    f"max_tokens: {request.sampling.max_tokens} after a prompt of"
                    f" {len(request.prompt)} tokens exceeds the servers' --max-model-len of {limit}"
                )
        samples = min(REPLY_SAMPLES, *(server.max_num_seqs for server in known))
        self._fleet.share(
            list(units(requests, samples)),
            lambda server, unit: server.begin(unit, self.model),
            lambda server, unit, reply: server.finish(unit, reply, self._weights),
            lambda unit, done: on_finished(range(unit.start, unit.start + len(done)), done),
            self.concurrency,
        )

    def close(self) -> None:
        """Stop the server that was started here, and bring none back any more."""
        if self._fleet is not None:
            self._fleet.close()
        if self._process is not None:
            self._process.stop()
        if self._python:
            self._process, self._servers = None, []

    def describe(self) -> dict[str, Any]:
        """Return what a report says about this engine."""
        return {"engine": "VLLMEngine", "servers": len(self._servers), "flags": self._flags}

    def _bring_up(self, server: VLLMServer) -> None:
        """Have a server hold the newest weights; runs in a thread of the fleet.

        Raises:
            ValueError: if it is not the right one, or its log-probs are not the policy's.
            RequestError: if it does not answer.
        """
        if self._process is not None:
            self._process.wait()
        weights, expected_T = self._weights, self._expected_T
        name = re.sub(r"\W+", "-", server.url)
        with FileLock(self._folder / f".{name}.lock", timeout=self._options[0]):  # against ranks
            label = server.label()
            if not server.max_model_len or not label.startswith(f"{self._run}-"):
                server.check(self.model)
            if label != weights.label:
                server.load(weights)
        difference = float((server.score(self._probe, weights) - expected_T).abs().mean())
        assert self.model.policy is not None
        here, there = self.model.policy.dtype, getattr(torch, server.dtype)
        tolerance = self._tolerance
        if tolerance is None:
            tolerance = TOLERANCE.get(here, ROUNDED) if here == there else ROUNDED
        if not difference <= tolerance:
            raise ValueError(
                f"engine: after the transfer of weights {weights.label} log-probs of {server.url}"
                f" differ from the policy's by {difference:.2g} on average (tolerance:"
                f" {tolerance:g}): its weights are stale or in part another model's; restart it,"
                " and go on with --ckpt_path last"
            )


@torch.no_grad()
def log_probs(policy: Policy, ids: tuple[int, ...]) -> Tensor:
    """Return log-probs ``[T]`` of all tokens but the first, in the weights' own dtype."""
    response_BT = torch.tensor([ids[1:]], device=policy.device)
    mask_BT = torch.ones_like(response_BT, dtype=torch.bool)
    responses = Responses(prompts=[ids[:1]], response_BT=response_BT, mask_BT=mask_BT)
    with evaluating(policy), torch.autocast(policy.device.type, enabled=False):
        return policy(responses, LogProbs()).logp_K.float().cpu()


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _from_first(value: Any) -> Any:
    """Return rank 0's ``value`` on every rank."""
    if dist.is_available() and dist.is_initialized():
        values = [value]
        dist.broadcast_object_list(values)
        return values[0]
    return value
