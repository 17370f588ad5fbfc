"""Documents of one row do not see each other, whatever an architecture makes of positions.

Hugging Face models tell packed rows by ``position_ids``; many never pass those to their mask, and
recurrent layers know no mask.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from families import alone, plain, save_tiny
from packaging.version import Version

from benchmarks.architectures import DOCUMENTS, packed_rows
from r1lit.policy import CrossEntropy, LogProbs, ModelSource, ModelTeacher, is_packed, load_policy

LEAKING = [  # by Hugging Face's own forward pass over the packed rows
    *(("falcon", "sdpa"), ("afmoe", "sdpa"), ("gpt_oss", "eager"), ("bloom", "eager")),
    *(("mpt", "eager"), ("xglm", "eager"), ("openai-gpt", "eager"), ("opt", "eager")),
    *(("biogpt", "eager"), ("recurrent_gemma", "sdpa"), ("mamba", "eager"), ("jamba", "sdpa")),
    *(("qwen3_next", "sdpa"), ("lfm2_moe", "sdpa"), ("minimax", "sdpa"), ("rwkv", "eager")),
]
SAFE = [("llama", "sdpa"), ("llama", "eager"), ("mistral", "sdpa"), ("gemma2", "eager")]


def gradient(module: torch.nn.Module) -> torch.Tensor:
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()]
    return torch.cat([part.flatten() for part in parts])


@pytest.mark.filterwarnings("ignore:policy:UserWarning")
@pytest.mark.parametrize(("name", "attention"), LEAKING + SAFE)
def test_packed_is_as_alone_gradients_and_teachers_included(name, attention, tmp_path: Path):
    folder = save_tiny(tmp_path, name, attention)
    policy, model = (
        load_policy(ModelSource(folder, attention=attention)).eval(),
        plain(folder, attention),
    )
    expected_K = torch.cat([alone(model, d[:1], d[1:]) for d in DOCUMENTS])
    assert expected_K.std() > 0.3, "a near uniform policy would prove nothing"
    rows = packed_rows()
    torch.testing.assert_close(policy(rows, LogProbs()).logp_K, expected_K, rtol=0, atol=1e-4)

    loss = policy(rows, CrossEntropy()).cross_entropy
    loss.backward()
    (-expected_K.sum()).backward()
    assert loss.item() == pytest.approx(-expected_K.sum().item(), rel=1e-5)
    change = gradient(policy) - gradient(model)
    assert change.norm() < 1e-4 * gradient(model).norm()

    teacher = ModelTeacher(ModelSource(folder, attention=attention))
    teacher.load(torch.device("cpu"))
    said_K = teacher.score_documents(rows).target_logp(rows.input_ids_RL[rows.loss_mask_RL], 1.0)
    torch.testing.assert_close(said_K, expected_K.detach(), rtol=0, atol=1e-4)


@pytest.mark.parametrize(("name", "attention"), LEAKING)
@torch.no_grad()
def test_these_do_leak_when_rows_are_handed_over_packed(name, attention, tmp_path: Path):
    if name == "falcon" and Version(transformers.__version__) >= Version("5.24"):
        pytest.skip("falcon's own code keeps packed documents apart since transformers 5.24")
    model = plain(save_tiny(tmp_path, name, attention), attention)
    rows = packed_rows()
    takes = {"position_ids": rows.position_ids_RL}
    try:
        logits = model(input_ids=rows.input_ids_RL, **takes, use_cache=False).logits
    except TypeError:
        logits = model(input_ids=rows.input_ids_RL, use_cache=False).logits
    logp_RLV = logits[:, :-1].log_softmax(-1)
    target_K = rows.input_ids_RL[rows.loss_mask_RL]
    packed_K = logp_RLV[rows.loss_mask_RL[:, 1:]].gather(-1, target_K[:, None]).squeeze(-1)
    expected_K = torch.cat([alone(model, d[:1], d[1:]) for d in DOCUMENTS])
    assert (packed_K - expected_K).abs().max() > 0.01


def test_one_plain_line_says_so(tmp_path: Path):
    folder = save_tiny(tmp_path, "falcon")
    with pytest.warns(UserWarning) as said:
        policy = load_policy(folder)
    lines = [str(w.message) for w in said if "padded rows" in str(w.message)]
    assert len(lines) == 1 and "one document a row" in lines[0] and "\n" not in lines[0]
    assert not is_packed(policy)


@pytest.mark.parametrize("name", ["cpmant", "xlnet"])
def test_models_whose_tokens_see_what_follows_are_refused(name, tmp_path: Path):
    with pytest.raises(ValueError, match=r"is no causal language model: its log-probs change"):
        load_policy(ModelSource(save_tiny(tmp_path, name, "eager"), attention="eager"))
