"""AdamW with its moments in a file, against PyTorch's own."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from r1lit import on_disk, optimizers
from r1lit.optimizers import OffloadedAdamW, clip_gradients, gradient_norm

SETTINGS = {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-6, "weight_decay": 0.1}


@pytest.fixture(autouse=True)
def several_slices(monkeypatch):
    for module in (on_disk, optimizers):
        monkeypatch.setattr(module, "AT_ONCE", 1 << 14)


def make_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(240, 180), nn.Tanh(), nn.Linear(180, 3, bias=False)).to(dtype)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """Make updates of two micro-batches each, clipped."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(8, 240, generator=generator).to(next(model.parameters()).dtype)
        optimizer.zero_grad()
        for half in inputs.split(4):
            model(half).square().sum().backward()
        clip_gradients(optimizer, 1.0, gradient_norm(optimizer))
        optimizer.step()


def assert_same(model: nn.Module, reference: nn.Module) -> None:
    torch.testing.assert_close(model.state_dict(), reference.state_dict())


def offloaded(model: nn.Module, folder: Path, **settings) -> OffloadedAdamW:
    return OffloadedAdamW(model.parameters(), **{**SETTINGS, **settings}, folder=str(folder))


def adamw(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), **SETTINGS, fused=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gradients", [False, True])
def test_updates_are_those_of_adamw(tmp_path, dtype, gradients):
    model, reference = make_model(dtype), make_model(dtype)
    optimizer, its = offloaded(model, tmp_path, gradients=gradients), adamw(reference)
    for optimiser, of in ((optimizer, model), (its, reference)):
        scheduler = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.1, total_iters=5)
        for step in range(6):
            train(of, optimiser, range(step, step + 1))
            scheduler.step()
    assert_same(model, reference)
    assert not torch.equal(model[0].weight, make_model(dtype)[0].weight)


@pytest.mark.parametrize("gradients", [False, True])
def test_nothing_of_the_file_stays_in_memory(tmp_path, gradients):
    model = nn.Linear(1000, 500)
    optimizer = offloaded(model, tmp_path, gradients=gradients)
    optimizer.zero_grad()
    model(torch.ones(3, 1000)).sum().backward()
    assert (file_kb(tmp_path, "Size") > 5000) == gradients, "2 MB each"
    for step in (lambda: None, lambda: gradient_norm(optimizer), optimizer.step):
        step()
        # a fault may bring what is around it, a few pages
        assert file_kb(tmp_path, "Rss") < 200 < file_kb(tmp_path, "Size")
    assert all(list(state) == ["step"] for state in optimizer.state.values())
    assert not list(tmp_path.iterdir()), "the file has no name"


def file_kb(folder: Path, key: str) -> int:
    """What this process has mapped of files in a folder, by /proc/self/smaps."""
    try:
        lines = Path("/proc/self/smaps").read_text().splitlines()
    except OSError:
        pytest.skip("needs Linux to say what is in memory")
    ours, total = False, 0
    for line in lines:
        name, *rest = line.split()
        if not name.endswith(":"):
            ours = str(folder) in line
        elif ours and name == f"{key}:":
            total += int(rest[0])
    return total


def test_a_run_resumes_from_either_with_the_other(tmp_path):
    reference = make_model()
    train(reference, adamw(reference), range(6))
    for first, second in (
        (lambda m: offloaded(m, tmp_path), adamw),
        (adamw, lambda m: offloaded(m, tmp_path)),
        (lambda m: offloaded(m, tmp_path), lambda m: offloaded(m, tmp_path)),
    ):
        model = make_model()
        optimizer = first(model)
        train(model, optimizer, range(3))
        torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / "saved.pt")
        train(model, optimizer, range(3, 6))
        assert_same(model, reference)

        resumed = make_model()
        optimizer = second(resumed)
        weights, state = torch.load(tmp_path / "saved.pt")
        resumed.load_state_dict(weights)
        optimizer.load_state_dict(state)
        train(resumed, optimizer, range(3, 6))
        assert_same(resumed, reference)


@pytest.mark.parametrize("gradients", [False, True])
def test_a_parameter_that_no_gradient_comes_to_stays(tmp_path, gradients):
    model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    optimizer = offloaded(model, tmp_path, gradients=gradients)
    for used in (0, 1):
        before = copy.deepcopy(model)
        optimizer.zero_grad()
        model[used](torch.ones(1, 4)).sum().backward()
        clip_gradients(optimizer, 1.0, gradient_norm(optimizer))
        optimizer.step()
        assert not torch.equal(model[used].weight, before[used].weight)
        assert torch.equal(model[1 - used].weight, before[1 - used].weight)


def test_a_parameter_that_is_frozen_stays(tmp_path):
    model = make_model()
    model[0].weight.requires_grad_(False)
    before = copy.deepcopy(model)
    optimizer = offloaded(model, tmp_path)
    train(model, optimizer, range(2))
    assert torch.equal(model[0].weight, before[0].weight)
    assert not torch.equal(model[2].weight, before[2].weight)
    assert len(optimizer.state_dict()["state"]) == 2
    model[0].weight.requires_grad_(True)
    train(model, optimizer, range(1))
    assert not torch.equal(model[0].weight, before[0].weight)


def test_a_group_that_comes_later(tmp_path):
    model, reference = make_model(), make_model()
    made = []
    for of, kind, more in (
        (model, OffloadedAdamW, {"folder": str(tmp_path)}),
        (reference, torch.optim.AdamW, {"fused": True}),
    ):
        optimizer = kind(of[0].parameters(), **SETTINGS, **more)
        optimizer.add_param_group({"params": of[2].parameters(), "lr": 0.2})
        train(of, optimizer, range(3))
        made.append(of)
    assert_same(*made)


@pytest.mark.parametrize("gradients", [False, True])
def test_gradients_that_are_not_the_file_s_count(tmp_path, gradients):
    """Before the first ``zero_grad``, after the model's own, and one put there by hand."""
    model, reference = make_model(), make_model()
    for optimizer, of in (
        (offloaded(model, tmp_path, gradients=gradients), model),
        (adamw(reference), reference),
    ):
        of(torch.ones(2, 240)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        of.zero_grad()
        of(torch.ones(2, 240)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        of[2].weight.grad = torch.ones(3, 180)
        assert gradient_norm(optimizer) == pytest.approx(540**0.5)
        optimizer.step()
    assert_same(model, reference)


def test_a_state_from_before_the_first_step_starts_over(tmp_path):
    model, reference = make_model(), make_model()
    optimizer, its = offloaded(model, tmp_path), adamw(reference)
    fresh = copy.deepcopy(optimizer.state_dict())
    train(model, optimizer, range(3))
    optimizer.load_state_dict(fresh)
    model.load_state_dict(reference.state_dict())
    train(model, optimizer, range(2))
    train(reference, its, range(2))
    assert_same(model, reference)


def test_another_s_state_is_refused(tmp_path):
    optimizer = offloaded(make_model(), tmp_path)
    model = nn.Sequential(nn.Linear(180, 240), nn.Linear(240, 1, bias=False))
    other = adamw(model)
    model(torch.ones(1, 180)).sum().backward()
    other.step()
    with pytest.raises(ValueError, match=r"shape \(240, 180\) for a parameter of shape \(180, 240"):
        optimizer.load_state_dict(other.state_dict())
    variant = torch.optim.AdamW(make_model().parameters(), amsgrad=True)
    with pytest.raises(ValueError, match="amsgrad: true in the saved optimiser"):
        optimizer.load_state_dict(variant.state_dict())


def test_parameters_that_are_not_contiguous_or_empty(tmp_path):
    with pytest.raises(ValueError, match=r"shape \(4, 3\) is not contiguous"):
        OffloadedAdamW([nn.Parameter(torch.ones(3, 4).T)], folder=str(tmp_path))
    parameters = [nn.Parameter(torch.ones(0)), nn.Parameter(torch.ones(2))]
    optimizer = OffloadedAdamW(parameters, folder=str(tmp_path), gradients=True)
    optimizer.zero_grad()
    sum(parameter.sum() for parameter in parameters).backward()
    optimizer.step()
    assert (parameters[1] < 1).all()


def test_many_parameters_take_few_open_files(tmp_path):
    parameters = [nn.Parameter(torch.ones(3)) for _ in range(300)]
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else None
    optimizer = OffloadedAdamW(parameters, folder=str(tmp_path))
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before + 1
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3)) for _ in range(300)]})
    parameters += optimizer.param_groups[1]["params"]
    for parameter in parameters:
        parameter.grad = torch.ones(3)
    optimizer.step()
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before + 2
    assert all(bool((parameter < 1).all()) for parameter in parameters)


def test_clipping_is_pytorch_s(tmp_path):
    model, reference = make_model(), make_model()
    for of in (model, reference):
        of(torch.ones(2, 240)).sum().backward()
    norm = gradient_norm(adamw(model))
    assert norm == torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5) > 0.5
    clip_gradients(adamw(model), 0.5, norm)
    for mine, its in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(mine.grad, its.grad)


def test_gradients_of_another_device(tmp_path):
    with pytest.raises(ValueError, match=r"gradients: true, but a parameter is on meta"):
        offloaded(make_model().to("meta"), tmp_path, gradients=True)


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(ValueError, match=r"folder: .*missing.* is none"):
        offloaded(make_model(), tmp_path / "missing")


def test_a_disk_without_room(tmp_path, monkeypatch):
    usage = on_disk.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(on_disk.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(ValueError, match=r"folder: .* 0\.0 GB left and the optimiser needs 0\.0"):
        offloaded(make_model(), tmp_path)
