"""A run that is killed and resumed leaves the same numbers as one that was not."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import tracemalloc
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import SingleDeviceStrategy
from tiny_run import TinyModule, trainer_of

from r1lit.callbacks import (
    CurveWriter,
    EvaluateFirst,
    GroupHealth,
    IterationCheckpoint,
    MajorityVoteEvaluation,
    ReferenceRefresh,
    ReflectionWords,
    ResponseLength,
    ResponseTable,
    checkpoints,
)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class KillAt(pl.Callback):
    """Kills the process in a hook once that many iterations are finished."""

    def __init__(self, hook: str, finished: int) -> None:
        def killer(trainer, pl_module, *arguments, **named):
            if int(pl_module.iteration) == finished:
                kill()

        setattr(self, hook, killer)


def fit(folder: Path, every: int, extra: tuple[pl.Callback, ...] = ()) -> pl.Trainer:
    callbacks = [
        EvaluateFirst(),
        CurveWriter(str(folder), draw_every_n_iterations=0),  # before those whose numbers it keeps
        IterationCheckpoint(str(folder / "checkpoints"), every_n_iterations=every),
        ReferenceRefresh(every_n_iterations=2),
        MajorityVoteEvaluation(),
        ResponseLength(),
        ReflectionWords(window=2, min_rate=0.01),
        GroupHealth(),
        ResponseTable(str(folder), every_n_iterations=1),
        *extra,
    ]
    trainer = trainer_of(folder, callbacks, val_check_interval=2)
    last = folder / "checkpoints" / "last.ckpt"
    trainer.fit(TinyModule(num_train=7), ckpt_path=str(last) if last.exists() else None)
    return trainer


def fit_and_be_killed(folder: Path, every: int, extra: tuple = (), before=lambda: None) -> None:
    def child() -> None:
        before()
        fit(folder, every, extra)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


def numbers(folder: Path) -> dict[str, object]:
    def timeless(record: dict) -> dict:
        return {key: value for key, value in record.items() if key != "seconds"}

    lines = {
        name: [timeless(json.loads(line)) for line in (folder / name).read_text().splitlines()]
        for name in ("metrics.jsonl", "responses.jsonl")
    }
    summary = [timeless(e) for e in json.loads((folder / "summary.json").read_text())]
    weights = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=False)
    return {**lines, "summary": summary, "weights": weights["state_dict"]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[dict, dict]:
    """An uninterrupted run: its files and what its logger saw."""
    folder = tmp_path_factory.mktemp("whole")
    trainer = fit(folder, every=1)
    return numbers(folder), trainer.logger.by_step()


def assert_resumes_exactly(folder: Path, every: int, whole: tuple[dict, dict]) -> None:
    trainer = fit(folder, every)
    assert trainer.global_step == 14  # two updates for each of seven iterations
    assert numbers(folder) == whole[0]
    assert trainer.logger.by_step() == whole[1]


def test_the_whole_run_is_what_the_comparisons_assume(whole):
    files, logged = whole
    assert [line["iteration"] for line in files["metrics.jsonl"]] == list(range(7))
    assert [e["iteration"] for e in files["summary"]] == [0, 2, 4, 6, 7]
    assert {step for step, key in logged if key == "train/loss"} == set(range(7))
    # an evaluation is logged at the step of the iteration before it, the first one at 0
    assert {step for step, key in logged if key == "val/pass_at_1"} == {0, 1, 3, 5, 6}
    assert len(files["responses.jsonl"]) == 7 * 8 + 5 * 2 * 2 * 4
    assert files["summary"][-1]["onset"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hook", "finished", "every"),
    [
        ("on_train_batch_start", 3, 1),  # the checkpoint after 3 follows no evaluation
        ("on_train_batch_start", 4, 1),  # the checkpoint after 4 follows an evaluation
        ("on_validation_start", 4, 1),  # between an iteration and its evaluation
        ("on_validation_batch_end", 4, 1),  # within it
        ("on_train_batch_start", 5, 3),  # two iterations and an evaluation past a checkpoint
        ("on_train_batch_end", 7, 4),  # the last iteration is done again
        ("on_validation_end", 6, 3),  # the checkpoint due here is not yet written
    ],
)
def test_killed_and_resumed(tmp_path, whole, hook, finished, every):
    fit_and_be_killed(tmp_path, every, (KillAt(hook, finished),))
    assert_resumes_exactly(tmp_path, every, whole)


@pytest.mark.slow
def test_killed_before_the_first_checkpoint_starts_over(tmp_path, whole):
    fit_and_be_killed(tmp_path, 3, (KillAt("on_train_batch_start", 2),))
    assert not (tmp_path / "checkpoints" / "last.ckpt").exists()
    assert_resumes_exactly(tmp_path, 3, whole)


def test_killed_twice(tmp_path, whole):
    fit_and_be_killed(tmp_path, 1, (KillAt("on_validation_start", 2),))
    fit_and_be_killed(tmp_path, 1, (KillAt("on_train_batch_start", 5),))
    assert_resumes_exactly(tmp_path, 1, whole)


def test_killed_while_writing_a_checkpoint(tmp_path, whole):
    def half_written() -> None:
        def save(trainer, filepath, *arguments, **named):
            if int(trainer.lightning_module.iteration) == 4:
                Path(filepath).write_bytes(b"half a checkpoint")
                kill()
            original(trainer, filepath, *arguments, **named)

        original, pl.Trainer.save_checkpoint = pl.Trainer.save_checkpoint, save

    fit_and_be_killed(tmp_path, 1, before=half_written)
    saved = torch.load(tmp_path / "checkpoints" / "last.ckpt", weights_only=False)
    assert int(saved["state_dict"]["iteration"]) == 3
    assert_resumes_exactly(tmp_path, 1, whole)


@pytest.mark.long
def test_killed_between_writing_a_checkpoint_and_renaming_it(tmp_path, whole):
    def before_renaming() -> None:
        def replace_path(new, path):
            saved = torch.load(new, weights_only=False)
            if int(saved["state_dict"]["iteration"]) == 3:
                kill()
            original(new, path)

        original = checkpoints.replace_path
        checkpoints.replace_path = replace_path

    fit_and_be_killed(tmp_path, 1, before=before_renaming)
    assert_resumes_exactly(tmp_path, 1, whole)


def test_resuming_a_finished_run_changes_nothing(tmp_path, whole):
    fit(tmp_path, 1)
    assert_resumes_exactly(tmp_path, 1, whole)


def test_training_seconds_add_up_over_resumes(tmp_path):
    fit_and_be_killed(tmp_path, 1, (KillAt("on_train_batch_start", 3),))
    first = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])["seconds"]
    fit(tmp_path, 1)
    seconds = [json.loads(s)["seconds"] for s in (tmp_path / "metrics.jsonl").open()]
    assert 0 < first <= seconds[3] and seconds == sorted(seconds)


@pytest.mark.parametrize(("interval", "keep"), [(0, None), (2, 3), (2, 0)])
def test_checkpoint_intervals_must_fit(interval, keep):
    with pytest.raises(ValueError, match="every_n_iterations"):
        IterationCheckpoint("x", every_n_iterations=interval, keep_every_n_iterations=keep)


def test_kept_checkpoints_outlive_last(tmp_path):
    checkpoint = IterationCheckpoint(str(tmp_path), keep_every_n_iterations=2)
    trainer_of(tmp_path, [checkpoint]).fit(TinyModule(num_train=5))
    kept = {
        path.name: int(torch.load(path, weights_only=False)["state_dict"]["iteration"])
        for path in tmp_path.glob("*.ckpt")
    }
    assert kept == {"iteration-2.ckpt": 2, "iteration-4.ckpt": 4, "last.ckpt": 5}


def test_a_checkpoint_is_not_made_in_memory_first(tmp_path):
    """Python's own allocations are counted; a buffer of bytes is one, a tensor none."""
    module = TinyModule(num_train=2)
    module.register_buffer("large", torch.ones(8_000_000))
    tracemalloc.start()
    try:
        trainer_of(tmp_path, [IterationCheckpoint(str(tmp_path))]).fit(module)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16_000_000 < 32_000_000 < (tmp_path / "last.ckpt").stat().st_size


def test_a_checkpoint_is_read_where_it_lies(tmp_path):
    if not Path("/proc/self/maps").exists():
        pytest.skip("needs Linux to say what is mapped")

    class Looks(TinyModule):
        def on_load_checkpoint(self, checkpoint):
            mapped.append("last.ckpt" in Path("/proc/self/maps").read_text())

    mapped: list[bool] = []
    trainer_of(tmp_path, [IterationCheckpoint(str(tmp_path))]).fit(TinyModule(num_train=2))
    trainer = trainer_of(tmp_path, [IterationCheckpoint(str(tmp_path))])
    trainer.fit(Looks(num_train=3), ckpt_path=str(tmp_path / "last.ckpt"))
    assert mapped == [True]


def test_another_s_way_to_write_a_checkpoint_is_kept(tmp_path):
    class Remembers(TorchCheckpointIO):
        def save_checkpoint(self, checkpoint, path, storage_options=None):
            written.append(Path(path).name)
            super().save_checkpoint(checkpoint, path, storage_options)

    written: list[str] = []
    callbacks = [IterationCheckpoint(str(tmp_path))]
    trainer_of(tmp_path, callbacks, plugins=[Remembers()]).fit(TinyModule(num_train=2))
    assert written == [f".last.ckpt.{os.getpid()}.tmp"] * 2


def test_counting_iterations_after_the_checkpoint_is_an_error(tmp_path):
    class CountsLate(TinyModule):
        def training_step(self, batch, batch_idx):
            outputs = super().training_step(batch, batch_idx)
            self.iteration -= 1
            return outputs

        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.iteration += 1

    with pytest.raises(ValueError, match="within training_step"):
        trainer_of(tmp_path, [IterationCheckpoint(str(tmp_path))]).fit(CountsLate())


class Fails(pl.Callback):
    """Ends a run before anything is saved; in ``on_train_start`` the first evaluation is."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self._fail)

    def _fail(self, *arguments) -> None:
        raise RuntimeError("out of luck")


@pytest.mark.parametrize("hook", ["on_train_start", "on_train_batch_start"])
def test_a_run_that_ended_before_it_saved_leaves_nothing_to_resume(
    tmp_path: Path, hook: str
) -> None:
    """Of a trainer by hand; the command line does not begin in a used folder."""
    folder = tmp_path / "checkpoints"
    trainer_of(tmp_path, [IterationCheckpoint(str(folder))]).fit(TinyModule())
    old = (folder / "last.ckpt").read_bytes()
    with pytest.raises(RuntimeError, match="out of luck"):
        trainer_of(tmp_path, [IterationCheckpoint(str(folder)), Fails(hook)]).fit(TinyModule())
    assert not (folder / "last.ckpt").exists()
    assert (folder / "previous.ckpt").read_bytes() == old


class RestoresLate(SingleDeviceStrategy):
    """As strategies that shard: what a run goes on from is known only once models are set up."""

    restore_checkpoint_after_setup = True


def test_a_strategy_that_restores_late_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    last = str(folder / "last.ckpt")
    for num_finished, resumed in ((2, None), (4, last)):
        module = TinyModule(num_train=4)
        callbacks = [IterationCheckpoint(str(folder)), EvaluateFirst()]
        settings = {"strategy": RestoresLate("cpu"), "max_steps": 2 * num_finished}
        trainer_of(tmp_path, callbacks, **settings).fit(module, ckpt_path=resumed)
        assert int(module.iteration) == num_finished
    assert not (folder / "previous.ckpt").exists()


def test_a_strategy_that_restores_late_sets_an_old_run_aside_too(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    trainer_of(tmp_path, [IterationCheckpoint(str(folder))]).fit(TinyModule())
    callbacks = [IterationCheckpoint(str(folder)), EvaluateFirst(), Fails("on_validation_end")]
    with pytest.raises(RuntimeError, match="out of luck"):
        trainer_of(tmp_path, callbacks, strategy=RestoresLate("cpu")).fit(TinyModule())
    assert [path.name for path in folder.glob("*.ckpt")] == ["previous.ckpt"]
