"""Receipts of what vLLM holds: digests of its tensors, by the names that they were sent under.

Imported by `r1lit_vllm_worker`, in vLLM's processes alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from r1lit_vllm_digest import digest, keys
from vllm.lora.layers import BaseLayerWithLoRA
from vllm.lora.lora_model import LoRAModel
from vllm.lora.peft_helper import PEFTHelper
from vllm.model_executor.model_loader.reload import layerwise
from vllm.model_executor.model_loader.reload.meta import to_meta_tensor
from vllm.model_executor.model_loader.reload.sanitize import restore_layer_refs

Place = dict[str, Any]
"""One place of a tensor: ``digest`` of what is held there, ``keys`` of ones, ``count``, ``dtype``.

A digest is a text, since JSON's numbers are too short for it.
"""


def place_of(held: torch.Tensor, placed: torch.Tensor) -> Place:
    """Return the place of a tensor whose keys stand in ``placed``, 0 where nothing of it is."""
    return {
        "digest": str(digest(held, placed)),
        "keys": str(int(placed.sum(dtype=torch.int64)) % (1 << 64)),  # the digest of ones
        "count": int((placed != 0).sum()),
        "dtype": str(held.dtype).removeprefix("torch."),
    }


class Receipts:
    """Reads back a model's tensors, by the names and places that they are sent under.

    vLLM keeps them joined, split or packed for its kernels. So the places' keys are loaded as if
    they were weights: each layer's own loader puts them where it has put the weights. Parameters
    that stand in for the model's take them, which stay as they are.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._read: list[Place] = []

    @torch.no_grad()
    def read(self, shapes: dict[str, list[int]]) -> dict[str, list[Place]]:
        """Return, by name, each place that holds the tensor.

        ``digest`` is of what is held there, ``keys`` of ones in its place, ``count`` its elements.
        """
        with without_adapters(self._model):
            layers, found = list(self._model.modules()), {}
            held = [layer._parameters for layer in layers]
            device = next(self._model.parameters()).device
            try:
                for layer in layers:
                    layer._parameters = self._stand_ins(layer)
                for name, shape in shapes.items():
                    self._read = []
                    own = keys(0, torch.Size(shape).numel(), device).reshape(shape)
                    self._model.load_weights([(name, own)])
                    found[name] = self._read
            finally:
                for layer, parameters in zip(layers, held, strict=True):
                    layer._parameters = parameters
        return found

    def _stand_ins(self, layer: Any) -> dict[str, Any]:
        """Return parameters without memory, as they were before vLLM prepared them."""
        before = layerwise.get_layerwise_info(layer).restore_metadata[0]
        stand_ins: dict[str, Any] = {}
        for name, held in layer._parameters.items():
            if held is None:
                stand_ins[name] = None
                continue
            known = restore_layer_refs(to_meta_tensor(before.get(name, held)), layer)
            stand_in = torch.empty(known.shape, dtype=torch.int32, device="meta")
            stand_in.__class__, stand_in.__dict__ = known.__class__, known.__dict__
            reader = self._reader(layer, name, stand_in, held, known.dtype)
            stand_ins[name] = stand_in
            stand_in.weight_loader = reader  # type: ignore[attr-defined]
        return stand_ins

    def _reader(
        self, layer: Any, name: str, meta: torch.Tensor, held: torch.Tensor, dtype: torch.dtype
    ) -> Any:
        """Return a loader that reads where the parameter's own would write."""
        own = layerwise._get_original_loader(meta)  # a reload leaves its own there
        kind = str(dtype).removeprefix("torch.")

        def read(_: torch.Tensor, given: torch.Tensor, *args: Any, **options: Any) -> Any:
            placed = torch.zeros(meta.shape, dtype=given.dtype, device=given.device)
            placed.__class__, placed.__dict__ = meta.__class__, meta.__dict__.copy()
            result = own(placed, given, *args, **options)
            placed = placed.as_subclass(torch.Tensor)
            for values in self._held(layer, name, held, meta.shape):
                place = place_of(values, placed)
                self._read.append(place | {"dtype": kind if values.dtype == dtype else "another"})
            return result

        return read

    def _held(
        self, layer: Any, name: str, held: torch.Tensor, shape: torch.Size
    ) -> Iterator[torch.Tensor]:
        """Yield a parameter's stored forms: itself, and the source of a CPU's packed product."""
        if held.shape == shape:
            yield held
        if name == "weight" and hasattr(layer, "cpu_linear"):
            one = torch.eye(shape[1], dtype=held.dtype)  # products with 1 and 0 are exact
            yield layer.cpu_linear(one, held, None).t()


@contextmanager
def without_adapters(model: Any) -> Iterator[None]:
    """Take the layers that add adapters away for a time: weights have no place of theirs there."""
    wrapped = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent._modules.items()
        if isinstance(child, BaseLayerWithLoRA)
    ]
    try:
        for parent, name, child in wrapped:
            parent._modules[name] = child.base_layer
        yield
    finally:
        for parent, name, child in wrapped:
            parent._modules[name] = child


@dataclass(frozen=True)
class Part:
    """A tensor, or a part of it, in a buffer.

    ``placed`` are the tensor's keys, int64: of the buffer's places in their order, or of those at
    ``positions``. ``constants`` are a place's ``keys`` and ``count``.
    """

    name: str
    placed: torch.Tensor
    positions: torch.Tensor | None
    constants: Place

    def read(self, buffer: torch.Tensor) -> Place:
        """Return the tensor's place in the buffer as it is now."""
        held = buffer if self.positions is None else buffer.reshape(-1)[self.positions]
        dtype = str(buffer.dtype).removeprefix("torch.")
        return {"digest": str(digest(held, self.placed)), "dtype": dtype} | self.constants


@dataclass(frozen=True)
class Layout:
    """The contents of one of a layer's buffers: parts of tensors, and 0 where ``empty`` is true.

    ``empty`` is None if every place is of some tensor.
    """

    layer: str
    key: str
    index: int
    parts: list[Part]
    empty: torch.Tensor | None


class AdapterReceipts:
    """Reads back the newest adapter's tensors from the buffers that layers compute with.

    vLLM packs an adapter, multiplies it by its scale, cuts it for several workers and copies it
    into buffers. So an adapter of the places' keys, at scale 1, goes the same way, into buffers
    that stand in for the layers'. Which tensor a key is of stands in its upper half. The layouts
    that are found so are kept: all versions of an adapter have the same.

    Args:
        manager: of the adapters in one worker.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._laid_out: object = None  # what the layouts are of
        self._layouts: list[Layout] = []

    @torch.no_grad()
    def read(self, shapes: dict[str, list[int]], rank: int) -> dict[str, list[Place]]:
        """Return, by name, each place that holds a tensor; see ``Place``.

        Under a layer's name is what it holds beyond all of them, if that is not 0.

        Args:
            shapes: of the adapter's tensors, by their names in a PEFT folder.
            rank: of the adapter.
        """
        manager = self._manager
        newest = max(id_ for id_ in manager.lora_index_to_id if id_ is not None)
        slot = manager.lora_index_to_id.index(newest)
        if self._laid_out != (shapes, rank, slot):
            self._layouts = list(self._lay_out(shapes, rank, slot))
            self._laid_out = (shapes, rank, slot)
        found: dict[str, list[Place]] = {name: [] for name in shapes}
        for layout in self._layouts:
            buffers = vars(manager.modules[layout.layer])[layout.key]
            held = _tensors(buffers)[layout.index][slot]
            for part in layout.parts:
                found[part.name].append(part.read(held))
            beyond = None if layout.empty is None else held.ne(0) & layout.empty
            if beyond is not None and beyond.any():
                found.setdefault(layout.layer, []).append(place_of(held, beyond.to(torch.int32)))
        return found

    def _lay_out(self, shapes: dict[str, list[int]], rank: int, slot: int) -> Iterator[Layout]:
        """Yield the layout of each buffer; layers that are alike share its memory."""
        manager, names, known = self._manager, list(shapes), _Interned()
        adapter = self._adapter_of_keys(shapes, rank)
        for name, layer in manager.modules.items():
            lora = manager._get_lora_layer_weights(adapter, name)
            held = {key: x for key, x in vars(layer).items() if key.endswith("_stacked")}
            stand_ins = {key: _like(x) for key, x in held.items()}
            if lora:
                vars(layer).update(stand_ins)
                try:
                    layer.set_lora(slot, lora.lora_a, lora.lora_b)
                finally:
                    vars(layer).update(held)
            for key, buffers in held.items():
                pairs = zip(_tensors(buffers), _tensors(stand_ins[key]), strict=True)
                for index, (buffer, placed) in enumerate(pairs):
                    if buffer.nbytes == buffer.untyped_storage().nbytes():  # else it is a view
                        parts = list(_parts(placed[slot], names, known))
                        empty = placed[slot].eq(0)
                        shared = known.of(empty) if empty.any() else None
                        yield Layout(name, key, index, parts, shared)

    def _adapter_of_keys(self, shapes: dict[str, list[int]], rank: int) -> Any:
        tensors = {}
        for index, (name, shape) in enumerate(shapes.items(), start=1):
            own = keys(0, torch.Size(shape).numel(), torch.device("cpu")).to(torch.int64)
            tensors[name] = ((index << 32) | (own & 0xFFFFFFFF)).reshape(shape)
        mapper = getattr(self._manager.model, "hf_to_vllm_mapper", None)
        adapter = LoRAModel.from_lora_tensors(
            1,
            tensors,
            PEFTHelper(r=rank, lora_alpha=rank, target_modules=[]),
            device="cpu",
            dtype=torch.int64,
            weights_mapper=mapper.get_rename_mapper() if mapper is not None else None,
        )
        self._manager._create_merged_loras_inplace(adapter)
        return adapter


class _Interned:
    """Tensors of which equal ones are kept once."""

    def __init__(self) -> None:
        self._known: dict[object, torch.Tensor] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        name = tensor.dtype, tensor.shape, digest(tensor)
        known = self._known.setdefault(name, tensor)
        return known if torch.equal(known, tensor) else tensor


def _parts(placed: torch.Tensor, names: list[str], known: _Interned) -> Iterator[Part]:
    """Yield the parts of a buffer from the keys in it, whose upper halves name the tensor."""
    of, own = placed >> 32, placed.to(torch.int32).to(torch.int64)  # the lower half
    there = [i for i in of.reshape(-1).bincount().nonzero().reshape(-1).tolist() if i]
    for index in there:
        positions = None
        if len(there) > 1:
            positions = of.reshape(-1).eq(index).nonzero().reshape(-1)
        here = own if positions is None else own.reshape(-1)[positions]
        constants = {
            "keys": str(int(here.sum()) % (1 << 64)),  # the digest of ones
            "count": int((here != 0).sum()),
        }
        positions = None if positions is None else known.of(positions)
        yield Part(names[index - 1], known.of(here), positions, constants)


def _tensors(buffers: Any) -> list[torch.Tensor]:
    return [buffers] if isinstance(buffers, torch.Tensor) else list(buffers)


def _like(buffers: Any) -> Any:
    """Return zeros of int64 of the same shapes."""
    if isinstance(buffers, torch.Tensor):
        return torch.zeros_like(buffers, dtype=torch.int64)
    return type(buffers)(torch.zeros_like(x, dtype=torch.int64) for x in buffers)
