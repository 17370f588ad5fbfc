"""Checkpoints that were damaged, cut or cannot be written, and folders that two runs want."""

from __future__ import annotations

import multiprocessing
import os
import resource
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from r1lit.callbacks import IterationCheckpoint
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
