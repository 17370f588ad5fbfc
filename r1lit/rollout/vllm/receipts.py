"""Receipts for weights and adapters: exact digests of what servers hold, and of the policy's.

A probe of log-probs has a tolerance, and the updates of a low learning rate stay within it. A
receipt has none: one changed element of one tensor is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar

import torch
from torch import Tensor

from r1lit.policy.adapter import Adapter
from r1lit.rollout.vllm_worker.r1lit_vllm_digest import digest

Place = Mapping[str, Any]
"""Of a worker's receipt: ``digest``, ``keys``, ``count`` and ``dtype`` of one place of a tensor."""
MODULUS = 1 << 64
LORA_B = ".lora_B."
SCALES: dict[str, Callable[[float, int, bool], float]] = {  # of the policy's own, and its rank
    "1": lambda own, rank, root: 1.0,
    "alpha / rank": lambda own, rank, root: own / math.sqrt(rank) if root else own,
    "alpha / sqrt(rank)": lambda own, rank, root: own if root else own * math.sqrt(rank),
}


class Receipt:
    """The digests of a policy's tensors, by name.

    Args:
        weights: named tensors, whole; read once.
        dtypes: that servers hold weights in.
        scales: what servers multiply tensors by, by name; 1 if left out.
    """

    what: ClassVar[str] = "tensors"
    method: ClassVar[str] = "r1lit_receipt"
    """Of vLLM's workers, which returns their side of it."""

    def __init__(
        self,
        weights: Iterable[tuple[str, Tensor]],
        dtypes: Iterable[torch.dtype],
        scales: Mapping[str, float] | None = None,
    ) -> None:
        self.shapes: dict[str, list[int]] = {}
        self._digests: dict[str, dict[str, int]] = {}
        self._keys: dict[str, int] = {}
        others = set(dtypes)
        for name, tensor in weights:
            self.shapes[name] = list(tensor.shape)
            kinds = {tensor.dtype} | (others if tensor.is_floating_point() else set())
            scale = (scales or {}).get(name, 1)
            held = {kind: tensor.to(kind) for kind in kinds}
            self._digests[name] = {
                _named(kind): digest(x if scale == 1 else x * scale) for kind, x in held.items()
            }
            self._keys[name] = digest_of_ones(tensor.numel(), tensor.device)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``method``."""
        return {"shapes": self.shapes}

    def fault(self, wrong: Sequence[str], held: Sequence[Mapping[str, Sequence[Place]]]) -> str:
        """Return the likely cause of differences."""
        return "they are stale or in part another model's"

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
            kind = self._kind(name, places)
            all_keys = sum(int(p["keys"]) for p in places) % MODULUS
            if left or not copies or not kind or all_keys != copies * self._keys[name] % MODULUS:
                unread.append(name)
                continue
            expected = self._digests[name][kind]
            found = sum(int(p["digest"]) for p in places) % MODULUS
            if found == copies * expected % MODULUS:
                read.add((expected, kind))
            else:
                wrong.append(name)
        tied = {n for n in unread if read & {(d, k) for k, d in self._digests[n].items()}}
        return wrong, [name for name in unread if name not in tied]

    def _kind(self, name: str, places: Sequence[Place]) -> str | None:
        """Return the dtype that a tensor has in all places; None if its digest there is unknown."""
        kinds = {place["dtype"] for place in places}
        return kinds.pop() if len(kinds) == 1 and kinds <= self._digests[name].keys() else None


class AdapterReceipt(Receipt):
    """The digests of an adapter's tensors, B times its layer's scale, as vLLM holds it.

    Args:
        adapter: LoRA; all ranks read it together.
        dtypes: that servers hold adapters in.
        earlier: the receipt of the version before, by whose digests a stale adapter is known.
    """

    what = "adapter's tensors"
    method = "r1lit_adapter_receipt"

    def __init__(
        self,
        adapter: Adapter,
        dtypes: Iterable[torch.dtype],
        earlier: AdapterReceipt | None = None,
    ) -> None:
        stored, kinds = adapter.stored(adapter.gather()), list(dtypes)
        self._rank = int(adapter.settings.r)
        own = {name: adapter.scale_of(name) for name in stored if LORA_B in name}
        super().__init__(stored.items(), kinds, own)
        self._earlier = earlier
        if earlier is not None:
            earlier._earlier = None  # one before is enough
            earlier._b.clear()
        self._scales, self._kinds = own, kinds
        self._root = bool(adapter.settings.use_rslora)
        self._b: dict[str, Tensor] = {  # are compared at other scales, if they differ
            name: stored[name].clone() for name in own
        }

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of ``method``."""
        return {"shapes": self.shapes, "rank": self._rank}

    def differences(
        self, held: Sequence[Mapping[str, Sequence[Place]]]
    ) -> tuple[list[str], list[str]]:
        """Return as ``Receipt.differences``.

        A tensor whose places in all workers are not a whole number of times the tensor is wrong,
        and so is what a server's layer holds beyond the adapter.
        """
        wrong, unread = super().differences(held)
        placed: dict[str, list[Place]] = {}
        for worker in held:
            for name, places in worker.items():
                placed[name] = placed.get(name, []) + list(places)
        in_part = [n for n in unread if not placed.get(n) or self._kind(n, placed[n])]
        beyond = sorted(n for n, places in placed.items() if places and n not in self.shapes)
        return wrong + in_part + beyond, [name for name in unread if name not in in_part]

    def fault(self, wrong: Sequence[str], held: Sequence[Mapping[str, Sequence[Place]]]) -> str:
        """Return the likely cause of differences."""
        if self._earlier is not None and not any(self._earlier.differences(held)):
            return "all are those of the version before: it is stale"
        if set(wrong) <= self._b.keys():
            for told, scale in SCALES.items():
                others = {
                    n: scale(own, self.shapes[n][1], self._root) for n, own in self._scales.items()
                }
                if not any(Receipt(self._b.items(), self._kinds, others).differences(held)):
                    return f"they are the policy's at another scale, {told}"
        if not self.shapes.keys() >= set(wrong):
            return "it holds more than the policy's"
        if set(wrong) == self._b.keys():
            return "of each layer B differs and A does not: its scale is another, or its update"
        whole = len(wrong) == len(self.shapes)
        return "it is another adapter" if whole else "it is there in part, or in part another's"


@cache
def digest_of_ones(size: int, device: torch.device) -> int:
    """Return the digest of so many ones: the sum of their places' keys, alike in each transfer."""
    return digest(torch.ones(1, dtype=torch.uint8, device=device).expand(size))


def _named(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
