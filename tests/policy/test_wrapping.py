"""What wraps a policy sees all that is computed with its weights: hooks, LoRA, DDP and FSDP2."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from tiny_models import document_rows, make_policy, response_logp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from r1lit.objectives import ForwardKL
from r1lit.policy import CrossEntropy, Divergences, FullScores, LogProbs, Policy, Responses
from r1lit.policy.support import enable_packed

PROMPTS = [[1, 50, 60], [1, 50, 60], [1, 9, 8, 7], [1, 9, 8, 7]]
RESPONSE_BT = 3 + torch.arange(24).view(4, 6) * 41 % 200
MASK_BT = torch.arange(6) < torch.tensor([6, 3, 1, 5])[:, None]
DOCUMENTS = (
    torch.tensor([[1, 20, 30, 40, 1, 99, 98, 97], [1, 5, 6, 7, 8, 9, 10, 11]]),
    torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7]]),
    torch.tensor([[0, 1, 1, 1, 0, 0, 1, 1], [0, 1, 1, 1, 1, 1, 1, 0]]).bool(),
)
RANKS = 2
CASES = [(kind, task) for kind in ("llama", "mistral") for task in ("rl", "sft", "distillation")]


def tied_policy(name: str) -> Policy:
    policy = make_policy(name)
    policy.model.lm_head.weight = policy.model.model.embed_tokens.weight
    assert (enable_packed(policy) is None) == (name == "llama")
    return policy.train()


def responses(rows: slice = slice(None)) -> Responses:
    return Responses(prompts=PROMPTS[rows], response_BT=RESPONSE_BT[rows], mask_BT=MASK_BT[rows])


def loss_of(policy: nn.Module, task: str, rows: slice, teacher: nn.Module) -> Tensor:
    """A sum over the tokens of some responses, or of one row of documents."""
    if task == "rl":
        part = responses(rows)
        logp_BT = part.to_rows(policy(part, LogProbs(temperature=0.7)).logp_K)
        return (logp_BT * torch.linspace(-1, 2, 4)[rows, None]).sum()
    documents = document_rows(*(x[rows.start // 2 : rows.stop // 2] for x in DOCUMENTS))
    if task == "sft":
        return policy(documents, CrossEntropy()).cross_entropy
    scores = FullScores.of(teacher, documents)
    output = policy(documents, Divergences(teacher=scores, divergence=ForwardKL(), with_logp=True))
    return output.divergence_K.sum() - output.logp_K.sum()


def gradients(policy: nn.Module) -> dict[str, Tensor]:
    found = {}
    for name, parameter in policy.named_parameters():
        grad = parameter.grad
        found[name.removeprefix("module.")] = (
            grad.full_tensor() if hasattr(grad, "full_tensor") else grad.clone()
        )
    return found


def rank_of_two(rank: int, folder: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    found: dict[str, dict[str, Tensor]] = {}
    rows = slice(2 * rank, 2 * rank + 2)
    for name, task in CASES:
        for wrapper in ("ddp", "fsdp"):
            teacher = make_policy("qwen2").requires_grad_(False)
            assert enable_packed(teacher) is None
            policy: nn.Module = tied_policy(name)
            if wrapper == "ddp":
                policy = DistributedDataParallel(policy)
            else:
                for each in (policy, teacher):
                    for layer in each.layers:
                        fully_shard(layer, mesh=mesh)
                    fully_shard(each, mesh=mesh)
            loss = loss_of(policy, task, rows, teacher)
            loss.backward()
            found[f"{wrapper} {name} {task}"] = {"loss": loss.detach(), **gradients(policy)}
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def of_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Tensor]]]:
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(rank_of_two, (str(folder),), nprocs=RANKS)
    return [torch.load(folder / f"{rank}.pt") for rank in range(RANKS)]


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", ["ddp", "fsdp"])
@pytest.mark.parametrize(("name", "task"), CASES)
def test_two_ranks_have_the_losses_and_gradients_of_one_process(of_ranks, wrapper, name, task):
    policy, teacher = tied_policy(name), make_policy("qwen2").requires_grad_(False)
    assert enable_packed(teacher) is None
    losses = [loss_of(policy, task, slice(2 * r, 2 * r + 2), teacher) for r in range(RANKS)]
    (sum(losses) / RANKS).backward()  # both wrappers average over ranks
    expected = gradients(policy)
    for rank, loss in enumerate(losses):
        found = dict(of_ranks[rank][f"{wrapper} {name} {task}"])
        torch.testing.assert_close(found.pop("loss"), loss.detach(), rtol=1e-5, atol=1e-5)
        assert found.keys() == expected.keys()
        for key, gradient in expected.items():
            size = float(gradient.abs().max())
            assert size > 1e-4, f"{key} learns nothing"
            torch.testing.assert_close(found[key], gradient, rtol=1e-4, atol=1e-5 * max(1.0, size))


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_hooks_fire_once_a_forward_pass(name):
    policy, teacher = tied_policy(name), make_policy("qwen2")
    calls = []
    policy.register_forward_hook(lambda *_: calls.append("policy"))
    policy.layers[0].register_forward_hook(lambda *_: calls.append("layer"))
    policy.register_full_backward_hook(lambda *_: calls.append("backward"))
    for task in ("rl", "sft", "distillation"):
        calls.clear()
        for rows in (slice(0, 2), slice(2, 4)):
            loss_of(policy, task, rows, teacher).backward()
        assert calls == ["layer", "policy", "backward"] * 2, task


@pytest.mark.parametrize("on", ["policy", "its model"])
def test_lora_learns_in_its_adapters_alone(on, tmp_path: Path):
    peft = pytest.importorskip("peft", reason="pip install peft: LoRA is optional")
    policy = tied_policy("llama")
    before = response_logp(policy, PROMPTS, RESPONSE_BT, MASK_BT).logp_BT.detach()
    targets = ["q_proj", "v_proj", "down_proj", *(["lm_head"] if on == "policy" else [])]
    config = peft.LoraConfig(r=4, target_modules=targets)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if on == "policy":
            wrapped = peft.get_peft_model(policy, config)
        else:
            policy.model = peft.get_peft_model(policy.model, config)
            wrapped = policy
    assert torch.equal(response_logp(wrapped, PROMPTS, RESPONSE_BT, MASK_BT).logp_BT, before) or (
        on == "policy"  # an adapter on the head: its logits are made another way
    )
    learning = {n: p for n, p in wrapped.named_parameters() if p.requires_grad}
    assert learning and all("lora_" in name for name in learning)
    optimizer = torch.optim.SGD(learning.values(), lr=0.05)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = -wrapped(responses()).logp_K.mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.01, losses
    assert all(p.grad.abs().max() > 0 for n, p in learning.items()), "an adapter was passed by"
    reached = {t for t in targets if any(t in name for name in learning)}
    assert reached == set(targets)
    if on == "its model":
        # the merged model is a plain Hugging Face model that says the same
        expected = response_logp(policy, PROMPTS, RESPONSE_BT, MASK_BT).logp_BT
        policy.model = policy.model.merge_and_unload()
        merged = response_logp(policy, PROMPTS, RESPONSE_BT, MASK_BT).logp_BT
        torch.testing.assert_close(merged, expected, rtol=1e-4, atol=1e-4)
