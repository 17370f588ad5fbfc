"""Checkpoints that were damaged, cut or cannot be written, and folders that two runs want."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from filelock import FileLock
from tiny_run import TinyModule, trainer_of

from r1lit.callbacks import EvaluateFirst, IterationCheckpoint
from r1lit.callbacks.checkpoints import StreamedCheckpointIO


def write(path: Path) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    state = {"a": torch.randn(50, 40), "b": torch.arange(300), "c": torch.randn(3).bfloat16()}
    StreamedCheckpointIO().save_checkpoint(state, path)
    return state


def read(path: Path) -> dict[str, torch.Tensor]:
    return StreamedCheckpointIO().load_checkpoint(path, weights_only=True)


def test_a_flipped_bit_anywhere_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    state = write(path)
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 37):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
        try:
            found = read(path)
        except ValueError as error:
            assert "\n" not in str(error) and "is damaged" in str(error)
            refused += 1
        else:  # padding and repeated headers
            assert all(torch.equal(found[name], state[name]) for name in state)
    assert refused * 37 > 0.8 * sum(tensor.nbytes for tensor in state.values())


def test_a_flipped_bit_of_the_archive_s_directory_is_one_error(tmp_path: Path) -> None:
    """Flags, offsets and sizes: each reader of archives fails in its own way."""
    path = tmp_path / "last.ckpt"
    state = write(path)
    whole = path.read_bytes()
    directory = whole.index(b"PK\x01\x02")
    bits = [(place, bit) for place in range(directory, len(whole)) for bit in range(8)]
    kinds = set()
    for place, bit in bits[::7]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        try:
            found = read(path)
            kinds.add("same")
            assert all(torch.equal(found[name], state[name]) for name in state)
        except ValueError as error:
            kinds.add("refused")
            assert "\n" not in str(error) and "is damaged" in str(error)
    assert kinds == {"same", "refused"}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_cut_checkpoint_is_an_error(tmp_path: Path, share: float) -> None:
    path = tmp_path / "last.ckpt"
    write(path)
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(ValueError, match=r"ckpt_path: .*last\.ckpt is damaged"):
        read(path)


def test_a_disk_without_room_is_one_line_and_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    state = write(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(ValueError, match=r"cannot be written to .* \(File too large\)"):
            StreamedCheckpointIO().save_checkpoint(state, tmp_path / "new.tmp")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert torch.equal(read(path)["a"], state["a"])


@pytest.mark.long
def test_a_folder_is_one_run_s(tmp_path: Path, fit) -> None:
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    held, release = multiprocessing.Event(), multiprocessing.Event()

    def hold() -> None:
        with FileLock(folder / ".lock"):
            held.set()
            release.wait(60)

    other = multiprocessing.get_context("fork").Process(target=hold)
    other.start()
    assert held.wait(30)
    try:
        with pytest.raises(ValueError, match="dirpath: another run is training in"):
            fit("run")
    finally:
        release.set()
        other.join()
    assert not (folder / "last.ckpt").exists()


def test_what_a_kill_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".last.ckpt.123.tmp").write_bytes(b"half")
    callback = IterationCheckpoint(str(tmp_path))
    callback._take_folder()
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    callback._release_folder()


def test_a_checkpoint_that_cannot_be_written_leaves_no_part_of_it(tmp_path: Path) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        with pytest.raises(ValueError, match="cannot be written"):
            write(tmp_path / ".last.ckpt.1.tmp")

    process = multiprocessing.get_context("fork").Process(target=limited)
    process.start()
    process.join(60)
    assert process.exitcode == 0 and not list(tmp_path.iterdir())


def test_a_disk_without_room_for_a_checkpoint_is_refused_before_the_first_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module of 3 numbers in float32 and int64, under SGD: 4 + 8 + 4 bytes."""

    class Noted(TinyModule):
        def on_validation_start(self) -> None:
            evaluated.append(int(self.iteration))

    for free, refused in ((15, True), (16, False)):
        evaluated: list[int] = []
        module = Noted(num_train=2)
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr("r1lit.callbacks.checkpoints.shutil.disk_usage", lambda _, u=usage: u)
        trainer = trainer_of(tmp_path / str(free), [EvaluateFirst(), IterationCheckpoint()])
        if refused:
            with pytest.raises(ValueError, match=r"^dirpath: .* free and a checkpoint takes"):
                trainer.fit(module)
            assert not evaluated and not list((tmp_path / str(free)).rglob("*.ckpt*"))
        else:
            trainer.fit(module)
            assert evaluated[0] == 0


@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_long_iteration_is_saved_before_it_is_due_unless_that_waits_for_rollouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fresh: bool
) -> None:
    """The third of four iterations is due, and the last; the others count as long."""

    class Noted(TinyModule):
        def on_save_checkpoint(self, checkpoint: dict) -> None:
            made.append(int(self.iteration))

    made: list[int] = []
    module = Noted(num_train=4)
    module.is_fresh = is_fresh
    monkeypatch.setattr("r1lit.callbacks.checkpoints.EXTRA_SHARE", 1e9)
    callback = IterationCheckpoint(every_n_iterations=3, grace_s=0)
    trainer_of(tmp_path, [callback], limit_val_batches=0).fit(module)
    assert made == ([1, 2, 3, 4] if is_fresh else [3, 4])


def test_saving_what_is_not_due_takes_a_bounded_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock ticks once a reading: a checkpoint takes 1, an iteration with its checks some 4."""
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: float(next(ticks)))
    monkeypatch.setattr("r1lit.callbacks.checkpoints.time", clock)
    saved = {}
    for share in (1.0, 0.1):
        made: list[int] = []

        class Noted(TinyModule):
            def on_save_checkpoint(self, checkpoint: dict, made: list[int] = made) -> None:
                made.append(int(self.iteration))

        monkeypatch.setattr("r1lit.callbacks.checkpoints.EXTRA_SHARE", share)
        callback = IterationCheckpoint(every_n_iterations=100, grace_s=0)
        trainer_of(tmp_path / str(share), [callback], limit_val_batches=0).fit(Noted(num_train=12))
        saved[share] = made
    assert saved[1.0] == list(range(1, 13))
    assert 3 <= len(saved[0.1]) <= 6 and {1, 12} <= set(saved[0.1])


@pytest.mark.parametrize("is_slow", [False, True])
def test_before_any_checkpoint_its_cost_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    """The second of four iterations is due, and tells what a checkpoint costs in truth."""
    made: list[int] = []

    class Noted(TinyModule):
        def on_save_checkpoint(self, checkpoint: dict) -> None:
            made.append(int(self.iteration))

    monkeypatch.setattr("r1lit.callbacks.checkpoints.EXTRA_SHARE", 1e6)
    monkeypatch.setattr("r1lit.callbacks.checkpoints.SLOW_DISK", 1e-9 if is_slow else 1e9)
    callback = IterationCheckpoint(every_n_iterations=2, grace_s=0)
    trainer_of(tmp_path, [callback], limit_val_batches=0).fit(Noted(num_train=4))
    assert made == ([2, 3, 4] if is_slow else [1, 2, 3, 4])
