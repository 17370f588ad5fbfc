"""The policy: what wraps it sees all of its weights' uses, and dropout is off unless asked for."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from families import save_tiny
from tiny import ROOT
from tiny_models import document_rows, make_policy, response_logp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoTokenizer
from transformers.modeling_layers import GradientCheckpointingLayer

from r1lit.objectives import ForwardKL
from r1lit.policy import (
    CrossEntropy,
    Divergences,
    FullScores,
    LogProbs,
    ModelSource,
    Policy,
    Responses,
    load_policy,
)
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


RATES = {  # as each calls them
    "gpt2": {"resid_pdrop": 0.4, "embd_pdrop": 0.4, "attn_pdrop": 0.4},
    "gpt_neo": {"resid_dropout": 0.4, "embed_dropout": 0.4, "attention_dropout": 0.4},
    "gpt_neox": {"hidden_dropout": 0.4, "attention_dropout": 0.4},
    "llama": {"attention_dropout": 0.4},
    "mistral": {"attention_dropout": 0.4},
    "opt": {"dropout": 0.4, "attention_dropout": 0.4},
    "biogpt": {"hidden_dropout_prob": 0.4, "activation_dropout": 0.4, "layerdrop": 0.4},
    "xglm": {"dropout": 0.4, "activation_dropout": 0.4, "layerdrop": 0.4},
    "bloom": {"hidden_dropout": 0.4, "attention_dropout": 0.4},
    "falcon": {"hidden_dropout": 0.4, "attention_dropout": 0.4},
    "seed_oss": {"residual_dropout": 0.4, "attention_dropout": 0.4},
    "starcoder2": {"residual_dropout": 0.4, "embedding_dropout": 0.4},
    "phi": {"resid_pdrop": 0.4, "embd_pdrop": 0.4},
    "phimoe": {"router_jitter_noise": 0.4},
    "mixtral": {"router_jitter_noise": 0.4, "attention_dropout": 0.4},
}
EAGER = ("gpt_neo", "bloom", "biogpt", "xglm", "opt")
RESPONSES = Responses(
    prompts=[[3, 4, 5, 6], [3, 4, 5, 6], [3, 9]],
    response_BT=torch.arange(10, 25).view(3, 5),
    mask_BT=torch.ones(3, 5, dtype=torch.bool),
)


@pytest.mark.filterwarnings("ignore:policy:UserWarning")
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", RATES)
def test_without_dropout_training_computes_what_evaluation_does(name, checkpointing, tmp_path):
    attention = "eager" if name in EAGER else "sdpa"
    folder = save_tiny(tmp_path, name, attention, **RATES[name])
    losses, norms = {}, {}
    for dropout in (False, True):
        source = ModelSource(folder, attention=attention)
        policy = load_policy(source, dropout=dropout, gradient_checkpointing=checkpointing)
        assert policy.training
        for mode in (True, False):
            policy.train(mode).zero_grad()
            torch.manual_seed(5)
            loss = policy(RESPONSES, CrossEntropy()).cross_entropy
            loss.backward()
            losses[dropout, mode] = loss.item()
            grads = [p.grad.norm() for p in policy.parameters() if p.grad is not None]
            norms[dropout, mode] = sum(grads).item()
        policy.train()
        if checkpointing and not dropout:
            layers = [m for m in policy.modules() if isinstance(m, GradientCheckpointingLayer)]
            assert layers and all(layer.training for layer in layers), "they go by their own mode"
    assert losses[False, True] == losses[False, False] == losses[True, False]
    assert norms[False, True] == pytest.approx(norms[False, False], rel=1e-5)
    assert losses[True, True] != pytest.approx(losses[True, False], abs=1e-3), (
        "nothing to switch off"
    )


def test_one_line_says_so_where_there_is_any(tmp_path: Path):
    folder = save_tiny(tmp_path / "a", "gpt2", **RATES["gpt2"])
    with pytest.warns(UserWarning, match=r"has dropout \(.*attn_pdrop 0.4.*dropout: true") as said:
        load_policy(folder, dropout=False)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_policy(folder)
        load_policy(save_tiny(tmp_path / "b", "llama"), dropout=False)


def test_a_saved_policy_still_has_its_dropout(tmp_path: Path):
    folder = save_tiny(tmp_path / "a", "gpt2", **RATES["gpt2"])
    with pytest.warns(UserWarning, match="has dropout"):
        load_policy(folder, dropout=False).save_pretrained(tmp_path / "b")
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in "ab"]
    assert configs[0]["resid_pdrop"] == configs[1]["resid_pdrop"] == 0.4


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [None, True])
def test_grpo_trains_what_it_has_drawn(fit, tmp_path: Path, dropout):
    """GPT-2's own default of 0.1 made 0.5 nats of mismatch."""
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models" / "mini")
    folder = save_tiny(
        tmp_path / "gpt2", "gpt2", vocab_size=len(tokenizer), n_positions=512, resid_pdrop=0.1,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    tokenizer.save_pretrained(folder)
    options = {"policy": folder} | ({} if dropout is None else {"dropout": dropout})
    fit("run", {"model": {"init_args": options}})
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line).get("train/mismatch/mean_abs") for line in lines]
    mismatch = [x for x in found if x is not None]
    assert len(mismatch) > 1
    assert all((x > 0.02) if dropout else (x < 1e-4) for x in mismatch), mismatch


@pytest.mark.parametrize("dropout", [False, True])
def test_checkpointed_layers_keep_little_for_the_backward_pass(policy, dropout):
    responses = Responses(
        prompts=[(5, 6, 7)] * 8,
        response_BT=torch.randint(3, 900, (8, 64)),
        mask_BT=torch.ones(8, 64, dtype=torch.bool),
    )

    def kept(checkpointing: bool) -> int:
        loaded = load_policy(str(policy), dropout=dropout, gradient_checkpointing=checkpointing)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, id):
            loaded(responses)
        return sum(sizes)

    assert kept(True) < 0.4 * kept(False)
