"""Transfer of a policy's weights to vLLM servers, and a check that they have arrived.

T tokens
"""

from __future__ import annotations

import base64
import pickle
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch import distributed as dist
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import reduce_tensor

from r1lit.endpoint.client import RequestError
from r1lit.files import beside, remove, replace_path
from r1lit.policy import LogProbs, Policy, Responses, evaluating
from r1lit.policy.adapter import Adapter, names_in_4_bits
from r1lit.policy.support import outside_linear_layers
from r1lit.ranks import of_first_rank, own_rank
from r1lit.rollout.engine import ModelSpec
from r1lit.rollout.vllm.client import LOAD_ADAPTER, TEXT, Send, VLLMClient, Weights

BUCKET_BYTES = 256 * 1024**2  # one broadcast, and what is held beside the weights meanwhile
SHARD_BYTES = 256 * 1024**2  # one file, and what is held beside the weights while it is written
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # what ``--max-lora-rank`` may be
NOT_LOADED = (  # settings of ``peft.LoraConfig`` that vLLM 0.32 does not compute
    *("use_dora", "lora_bias", "modules_to_save", "trainable_token_indices", "target_parameters"),
    *("alora_invocation_tokens", "layer_replication", "use_bdlora", "use_qalora"),
)
PROBE_TOKENS = 32
TOLERANCE = {torch.float32: 1e-3}
ROUNDED = 0.05  # of 16-bit weights, whose log-probs differ by some 0.01 on average

Named = Sequence[tuple[str, Tensor]]


class Transfer(ABC):
    """A way to servers that vLLM's weight transfer ``backend`` receives on."""

    name: ClassVar[str]
    backend: ClassVar[str]
    on_gpu: ClassVar[bool] = False
    """True where trainer and server must have GPUs."""
    from_memory: ClassVar[bool] = True
    """True where the policy's own memory is read while weights are sent."""
    one_sender: ClassVar[bool] = False
    """True where only rank 0 sends; otherwise the first rank that is ready."""
    environment: ClassVar[dict[str, str]] = {}
    """Variables that the server needs."""

    def take(self, weights: Iterable[tuple[str, Tensor]], folder: Path) -> Send:
        """Return a function that sends these weights, as often as needed; all ranks call it."""
        return partial(self._send, [(name, weight.detach()) for name, weight in weights])

    def check(self, parameters: Iterable[Tensor]) -> None:
        """Raise a ValueError for a policy whose weights cannot be handed over this way."""
        held = list(parameters)
        if self.from_memory and any(isinstance(parameter, DTensor) for parameter in held):
            raise ValueError(
                f"transfer: {self.name} reads whole weights from memory, and these are sharded; use"
                " transfer: folder"
            )
        others = {parameter.device.type for parameter in held} - {"cuda"}
        if self.on_gpu and others:
            raise ValueError(
                f"transfer: {self.name} needs the policy on a GPU, and it is on {min(others)}; use"
                " transfer: folder or gloo"
            )

    @abstractmethod
    async def update(self, weights: Any, server: VLLMClient, label: str) -> None:
        """Hand the weights to a server that waits for them."""

    async def _send(self, weights: Any, server: VLLMClient, label: str) -> None:
        try:
            await server.post("start_weight_update")
            await self.update(weights, server, label)
            await server.post("finish_weight_update", {"weight_version": label})
        except RequestError:
            await server.label()  # raises if the server has died
            with suppress(RequestError):  # an update that this or a killed trainer has begun
                await server.post("finish_weight_update")
            raise


class FolderTransfer(Transfer):
    """A folder of safetensors that trainer and servers see; the only one for sharded weights."""

    name, backend = "folder", "safetensors"
    from_memory = False

    def take(self, weights: Iterable[tuple[str, Tensor]], folder: Path) -> Send:
        """Write the folder; see ``Transfer.take``."""
        names: list[str] = []
        if own_rank() == 0:
            names = write_weights(folder, weights)
        else:
            for _ in weights:  # sharded ones are gathered by all ranks together
                pass
        return partial(self._send, {"path": str(folder), "names": of_first_rank(names)})

    async def update(self, weights: dict[str, Any], server: VLLMClient, label: str) -> None:
        """Have the server read the folder."""
        await server.post("update_weights", {"update_info": weights})


class GlooTransfer(Transfer):
    """Broadcasts over TCP, a bucket of tensors at a time, in a process group of one transfer.

    The group is the trainer and one server's workers. It is made again each time, so that nothing
    is left of a server that dies.
    """

    name = backend = "gloo"

    async def update(self, weights: Named, server: VLLMClient, label: str) -> None:
        """Meet the server's workers and broadcast to them."""
        assert server.info is not None
        size, timeout = 1 + server.info.num_workers, timedelta(seconds=server.hang_s)
        host = address_towards(server.url)
        try:
            store = dist.TCPStore(host, 0, size, True, timeout, wait_for_workers=False)
        except RuntimeError as error:
            raise RequestError(f"gloo at {host}: {error}") from error

        def broadcast() -> object:
            prefixed = dist.PrefixStore("r1lit", store)
            group: Any = dist.ProcessGroupGloo(prefixed, 0, size, timeout)
            for bucket in buckets(weights, torch.device("cpu")):
                group.broadcast([bucket], dist.BroadcastOptions()).wait()
            return group  # open until the server has received all

        meeting = {"host": host, "port": store.port, "size": size, "timeout_s": server.hang_s}
        meeting["bucket_bytes"] = BUCKET_BYTES
        info = {"update_info": meeting | described(weights)}
        await server.post("update_weights", info, broadcast)


class NCCLTransfer(Transfer):
    """Broadcasts from the trainer's GPU to servers' other ones, by vLLM's engine ``nccl``.

    A broadcast is of a bucket of tensors, as that engine packs them. A communicator lasts as long
    as this process and a server have an unbroken series of transfers.
    """

    name = backend = "nccl"
    on_gpu = one_sender = True

    def __init__(self) -> None:
        self._joined: dict[str, tuple[str, Any]] = {}  # by URL: last label, communicator

    async def update(self, weights: Named, server: VLLMClient, label: str) -> None:
        """Join the server's workers, if they are not joined, and broadcast to them."""
        device = weights[0][1].device
        last, communicator = self._joined.pop(server.url, ("", None))
        if last != await server.label():
            communicator = await self._join(server, device)

        def broadcast() -> None:
            with torch.cuda.device(device):
                for bucket in buckets(weights, device):
                    torch.cuda.nccl.broadcast([bucket], comms=[communicator])
                torch.cuda.current_stream().synchronize()

        await server.post("update_weights", {"update_info": described(weights)}, broadcast)
        self._joined[server.url] = label, communicator

    async def _join(self, server: VLLMClient, device: torch.device) -> Any:
        assert server.info is not None
        size, unique_id = 1 + server.info.num_workers, torch.cuda.nccl.unique_id()

        def join() -> Any:
            with torch.cuda.device(device):
                communicator = torch.cuda.nccl.init_rank(size, unique_id, 0)
                # as vLLM's workers do once they have joined
                torch.cuda.nccl.all_reduce([torch.zeros(1, device=device)], comms=[communicator])
                torch.cuda.current_stream().synchronize()
            return communicator

        info: dict[str, Any] = {"nccl_unique_id_b64": base64.b64encode(unique_id).decode()}
        info |= {"rank_offset": 1, "world_size": size}
        info |= {"packed": True, "packed_buffer_size_bytes": BUCKET_BYTES}
        return await server.post("init_weight_transfer_engine", {"init_info": info}, join)


class IPCTransfer(Transfer):
    """Lets servers on the trainer's own GPU read its memory, by vLLM's engine ``ipc``."""

    name = backend = "ipc"
    on_gpu = one_sender = True
    environment: ClassVar = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}  # handles are pickled

    async def update(self, weights: Named, server: VLLMClient, label: str) -> None:
        """Name the places in memory to the server, which copies them."""
        await server.post("init_weight_transfer_engine", {"init_info": {"packed": False}})
        whole = [(name, weight.contiguous()) for name, weight in weights]
        gpu = str(torch.cuda.get_device_properties(whole[0][1].device).uuid)
        torch.cuda.synchronize(whole[0][1].device)
        handles = [{gpu: reduce_tensor(weight)[1]} for _, weight in whole]
        pickled = base64.b64encode(pickle.dumps(handles)).decode()
        info = described(whole) | {"ipc_handles_pickled": pickled}
        await server.post("update_weights", {"update_info": info})
        torch.cuda.ipc_collect()


TRANSFERS: dict[str, type[Transfer]] = {
    transfer.name: transfer
    for transfer in (FolderTransfer, GlooTransfer, NCCLTransfer, IPCTransfer)
}


class AdapterTransfer(Transfer):
    """A folder with an adapter alone, which servers add to the policy's weights that they have."""

    from_memory = False

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def take(self, weights: Iterable[tuple[str, Tensor]], folder: Path) -> Send:
        """Write the adapter's folder; see ``Transfer.take``."""
        own = self._adapter.gather()
        if own_rank() == 0:
            temporary = beside(folder)
            remove(temporary)
            self._adapter.save_weights(temporary, own)
            replace_path(temporary, folder)
        of_first_rank(None)  # it is there
        return partial(self._send, folder)

    async def update(self, weights: Path, server: VLLMClient, label: str) -> None:
        """Have the server load it.

        A name for each version: vLLM 0.32 reads an adapter that it loads in place again at each
        step.
        """
        await server.post(LOAD_ADAPTER, {"lora_name": label, "lora_path": str(weights)})
        await server.post("update_weight_version", {"new_version": label})

    async def _send(self, weights: Path, server: VLLMClient, label: str) -> None:
        previous = await server.label()
        await self._unload(server, label)  # of a try that failed half-way
        await self.update(weights, server, label)
        if previous != label:
            await self._unload(server, previous)

    async def _unload(self, server: VLLMClient, label: str) -> None:
        with suppress(RequestError):  # there was none
            await server.post("v1/unload_lora_adapter", {"lora_name": label})


def max_lora_rank(adapter: Adapter) -> int:
    """Return the least ``--max-lora-rank`` that a server needs; 0 if none is enough."""
    settings = adapter.settings
    largest = max([settings.r, *(settings.rank_pattern or {}).values()])
    return next((allowed for allowed in LORA_RANKS if allowed >= largest), 0)


def why_merged(adapter: Adapter, in_flight_updates: bool = False) -> str | None:
    """Return why vLLM cannot load an adapter as it is; None if it can."""
    settings = adapter.settings
    kind = type(settings).__name__
    if in_flight_updates:
        return "in_flight_updates change responses under way, which keep an adapter"
    if names_in_4_bits(adapter.model):
        return "servers have the weights that the policy holds in 4 bits"
    if kind != "LoraConfig":
        return f"{kind} is not LoRA"
    if settings.bias != "none":
        return f"vLLM loads no bias ({settings.bias!r})"
    if unknown := [key for key in NOT_LOADED if getattr(settings, key, None)]:
        return f"vLLM does not load {unknown[0]}"
    if not max_lora_rank(adapter):
        return f"its rank is above {LORA_RANKS[-1]}"
    others = outside_linear_layers(adapter.model)
    return f"it changes {others[0]}, which is no linear layer within the model" if others else None


def described(weights: Named) -> dict[str, Any]:
    """Return names, dtypes and shapes, as vLLM's engines expect them."""
    return {
        "names": [name for name, _ in weights],
        "dtype_names": [str(weight.dtype).removeprefix("torch.") for _, weight in weights],
        "shapes": [list(weight.shape) for _, weight in weights],
    }


def as_bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's elements as a row of bytes, which every dtype can be sent as."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def buckets(weights: Named, device: torch.device) -> Iterator[Tensor]:
    """Yield rows of bytes, tensors joined in order until they exceed ``BUCKET_BYTES``.

    So does vLLM's packed engine, and so the receiver knows from the shapes where each begins.
    """
    held: list[Tensor] = []
    for _, weight in weights:
        held.append(as_bytes(weight.to(device)))
        if sum(row.numel() for row in held) > BUCKET_BYTES:
            yield torch.cat(held)
            held = []
    if held:
        yield torch.cat(held)


def address_towards(url: str) -> str:
    """Return this machine's address in the network that a server is in."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((parts.hostname, parts.port or 80))  # sends nothing
        except OSError as error:
            raise RequestError(f"{parts.hostname}: {error}") from error
        return str(probe.getsockname()[0])


def write_weights(folder: Path, weights: Iterable[tuple[str, Tensor]]) -> list[str]:
    """Write named tensors into ``folder``, in files of ``SHARD_BYTES`` or one tensor.

    The folder is there when it is whole. Tensors are read one after another, and no more than a
    file's are held. Names that share their memory, as those of tied weights, are each written.

    Returns:
        The names.
    """
    temporary = beside(folder)
    remove(temporary)
    temporary.mkdir(parents=True)
    names: list[str] = []
    shard: dict[str, Tensor] = {}
    num_files = 0

    def flush() -> None:
        nonlocal num_files
        save_file(shard, temporary / f"{num_files:05d}.safetensors")
        shard.clear()
        num_files += 1

    for name, tensor in weights:
        here = tensor.detach().cpu().contiguous()
        memory = {other.untyped_storage().data_ptr() for other in shard.values()}
        size = here.nbytes + sum(other.nbytes for other in shard.values())
        # safetensors refuses two names of one memory in a file
        if shard and (here.untyped_storage().data_ptr() in memory or size > SHARD_BYTES):
            flush()
        shard[name] = here
        names.append(name)
    flush()
    replace_path(temporary, folder)
    return names


class Probe:
    """Compares servers with a policy by the log-probs of a text.

    Args:
        model: the policy and its tokenizer.
        tolerance: what the mean difference may be; 0.001 where both are float32 and 0.05 elsewhere
            if None.
    """

    def __init__(self, model: ModelSpec, policy: Policy, tolerance: float | None) -> None:
        ids = model.tokenizer(TEXT)["input_ids"][:PROBE_TOKENS]
        self._ids = tuple(ids) if len(ids) > 1 else model.end_ids() * 2
        self._policy, self._tolerance = policy, tolerance

    @torch.no_grad()
    def expected_T(self) -> Tensor:
        """Return the policy's log-probs of all tokens but the first, in the weights' own dtype."""
        device, response_BT = self._policy.device, torch.tensor([self._ids[1:]])
        response_BT = response_BT.to(device)
        mask_BT = torch.ones_like(response_BT, dtype=torch.bool)
        text = Responses(prompts=[self._ids[:1]], response_BT=response_BT, mask_BT=mask_BT)
        with evaluating(self._policy), torch.autocast(device.type, enabled=False):
            return self._policy(text, LogProbs()).logp_K.float().cpu()

    async def check(self, server: VLLMClient, weights: Weights) -> None:
        """Check that a server's log-probs are those expected of these weights.

        Raises:
            ValueError: if they are not.
            RequestError: if it does not answer.
        """
        assert server.info is not None
        found_T = await server.score(self._ids, weights)
        difference = float((found_T - weights.expected_T).abs().mean())
        here, there = self._policy.dtype, getattr(torch, server.info.dtype)
        tolerance = self._tolerance
        if tolerance is None:
            tolerance = TOLERANCE.get(here, ROUNDED) if here == there else ROUNDED
        if not difference <= tolerance:
            raise ValueError(
                f"engine: after the transfer of weights {weights.label} log-probs of {server.url}"
                f" differ from the policy's by {difference:.2g} on average (tolerance:"
                f" {tolerance:g}): its weights are stale or in part another model's; restart it,"
                " and continue with --ckpt_path last"
            )
