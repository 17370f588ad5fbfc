"""In bfloat16 a response is the same to the bit, whatever else is drawn with it.

A resumed evaluation draws the missing responses alone, and must end as if nothing had happened.
"""

from __future__ import annotations

from pathlib import Path

import drawing
import pytest
import torch
from families import save_tiny
from tiny_models import make_policy, make_tokenizer

from r1lit.device.cpu.machine import has_fast_bfloat16
from r1lit.policy import ModelSource, load_policy, load_tokenizer
from r1lit.policy.support import enable_packed
from r1lit.rollout import InProcessEngine, Sampling

MINI = Path(__file__).parents[2] / "models/mini"
GROUP_SIZE = 2

fast = pytest.mark.skipif(not has_fast_bfloat16(), reason="no fast bfloat16 here")


@pytest.fixture(scope="module")
def draw():
    policy, tokenizer = (
        load_policy(ModelSource(str(MINI), dtype="bfloat16")),
        load_tokenizer(str(MINI)),
    )
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(40, 95, (96,), generator=generator).tolist()
    prompts = [torch.randint(3, 1400, (n,), generator=generator).tolist() for n in [*lengths, 117]]

    def draw(chosen: list[int], group: list[int]):
        samples = [GROUP_SIZE * p + g for p in chosen for g in group]
        return drawing.draw(
            policy, tokenizer, [prompts[p] for p in chosen], len(group), samples=samples,
            compile=False, max_tokens=2,
        )  # fmt: skip

    return draw


@fast
@pytest.mark.parametrize("chosen", [range(96), range(0, 96, 3), range(60, 62), [5]])
@pytest.mark.parametrize("group", [[0, 1], [1]])
def test_neighbours_change_no_bit(draw, chosen, group):
    together, apart = draw(list(range(97)), [0, 1]), draw(list(chosen), group)
    rows = [GROUP_SIZE * p + g for p in chosen for g in group]
    width = apart.response_BT.shape[1]
    assert torch.equal(together.response_BT[rows, :width], apart.response_BT)
    assert torch.equal(together.logp_BT[rows, :width], apart.logp_BT)
    assert apart.logp_BT.std() > 0 or len(rows) == 1


@fast
@pytest.mark.parametrize("name", ["gpt2", "llama", "phi3", "olmo2"])
def test_so_it_is_for_models_of_linear_layers_under_bf16_mixed(name, tmp_path: Path):
    """Conv1D is one; experts are not, and their rows depend on neighbours by rounding."""
    policy, tokenizer = load_policy(save_tiny(tmp_path, name)).eval(), make_tokenizer()
    prompts = [list(range(3 + p, 9 + 2 * p)) for p in range(24)]
    with torch.autocast("cpu", torch.bfloat16):
        together = drawing.draw(policy, tokenizer, prompts, 4, compile=False, max_tokens=6)
        for p in (0, 7, 23):
            samples = [4 * p + 1, 4 * p + 2]
            apart = drawing.draw(
                policy, tokenizer, [prompts[p]], 2, samples=samples, compile=False, max_tokens=6
            )
            width = apart.response_BT.shape[1]
            assert torch.equal(together.response_BT[samples, :width], apart.response_BT)
            assert torch.equal(together.logp_BT[samples, :width], apart.logp_BT)


def test_a_row_alone_ends_once_and_is_one_row():
    policy, tokenizer = make_policy("qwen3"), make_tokenizer()
    assert enable_packed(policy) is None
    with torch.no_grad():  # ends soon
        policy.model.get_output_embeddings().weight[tokenizer.eos_token_id] += 0.6
    told = []
    engine = drawing.bound(InProcessEngine(compile=False), policy, tokenizer)
    requests = drawing.requests_for([[1, 50, 60]], 1, Sampling(max_tokens=90), samples=[3])
    (alone,) = engine.generate(requests, lambda rows, ended: told.append((rows, ended)))
    assert alone.token_ids.shape == alone.logps.shape and alone.finish_reason == "stop"
    assert len(alone.token_ids) < 90
    assert [rows for rows, _ in told] == [[0]] and told[0][1][0] is alone
