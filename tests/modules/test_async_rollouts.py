"""Rollouts drawn ahead: of which weights, each once and whole, and the same ones after a kill."""

from __future__ import annotations

import copy
import json
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from test_ddp import fit_in_a_process
from test_fsdp2 import exported, sharded
from test_resume import assert_equal, everything, run_and_kill
from tiny import (
    CORRECTION,
    DigitShare,
    ahead,
    data,
    grpo_config,
    merge,
    model,
    save_policy_that_ends,
    step,
)

from r1lit.cli import main
from r1lit.collect import Ahead
from r1lit.modules import GRPOModule
from r1lit.modules.token_values import token_values
from r1lit.objectives import GRPO
from r1lit.rollout import Capabilities, Completion, InProcessEngine, Sampling
from r1lit.rollout.engine import stream_to_list
from r1lit.rollout.stored_completions import as_tensors, completions_of

UPDATES = 2  # of an iteration
DEADLINE_S = 60


def corrected(k: int, **init_args: Any) -> dict[str, Any]:
    """Rollouts generated so many iterations ahead, with a correction; 0 are fresh ones."""
    return model(**({"collector": ahead(k)} if k else {}) | {"steps": [CORRECTION]} | init_args)


def dynamic(k: int) -> dict[str, Any]:
    inner = {"inner": ahead(k)} if k else {}
    return {"class_path": "r1lit.collect.DynamicSampling", "init_args": inner}


def own(name: str) -> str:
    return f"test_async_rollouts.{name}"


class Keep(Callback):
    """Keeps the weights that each iteration begins with, and its rollout."""

    def __init__(self) -> None:
        self.weights: list[dict[str, torch.Tensor]] = []
        self.rollouts: list[Any] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.weights.append(copy.deepcopy(pl_module.policy.state_dict()))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *args: Any) -> None:
        self.rollouts.append(outputs["rollout"])


class FailAt(Callback):
    """Ends the run with an error once ``iteration`` has been trained, before it is saved."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        if int(pl_module.iteration) == self.iteration + 1:
            raise RuntimeError("failed on purpose")


class Noting(InProcessEngine):
    """Notes the iteration of each rollout and the version that draws it."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: list[tuple[int, int, int | None]] = []

    def stream(self, requests: Any, on_finished: Any) -> None:
        first = requests[0]
        self.drawn.append((first.seed, first.iteration, self.version))
        super().stream(requests, on_finished)


class OwnWeights(Noting):
    """Draws with a copy of the policy, and ends no rollout before the policy has been updated."""

    capabilities = Capabilities(runs="beside updates")

    def bind(self, spec: Any) -> None:
        self.trained = spec.policy
        super().bind(replace(spec, policy=copy.deepcopy(spec.policy)))

    def update_weights(self, weights: Any, version: int) -> None:
        self.model.policy.model.load_state_dict(dict(weights))
        super().update_weights((), version)

    def stream(self, requests: Any, on_finished: Any) -> None:
        super().stream(requests, on_finished)
        ends = time.monotonic() + DEADLINE_S
        while threading.current_thread().name == "generate-ahead" and self.is_current():
            assert time.monotonic() < ends, "no update was made while the engine drew"
            time.sleep(0.005)

    def is_current(self) -> bool:
        both = (self.trained, self.model.policy)
        trained, copied = (p.model.get_input_embeddings().weight for p in both)
        return torch.equal(trained, copied)


def callbacks(*names: str, **init_args: Any) -> tuple[str, str]:
    added = [{"class_path": own(name), "init_args": init_args} for name in names]
    return "--trainer.callbacks+", json.dumps(added)


@pytest.mark.parametrize(
    ("k", "engine"), [(1, "OwnWeights"), pytest.param(2, "Noting", marks=pytest.mark.slow)]
)
def test_a_rollout_is_of_the_weights_k_iterations_before(fit, tmp_path: Path, k: int, engine: str):
    """Over the border of an epoch; evaluations in between have the present weights."""
    two_epochs = merge(data(num_iterations=k + 1), {"trainer": {"max_epochs": 2}})
    iterations = range(2 * (k + 1))
    args = callbacks("Keep")
    cli = fit("run", corrected(k, engine={"class_path": own(engine)}), two_epochs, args=args)
    [kept] = [c for c in cli.trainer.callbacks if isinstance(c, Keep)]
    assert len(kept.rollouts) == len(iterations)
    loader = cli.datamodule.train_dataloader()
    for i, rollout in enumerate(kept.rollouts):
        assert rollout.iteration == i and rollout.prompts == loader.batch(i).prompts
        distance = {}
        for of in {max(0, i - k), i}:
            cli.model.policy.load_state_dict(kept.weights[of])
            logp_BT = token_values(cli.model.policy, rollout, 16, 1.0, 4096).logp_BT
            distance[of] = float((logp_BT - rollout.logp_sampler_BT).abs().max())
        assert distance.pop(max(0, i - k)) < 1e-4
        assert all(other > 1e-2 for other in distance.values()), "others are told apart"
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for name in ("mean", "max"):
        found = [line[f"train/staleness/{name}"] for line in lines]
        assert found == [UPDATES * min(i, k) for i in iterations]
    drawn = [(i, version) for seed, i, version in cli.model.engine.drawn if seed == 0]
    wanted = [(i, UPDATES * max(0, i - k)) for i in iterations]
    assert drawn == wanted, "each once, and none past the end"
    evaluated = [(i, version) for seed, i, version in cli.model.engine.drawn if seed]
    assert len(evaluated) > 2 and all(version == UPDATES * i for i, version in evaluated)


class InFlight(OwnWeights):
    """Draws half of each response, and the rest when it has been given new weights."""

    capabilities = Capabilities(runs="through updates")

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()  # held while it generates

    def update_weights(self, weights: Any, version: int) -> None:
        with self.lock:
            super().update_weights(weights, version)

    def stream(self, requests: Any, on_finished: Any) -> None:
        if threading.current_thread().name != "generate-ahead":
            return Noting.stream(self, requests, on_finished)
        half = [replace(r, sampling=replace(r.sampling, max_tokens=4)) for r in requests]
        with self.lock:
            began = self.version
            first = stream_to_list(partial(Noting.stream, self), half, None)
        ends = time.monotonic() + 5
        while self.version == began and time.monotonic() < ends:
            time.sleep(0.005)
        names = [(r, (sample,)) for r in half for sample in r.samples]
        ids = [(*r.prompt, *c.token_ids.tolist()) for (r, _), c in zip(names, first, strict=True)]
        again = [
            replace(r, prompt=prompt, samples=sample, seed=r.seed + 1)
            for (r, sample), prompt in zip(names, ids, strict=True)
        ]
        with self.lock:
            rest = stream_to_list(partial(InProcessEngine.stream, self), again, None)
        for index, (one, other) in enumerate(zip(first, rest, strict=True)):
            parts = (one,) if one.finished else (one, other)
            whole = replace(
                parts[-1],
                token_ids=torch.cat([c.token_ids for c in parts]),
                logps=torch.cat([c.logps for c in parts]),
                version=one.version,
                version_T=torch.cat([c.versions_T() for c in parts]),
            )
            on_finished([index], [whole])


@pytest.mark.parametrize("k", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_each_token_is_of_the_weights_that_it_names(fit, tmp_path: Path, k: int):
    """They change in the middle of responses, where nothing waits for those."""
    writer = {"class_path": "r1lit.callbacks.CurveWriter"}
    quiet = {"trainer": {"limit_val_batches": 0, "callbacks": [writer]}}
    writer["init_args"] = {"dirpath": str(tmp_path / "run"), "draw_every_n_iterations": 0}
    change = merge(quiet, data(num_iterations=k + 2, validation=None))
    args = callbacks("Keep")
    cli = fit("run", corrected(k, engine={"class_path": own("InFlight")}), change, args=args)
    [kept] = [c for c in cli.trainer.callbacks if isinstance(c, Keep)]
    loader = cli.datamodule.train_dataloader()
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [rollout.iteration for rollout in kept.rollouts] == list(range(k + 2))
    for i, (rollout, line) in enumerate(zip(kept.rollouts, lines, strict=True)):
        assert rollout.prompts == loader.batch(i).prompts
        behind = UPDATES * i - rollout.version_BT[rollout.mask_BT]
        assert behind.min() >= 0 and behind.max() <= UPDATES * k
        assert len(behind.unique()) == 1 + (i > 0), "old and new ones"
        assert line["train/staleness/mean"] == pytest.approx(float(behind.float().mean()))
        assert line["train/staleness/max"] == behind.max()
        for version in rollout.version_BT[rollout.mask_BT].unique().tolist():
            cli.model.policy.load_state_dict(kept.weights[version // UPDATES])
            logp_BT = token_values(cli.model.policy, rollout, 16, 1.0, 4096).logp_BT
            own_BT = rollout.mask_BT & (rollout.version_BT == version)
            assert float((logp_BT - rollout.logp_sampler_BT)[own_BT].abs().max()) < 1e-4


def test_versions_of_tokens_are_kept_with_what_is_drawn() -> None:
    of_two = Completion(
        token_ids=torch.tensor([4, 5, 6]),
        logps=torch.zeros(3),
        finish_reason="stop",
        version=2,
        version_T=torch.tensor([2, 2, 4], dtype=torch.int32),
    )
    unknown = replace(of_two, version=None, version_T=None)
    again = completions_of(as_tensors([of_two, unknown]))
    assert [c.versions_T().tolist() for c in again] == [[2, 2, 4], [-1, -1, -1]]
    assert [c.version for c in again] == [2, None]


@pytest.mark.slow
def test_weights_that_stay_give_the_same_run(fit, tmp_path: Path) -> None:
    """Every prompt once and in order, every response whatever its length, reserves too."""
    still = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.0}}
    change = merge(
        model(
            policy=str(save_policy_that_ends(tmp_path / "ends")),
            optimizer=still,
            rewards=[{"class_path": "tiny.ManyDigits"}],
            steps=[step("MaskTruncated"), CORRECTION],
        ),
        data(rollout={"num_reserve_prompts": 4}),
    )
    for k in (0, 2):
        fit(str(k), change, model(collector=dynamic(k)))
    texts = [(tmp_path / str(k) / "responses.jsonl").read_text() for k in (0, 2)]
    assert texts[0] == texts[1] and texts[0].count('"train"') == 6 * 16
    lengths = {json.loads(line)["num_tokens"] for line in texts[0].splitlines()}
    assert len(lengths) > 2, "of several lengths"


@pytest.mark.slow
def test_a_failed_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, policy: Path) -> None:
    """One draws in this thread and is left alone, one in the background and fails."""
    short = data(num_iterations=3)
    whole = grpo_config(tmp_path / "whole", policy, merge(corrected(1), short))
    background = merge(corrected(1, engine={"class_path": own("OwnWeights")}), short)
    broken = grpo_config(tmp_path / "broken", policy, background)
    main(["fit", "-c", str(whole)])
    fail = callbacks("FailAt", iteration=1)
    with pytest.raises(RuntimeError, match="on purpose"):
        main(["fit", "-c", str(broken), *fail])
    saved = torch.load(tmp_path / "broken" / "checkpoints" / "last.ckpt", weights_only=False)
    [(iteration, packed)] = saved["pending_rollouts"].items()
    assert iteration == 1 and len(packed["num_tokens"]) == 16, "the next one's responses"
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    assert_equal(everything(tmp_path / "whole"), everything(tmp_path / "broken"))
    last = torch.load(tmp_path / "whole" / "checkpoints" / "last.ckpt", weights_only=False)
    assert "pending_rollouts" not in last


@pytest.mark.slow
@pytest.mark.parametrize(("k", "kill_at"), [(1, 1), (2, 3), (4, 4)])
def test_killed_and_resumed_is_bit_equal(
    tmp_path: Path, policy: Path, k: int, kill_at: int
) -> None:
    change = merge(corrected(k, collector=dynamic(k)), data(rollout={"num_reserve_prompts": 4}))
    whole, broken = (grpo_config(tmp_path / n, policy, change) for n in ("whole", "broken"))
    main(["fit", "-c", str(whole)])
    run_and_kill(broken, kill_at, tmp_path)
    main(["fit", "-c", str(broken), "--ckpt_path", "last"])
    assert_equal(everything(tmp_path / "whole"), everything(tmp_path / "broken"))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_two_ranks_resume_to_the_bit_and_on_one(tmp_path: Path, policy: Path, strategy: str):
    def on(ranks: int) -> dict[str, Any]:
        if strategy == "fsdp2":
            return sharded(ranks)
        return {"trainer": {"devices": ranks, "strategy": "ddp" if ranks > 1 else "auto"}}

    change = merge(corrected(2), data(num_iterations=4))
    whole, killed = (
        grpo_config(tmp_path / n, policy, merge(change, on(2))) for n in ("whole", "killed")
    )
    done = fit_in_a_process(whole, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    kill = [{"class_path": "modules.test_resume.KillAt", "init_args": {"iteration": 2}}]
    done = fit_in_a_process(killed, tmp_path, "--trainer.callbacks+", json.dumps(kill))
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    alone = grpo_config(tmp_path / "alone", policy, merge(change, on(1)))
    checkpoint = str(tmp_path / "killed" / "checkpoints" / "last.ckpt")
    for config, path in ((alone, checkpoint), (killed, "last")):
        done = fit_in_a_process(config, tmp_path, "--ckpt_path", path)
        assert done.returncode == 0, done.stderr[-3000:]
    expected = exported(tmp_path / "whole")
    for name, weight in exported(tmp_path / "killed").items():
        assert torch.equal(weight, expected[name]), name

    def trained(run: str, iteration: int) -> list[Any]:
        lines = (tmp_path / run / "responses.jsonl").read_text().splitlines()
        read = [json.loads(line) for line in lines]
        return [r for r in read if r["split"] == "train" and r["iteration"] == iteration]

    assert all(trained("killed", i) == trained("whole", i) for i in range(4))
    for i in (2, 3):  # had been drawn when the run was killed; the file has the first rank's half
        texts = [[r["response"] for r in trained(run, i)] for run in ("alone", "whole")]
        assert len(texts[0]) == 16 and texts[0][:8] == texts[1]


@pytest.mark.slow
def test_another_configuration_draws_anew(tmp_path: Path, policy: Path) -> None:
    config = grpo_config(tmp_path / "run", policy, model(collector=ahead(1)))
    with pytest.raises(RuntimeError, match="on purpose"):
        main(["fit", "-c", str(config), *callbacks("FailAt", iteration=2)])
    longer = ["--model.init_args.sampling.max_tokens", "12", "--resume_changed", "true"]
    engine = ["--model.init_args.engine", own("Noting")]
    cli = main(["fit", "-c", str(config), *engine, *longer, "--ckpt_path", "last"])
    drawn = [(i, version) for seed, i, version in cli.model.engine.drawn if seed == 0]
    assert drawn == [(i, UPDATES * max(2, i - 1)) for i in range(2, 6)]


@pytest.mark.long
def test_older_weights_without_a_correction_are_warned_of_before_anything_is_loaded(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loads(*args: Any, **options: Any) -> None:
        raise RuntimeError("loading")

    monkeypatch.setattr("r1lit.modules.rollouts.load_policy", loads)
    config = grpo_config(tmp_path / "run", policy, model(collector=ahead(1)))
    with (
        pytest.warns(
            UserWarning,
            match=r"^model\.collector\.max_staleness: 1 without [^\n]*$",
        ),
        pytest.raises(RuntimeError, match="loading"),
    ):
        main(["fit", "-c", str(config)])


@pytest.mark.long
def test_bad_values_are_one_line(tmp_path: Path, policy: Path) -> None:
    config = grpo_config(tmp_path / "run", policy, model(collector=ahead(0)))
    with pytest.raises(ValueError, match=r"^max_staleness: 0 is not at least 1; [^\n]*$"):
        main(["fit", "-c", str(config)])
    now = grpo_config(tmp_path / "now", policy, model(engine={"class_path": own("InFlight")}))
    with pytest.raises(ValueError, match=r"^engine\.in_flight_updates: .* is Fresh; take"):
        main(["fit", "-c", str(now)])
    module = GRPOModule(
        str(policy),
        objective=GRPO(),
        rewards=[DigitShare()],
        sampling=Sampling(max_tokens=8),
        collector=Ahead(2),
    )
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, max_epochs=1)
    with pytest.raises(ValueError, match=r"^model\.collector\.max_staleness: 2 takes prompts"):
        trainer.fit(module, [0])
