"""Receipts for weights: exact digests of what servers hold, compared with the policy's.

A probe of log-probs has a tolerance, and the updates of a low learning rate stay within it. A
receipt has none: one changed element of one tensor is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from r1lit.rollout.vllm_worker.r1lit_vllm_digest import digest

Place = Mapping[str, Any]
"""Of a worker's receipt: ``digest``, ``keys``, ``count`` and ``dtype`` of one place of a tensor."""
MODULUS = 1 << 64


class Receipt:
    """The digests of a policy's tensors, by name.

    Args:
        weights: named tensors, whole; read once.
        dtypes: that servers hold weights in.
    """

    def __init__(
        self, weights: Iterable[tuple[str, Tensor]], dtypes: Iterable[torch.dtype]
    ) -> None:
        self.shapes: dict[str, list[int]] = {}
        self._digests: dict[str, dict[str, int]] = {}
        self._keys: dict[str, int] = {}
        others = set(dtypes)
        for name, tensor in weights:
            self.shapes[name] = list(tensor.shape)
            kinds = {tensor.dtype} | (others if tensor.is_floating_point() else set())
            self._digests[name] = {_named(kind): digest(tensor.to(kind)) for kind in kinds}
            self._keys[name] = digest_of_ones(tensor.numel(), tensor.device)

    def differences(
        self, held: Sequence[Mapping[str, Sequence[Place]]]
    ) -> tuple[list[str], list[str]]:
        """Return the tensors that servers hold otherwise, and those that cannot be compared.

        Parts in several workers add up to a tensor's digest, and a tensor that is there m times has
        m times its digest. A tensor that vLLM converts, or reads no place of, cannot be compared;
        one that is tied to another is read under that one's name.

        Args:
            held: of each worker, by name, the places that hold a tensor.
        """
        wrong, unread, read = [], [], set()
        for name, shape in self.shapes.items():
            places = [place for worker in held for place in worker.get(name, ())]
            copies, left = divmod(
                sum(p["count"] for p in places), max(torch.Size(shape).numel(), 1)
            )
            known = {p["dtype"] for p in places} <= self._digests[name].keys()
            all_keys = sum(int(p["keys"]) for p in places) % MODULUS
            if left or not copies or not known or all_keys != copies * self._keys[name] % MODULUS:
                unread.append(name)
                continue
            (kind,) = {p["dtype"] for p in places}
            expected = self._digests[name][kind]
            found = sum(int(p["digest"]) for p in places) % MODULUS
            if found == copies * expected % MODULUS:
                read.add((expected, kind))
            else:
                wrong.append(name)
        tied = {n for n in unread if read & {(d, k) for k, d in self._digests[n].items()}}
        return wrong, [name for name in unread if name not in tied]


@cache
def digest_of_ones(size: int, device: torch.device) -> int:
    """Return the digest of so many ones: the sum of their places' keys, alike in each transfer."""
    return digest(torch.ones(1, dtype=torch.uint8, device=device).expand(size))


def _named(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
