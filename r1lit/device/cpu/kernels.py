"""The kernels of this folder: built from C++ by the machine's own compiler, and what uses them.

A linear layer in bfloat16, whose weights are packed once in the kernel's layout; and causal
attention in bfloat16, in tiles. PyTorch's flash attention on CPUs takes two to four times as long
(docs/PERFORMANCE.md). Memory grows with the length of a row, not with its square.

B rows   H query heads   K key-value heads   L tokens   D head size
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from r1lit.device.cpu.machine import has_fast_bfloat16

FLAGS = (
    *("-std=c++20", "-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing"),
    *("-fPIC", "-shared", "-w"),
)
FOLDER = "R1LIT_KERNELS_DIR"
SECONDS = 300.0


@functools.cache
def has_kernels() -> bool:
    """Return whether ``torch.ops.r1lit`` has what ``kernels.cpp`` defines; build it if need be.

    Without a C++ compiler there is one warning, and PyTorch's own operations do the work.
    """
    if platform.system() == "Windows":
        return False
    try:
        library = build(Path(__file__).with_name("kernels.cpp"))
        torch.ops.load_library(library)
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        line = next((text for text in output.splitlines() if "error" in text), output.strip()[:200])
        warnings.warn(
            "r1lit runs without its C++ attention on this CPU, which is slower: building it"
            f" failed with {type(error).__name__} ({line})",
            stacklevel=2,
        )
        return False
    torch.library.register_fake("r1lit::attend_cached", _attended)
    if hasattr(torch.ops.r1lit, "packed_linear"):
        torch.library.register_fake("r1lit::packed_linear", _multiplied)
        torch.library.register_fake("r1lit::causal_attention", _seen)
        torch.library.register_fake("r1lit::causal_attention_backward", _gradients)
    return True


def has_bfloat16_kernels() -> bool:
    """Return whether the kernels that multiply in bfloat16 run: ``packed_linear`` and the like.

    They need a processor with instructions for that, and a PyTorch that offers its products.
    """
    return bool(torch.backends.mkldnn.enabled) and _multiplies()


@functools.cache
def _multiplies() -> bool:
    if not has_fast_bfloat16() or not has_kernels():
        return False
    token = torch.zeros(1, 1, 1, 2, dtype=torch.bfloat16)
    try:
        torch.ops.r1lit.causal_attention(token, token, token, 1.0)
    except (AttributeError, RuntimeError):
        return False
    return True


def build(source: Path) -> Path:
    """Compile a source and what lies beside it for this machine, once; return the library.

    Libraries lie in the folder that ``R1LIT_KERNELS_DIR`` names, or else in the user's cache, under
    a name made of all that they depend on.

    Raises:
        OSError: if there is no compiler, or no folder to write to.
        subprocess.SubprocessError: if it fails.
    """
    compiler = os.environ.get("CXX", "c++")
    installed = Path(torch.__file__).parent
    arm = platform.machine() in ("arm64", "aarch64")
    target = ("-mcpu=native",) if arm else ("-march=native", "-mprefer-vector-width=512")
    openmp = () if sys.platform == "darwin" else ("-fopenmp",)
    strings = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    flags = (*FLAGS, *target, *openmp, strings, f"-I{installed / 'include'}")
    sources = sorted([source, *source.parent.glob("*.h")])
    made_of = (
        *(path.read_text() for path in sources),
        compiler,
        *flags,
        torch.__version__,
        _processor(),
    )
    name = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:16]
    given = os.environ.get(FOLDER)
    folder = Path(given) if given else Path.home() / ".cache" / "r1lit"
    library = folder / f"{source.stem}-{name}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(library.with_suffix(".lock"), timeout=SECONDS):  # ranks begin at the same time
        if not library.exists():
            _compile([compiler, *flags, str(source)], library, installed)
    return library


def _compile(command: list[str], library: Path, installed: Path) -> None:
    print("compiling C++ for this CPU, once (half a minute) …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        made = Path(scratch) / library.name
        subprocess.run(
            [*command, "-o", str(made), f"-L{installed / 'lib'}", "-lc10", "-ltorch_cpu"],
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        made.replace(library)  # whole or not at all


def _processor() -> str:
    """Return the processor's features, on which code for "this very processor" depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _attended(query: Tensor, key: Tensor, value: Tensor, *caches: Any) -> Tensor:
    return query.new_empty(query.shape, dtype=value.dtype)


def _seen(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
    rows, heads, tokens, size = query.shape
    out = query.new_empty(rows, tokens, heads, size, dtype=torch.bfloat16)
    return out, query.new_empty(rows * heads, tokens, dtype=torch.float32)


def _gradients(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(  # type: ignore[return-value]
        x.new_empty(x.transpose(1, 2).shape, dtype=torch.float32) for x in (query, key, value)
    )


def _multiplied(x: Tensor, weight: Tensor, out_features: int, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], out_features)


BLOCK = 64  # features out of a block of the kernel


class PackedLinear(nn.Module):
    """A linear layer's product by a kernel: for few rows PyTorch's own takes far longer."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.out_features = len(weight)
        self.register_buffer("weight", packed(weight.detach().bfloat16()))
        self.register_buffer("bias", None if bias is None else bias.detach().bfloat16())

    def forward(self, x: Tensor) -> Tensor:
        """Return x @ weight.T + bias in bfloat16."""
        return torch.ops.r1lit.packed_linear(
            x.bfloat16(), self.weight, self.out_features, self.bias
        )


def packed(weight_NK: Tensor) -> Tensor:
    """Return a weight in blocks of ``BLOCK`` rows, pairs of columns side by side.

    The last block is filled up with zeros: [N / 64, K / 2, 64, 2].
    """
    rows, columns = weight_NK.shape
    filled = nn.functional.pad(weight_NK, (0, 0, 0, -rows % BLOCK))
    return filled.view(-1, BLOCK, columns // 2, 2).transpose(1, 2).contiguous()


class TiledAttention(torch.autograd.Function):
    """softmax(query @ key.T * scaling, causal) @ value; products in bfloat16, sums in float32."""

    @staticmethod
    def forward(
        ctx: Any, query_BHLD: Tensor, key_BKLD: Tensor, value_BKLD: Tensor, scaling: float
    ) -> Tensor:
        """Return [B, L, H, D], bfloat16."""
        out_BLHD, norm = torch.ops.r1lit.causal_attention(query_BHLD, key_BKLD, value_BKLD, scaling)
        ctx.save_for_backward(query_BHLD, key_BKLD, value_BKLD, out_BLHD, norm)
        ctx.scaling = scaling
        return out_BLHD

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BLHD: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Return the gradients of query, key and value; weights are computed again."""
        query_BHLD, key_BKLD, value_BKLD, out_BLHD, norm = ctx.saved_tensors
        grads = torch.ops.r1lit.causal_attention_backward(
            grad_BLHD.contiguous().transpose(1, 2),
            query_BHLD,
            key_BKLD,
            value_BKLD,
            out_BLHD.transpose(1, 2),
            norm,
            ctx.scaling,
        )
        query, key, value = (
            grad.transpose(1, 2).to(of.dtype)
            for grad, of in zip(grads, (query_BHLD, key_BKLD, value_BKLD), strict=True)
        )
        return query, key, value, None


def suits_tiles(query: Tensor, value: Tensor, dropout: float) -> bool:
    """Return whether attention is in bfloat16 on such a CPU, over even heads, without dropout."""
    return (
        query.device.type == "cpu"
        and query.numel() > 0
        and query.dtype in (torch.float32, torch.bfloat16)
        and value.dtype == torch.bfloat16
        and query.shape[-1] == value.shape[-1]
        and query.shape[-1] % 2 == 0
        and dropout == 0.0
        and has_bfloat16_kernels()
    )


def attend_tiled(query: Tensor, key: Tensor, value: Tensor, scaling: float) -> Tensor:
    """Attend causally within each row.

    Args:
        query: [rows, heads, tokens, size], float32 or bfloat16.
        key: [rows, key-value heads, tokens, size], likewise.
        value: the same in bfloat16.
        scaling: of the scores.

    Returns:
        [rows, tokens, heads, size], bfloat16.
    """
    return TiledAttention.apply(query, key, value, scaling)
