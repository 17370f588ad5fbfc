import torch
from torch import nn

from r1lit.modules.base import clip_gradients, gradient_norm


def test_clipping_is_pytorch_s():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 13), nn.Tanh(), nn.Linear(13, 5))
    reference = nn.Sequential(nn.Linear(24, 13), nn.Tanh(), nn.Linear(13, 5))
    reference.load_state_dict(model.state_dict())
    for of in (model, reference):
        of(torch.ones(2, 24)).sum().backward()
    optimizer = torch.optim.AdamW(model.parameters())
    norm = gradient_norm(optimizer)
    assert norm == torch.nn.utils.clip_grad_norm_(reference.parameters(), 0.5) > 0.5
    clip_gradients(optimizer, 0.5, norm)
    for mine, its in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(mine.grad, its.grad)


def test_without_gradients_the_norm_is_0():
    assert gradient_norm(torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=1.0)) == 0
