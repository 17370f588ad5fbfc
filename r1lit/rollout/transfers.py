"""How the policy's weights get into vLLM servers: by a folder, or from memory to memory."""

from __future__ import annotations

import base64
import pickle
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import reduce_tensor

from r1lit.endpoint.client import RequestError
from r1lit.rollout.vllm_server import VLLMServer
from r1lit.rollout.weights_folder import write_weights

Named = Sequence[tuple[str, Tensor]]
Send = Callable[[VLLMServer, str], object]
"""Hands weights to a server under a label, once; raises a ``RequestError`` if that fails."""


class Transfer(ABC):
    """A way to servers that vLLM's weight transfer ``backend`` receives on."""

    backend: ClassVar[str]
    from_memory: ClassVar[bool] = True
    """Whether the policy's own memory is read while weights are sent."""
    one_sender: ClassVar[bool] = False
    """Whether rank 0 alone sends; else whichever rank comes first."""
    environment: ClassVar[dict[str, str]] = {}
    """Variables that the server needs."""

    def take(self, weights: Iterable[tuple[str, Tensor]], folder: Path) -> Send:
        """Return what hands these weights over, as often as needed; all ranks call it.

        Raises:
            ValueError: if weights like these cannot be handed over this way.
        """
        held = [(name, weight.detach()) for name, weight in weights]
        self.check(held)
        return partial(self._send, held)

    def check(self, weights: Named) -> None:  # noqa: B027
        """Raise a ValueError for weights that cannot be handed over this way."""

    @abstractmethod
    def update(self, weights: Any, server: VLLMServer, label: str) -> None:
        """Hand the weights to a server that waits for them."""

    def _send(self, weights: Any, server: VLLMServer, label: str) -> None:
        try:
            server.post("start_weight_update")
            self.update(weights, server, label)
            server.post("finish_weight_update", {"weight_version": label})
        except RequestError:
            server.label()  # raises if the server has died
            with suppress(RequestError):  # an update that this or a killed trainer has begun
                server.post("finish_weight_update")
            raise


class FolderTransfer(Transfer):
    """A folder of safetensors that trainer and servers see; the only one for sharded weights."""

    backend = "safetensors"
    from_memory = False

    def take(self, weights: Iterable[tuple[str, Tensor]], folder: Path) -> Send:
        """Write the folder; see ``Transfer.take``."""
        names: list[str] = []
        if rank() == 0:
            names = write_weights(folder, weights)
        else:
            for _ in weights:  # sharded ones are gathered by all ranks together
                pass
        return partial(self._send, {"path": str(folder), "names": from_first(names)})

    def update(self, weights: dict[str, Any], server: VLLMServer, label: str) -> None:
        """Have the server read the folder."""
        server.post("update_weights", {"update_info": weights})


class GlooTransfer(Transfer):
    """Broadcasts over TCP, a tensor at a time, in a process group of one transfer.

    The group is the trainer and one server's workers. It is made anew each time, so that nothing
    is left of a server that dies.
    """

    backend = "gloo"

    def update(self, weights: Named, server: VLLMServer, label: str) -> None:
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
            for _, weight in weights:
                group.broadcast([as_bytes(weight.cpu())], dist.BroadcastOptions()).wait()
            return group  # open until the server has received all

        meeting = {"host": host, "port": store.port, "size": size, "timeout_s": server.hang_s}
        info = {"update_info": meeting | described(weights)}
        server.post("update_weights", info, broadcast)


class NCCLTransfer(Transfer):
    """Broadcasts from the trainer's GPU to servers' other ones, by vLLM's engine ``nccl``.

    A communicator lasts as long as this process and a server have an unbroken series of transfers.
    """

    backend = "nccl"
    one_sender = True

    def __init__(self) -> None:
        self._joined: dict[str, tuple[str, Any]] = {}  # by URL: last label, communicator

    def check(self, weights: Named) -> None:
        """See ``Transfer.check``."""
        check_on_gpu("nccl", weights)

    def update(self, weights: Named, server: VLLMServer, label: str) -> None:
        """Join the server's workers, if they are not joined, and broadcast to them."""
        device = weights[0][1].device
        last, communicator = self._joined.pop(server.url, ("", None))
        if last != server.label():
            communicator = self._join(server, device)

        def broadcast() -> None:
            with torch.cuda.device(device):
                for _, weight in weights:
                    torch.cuda.nccl.broadcast([weight.contiguous()], comms=[communicator])
                torch.cuda.current_stream().synchronize()

        server.post("update_weights", {"update_info": described(weights)}, broadcast)
        self._joined[server.url] = label, communicator

    def _join(self, server: VLLMServer, device: torch.device) -> Any:
        assert server.info is not None
        size, unique_id = 1 + server.info.num_workers, torch.cuda.nccl.unique_id()

        def join() -> Any:
            with torch.cuda.device(device):
                communicator = torch.cuda.nccl.init_rank(size, unique_id, 0)
                # as vLLM's workers do once they have joined
                torch.cuda.nccl.all_reduce([torch.zeros(1, device=device)], comms=[communicator])
                torch.cuda.current_stream().synchronize()
            return communicator

        info = {
            "nccl_unique_id_b64": base64.b64encode(unique_id).decode(),
            "rank_offset": 1,
            "world_size": size,
            "packed": False,
        }
        return server.post("init_weight_transfer_engine", {"init_info": info}, join)


class IPCTransfer(Transfer):
    """Lets servers on the trainer's own GPU read its memory, by vLLM's engine ``ipc``."""

    backend = "ipc"
    one_sender = True
    environment: ClassVar = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}  # handles are pickled

    def check(self, weights: Named) -> None:
        """See ``Transfer.check``."""
        check_on_gpu("ipc", weights)

    def update(self, weights: Named, server: VLLMServer, label: str) -> None:
        """Name the places in memory to the server, which copies them."""
        server.post("init_weight_transfer_engine", {"init_info": {"packed": False}})
        whole = [(name, weight.contiguous()) for name, weight in weights]
        gpu = str(torch.cuda.get_device_properties(whole[0][1].device).uuid)
        torch.cuda.synchronize(whole[0][1].device)
        handles = [{gpu: reduce_tensor(weight)[1]} for _, weight in whole]
        pickled = base64.b64encode(pickle.dumps(handles)).decode()
        info = described(whole) | {"ipc_handles_pickled": pickled}
        server.post("update_weights", {"update_info": info})
        torch.cuda.ipc_collect()


TRANSFERS: dict[str, type[Transfer]] = {
    "folder": FolderTransfer,
    "gloo": GlooTransfer,
    "nccl": NCCLTransfer,
    "ipc": IPCTransfer,
}


def check_not_sharded(transfer: str, parameters: Iterable[Tensor]) -> None:
    """Check that this process has whole weights, if they are handed over from memory.

    Raises:
        ValueError: if they are sharded.
    """
    if TRANSFERS[transfer].from_memory and any(isinstance(p, DTensor) for p in parameters):
        raise ValueError(
            f"transfer: {transfer} reads whole weights from memory, and these are sharded; use"
            " transfer: folder"
        )


def check_on_gpu(transfer: str, weights: Named) -> None:
    """Raise a ValueError for weights that are not on a GPU."""
    devices = sorted({weight.device.type for _, weight in weights} - {"cuda"})
    if devices:
        raise ValueError(
            f"transfer: {transfer} needs the policy on a GPU, and it is on {devices[0]}; use"
            " transfer: folder or gloo"
        )


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


def address_towards(url: str) -> str:
    """Return this machine's address in the network that a server is in."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((parts.hostname, parts.port or 80))  # sends nothing
        except OSError as error:
            raise RequestError(f"{parts.hostname}: {error}") from error
        return str(probe.getsockname()[0])


def rank() -> int:
    """Return this process's rank, 0 if it is alone."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def from_first(value: Any) -> Any:
    """Return rank 0's ``value`` on every rank."""
    if dist.is_available() and dist.is_initialized():
        values = [value]
        dist.broadcast_object_list(values)
        return values[0]
    return value
