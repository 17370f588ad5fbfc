"""Outputs of a policy's forward pass at predicted tokens, without the logits of all tokens.

K predicted tokens   k some of them, or of a chunk   R rows, a few of them   D hidden size
V vocabulary   v a chunk of it   C tokens that a server returns   X outcomes, V or C + 1
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint

from r1lit.batches import Candidates
from r1lit.device import add_gradient, backend, gradient_of
from r1lit.objectives import Divergence, SampledReverseKL
from r1lit.objectives.distillation import add_rest_KR, top_and_rest_KR
from r1lit.objectives.terms import entropy_BT
from r1lit.policy.attention import autocast_dtype


@dataclass(frozen=True, kw_only=True)
class ChunkSizes:
    """Sizes of chunks of logits, by kind of device; on a CPU the last two fit its cache.

    A chunk, a product with the head, has ``logits`` numbers. A chunk of tokens has ``tokens`` at
    least, since the weight's gradient passes through memory once a chunk; a chunk of the vocabulary
    has ``weight_rows`` at least. ``floats`` numbers of a chunk are in float32 at a time, and its
    gradient is added to ``weight_rows`` at a time.
    """

    logits: int
    tokens: int
    floats: int
    weight_rows: int


CHUNK_SIZES = {
    "cpu": ChunkSizes(logits=1 << 23, tokens=256, floats=1 << 20, weight_rows=1 << 10),
    "cuda": ChunkSizes(logits=1 << 27, tokens=256, floats=1 << 25, weight_rows=1 << 13),
}


def chunk_sizes(device: torch.device) -> ChunkSizes:
    """Return how much to work on at a time on a device."""
    return CHUNK_SIZES.get(device.type, CHUNK_SIZES["cuda"])


def token_chunks(
    num_tokens: int, vocabulary: int, device: torch.device, copies: int = 1
) -> Iterator[slice]:
    """Yield chunks of the tokens whose logits, ``copies`` times over, may exist at once."""
    most = chunk_sizes(device)
    size = max(most.tokens, most.logits // vocabulary) // copies
    for start in range(0, num_tokens, size):
        yield slice(start, start + size)


def vocabulary_chunks(hidden_KD: Tensor, vocabulary: int) -> Iterator[slice]:
    """Yield chunks of the vocabulary whose logits and whose copied weight may exist at once."""
    most = chunk_sizes(hidden_KD.device)
    size = max(1, most.logits // max(hidden_KD.shape) // most.weight_rows) * most.weight_rows
    for start in range(0, vocabulary, size):
        yield slice(start, min(start + size, vocabulary))


def few_rows(chunk: slice, product_kV: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield a few tokens of a chunk at a time, each with their rows of its product (R, V)."""
    size = max(1, chunk_sizes(product_kV.device).floats // product_kV.shape[1])
    start = chunk.start
    for product_RV in product_kV.split(size):
        yield slice(start, start + len(product_RV)), product_RV
        start += len(product_RV)


def add_weight_gradient(weight_VD: Tensor, grad_kV: Tensor, hidden_kD: Tensor) -> None:
    """Add to the head's gradient, float32, what the gradient of its product gives."""
    size = chunk_sizes(grad_kV.device).weight_rows
    for grad_kv, weight_vD in zip(grad_kV.split(size, dim=1), weight_VD.split(size), strict=True):
        weight_vD += grad_kv.T @ hidden_kD


LEAST = torch.finfo(torch.float32).min


class LinearLogp(torch.autograd.Function):
    """log softmax(hidden @ weight.T / temperature) at the targets, and the entropy beside it.

    The entropy H has a gradient on request alone: d H / d logits = -p (log p + H) / temperature.

    Logits of all tokens are made for a chunk of the vocabulary at a time (``ChunkSizes``) and go
    into a running softmax; the backward pass makes them again. The products run in the dtype of
    ``hidden_KD``, to which a chunk of the weight is cast when its turn comes; what follows runs in
    float32, a few rows of a product at a time.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_KD: Tensor,
        weight_VD: Tensor,
        target_K: Tensor,
        temperature: float,
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs (K) and entropies (K)."""
        ctx.temperature = temperature
        ctx.entropy_gradient = entropy_gradient
        ctx.in_place = backend(weight_VD.device).adds_gradients_in_place(weight_VD)
        running = _RunningSoftmax(target_K)
        for chunk, _, product_Kv in _vocabulary_products(hidden_KD, weight_VD):
            for rows, product_Rv in few_rows(slice(0, len(hidden_KD)), product_Kv):
                running.add(rows, chunk, _logits(product_Rv, temperature))
        logp_K, entropy_K = running.logp_K(), running.entropy_K()
        ctx.save_for_backward(hidden_KD, weight_VD, target_K, running.normaliser_K(), entropy_K)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy_K)
        return logp_K, entropy_K

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_K: Tensor, entropy_grad_K: Tensor
    ) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        """Make the logits again: d logp / d logits = (onehot - softmax) / temperature."""
        hidden_KD, weight_VD, target_K, normaliser_K, entropy_K = ctx.saved_tensors
        to_hidden, to_weight, *_ = ctx.needs_input_grad
        grad_K1 = grad_K[:, None].float() / ctx.temperature
        hidden_grad_KD = torch.zeros_like(hidden_KD, dtype=torch.float32) if to_hidden else None
        weight_grad_VD: Tensor | None = None
        if to_weight and ctx.in_place:
            weight_grad_VD = gradient_of(weight_VD)
        elif to_weight:
            weight_grad_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        for chunk, cast_vD, product_Kv in _vocabulary_products(hidden_KD, weight_VD):
            for rows, product_Rv in few_rows(slice(0, len(hidden_KD)), product_Kv):
                logits_Rv = _logits(product_Rv, ctx.temperature)
                grad_R1 = grad_K1[rows]
                logp_Rv = logits_Rv.sub_(normaliser_K[rows, None])
                if ctx.entropy_gradient:
                    above_Rv = logp_Rv.nan_to_num(neginf=0.0) + entropy_K[rows, None]
                    slope_Rv = above_Rv.mul_(entropy_grad_K[rows, None] / ctx.temperature)
                    grad_Rv = logp_Rv.exp_().mul_(-grad_R1 - slope_Rv)
                else:
                    grad_Rv = logp_Rv.exp_().mul_(-grad_R1)
                index_R1, inside_R1 = _local_index(target_K[rows], chunk)
                grad_Rv.scatter_add_(-1, index_R1, grad_R1 * inside_R1)
                product_Rv.copy_(grad_Rv)
            if hidden_grad_KD is not None:
                hidden_grad_KD += product_Kv @ cast_vD
            if weight_grad_VD is not None:
                add_weight_gradient(weight_grad_VD[chunk], product_Kv, hidden_KD)
        if hidden_grad_KD is not None:
            hidden_grad_KD = hidden_grad_KD.to(hidden_KD.dtype)
        if weight_grad_VD is not None:
            weight_grad_VD = None if ctx.in_place else weight_grad_VD.to(weight_VD.dtype)
        return hidden_grad_KD, weight_grad_VD, None, None, None


class _RunningSoftmax:
    """Statistics of every token's softmax, updated by one chunk of its logits after the other.

    Exponentials are relative to the largest logit so far and rescaled when a larger one comes
    (Milakov and Gimelshein 2018).
    """

    def __init__(self, target_K: Tensor) -> None:
        zeros_K = torch.zeros(len(target_K), device=target_K.device)
        self._target_K = target_K
        self._target_logit_K, self._sum_K, self._weighted_sum_K = (
            zeros_K.clone() for _ in range(3)
        )
        self._max_K = zeros_K.fill_(LEAST)  # finite: a logit may be -inf

    def add(self, rows: slice, chunk: slice, logits_Rv: Tensor) -> None:
        """Add some tokens' logits of a chunk of the vocabulary; their memory is overwritten."""
        index_R1, inside_R1 = _local_index(self._target_K[rows], chunk)
        self._target_logit_K[rows] += (
            logits_Rv.gather(-1, index_R1).where(inside_R1, 0.0).squeeze(-1)
        )
        old_max_R = self._max_K[rows]
        max_R = torch.maximum(old_max_R, logits_Rv.amax(-1))
        shift_R = old_max_R - max_R
        scale_R = shift_R.exp()
        logits_Rv.sub_(max_R[:, None])
        exp_Rv = logits_Rv.exp()
        sum_R = exp_Rv.sum(-1)
        # a logit of -inf has probability 0 and adds 0; autocast would round a dot product
        weighted_sum_R = exp_Rv.mul_(logits_Rv.nan_to_num_(neginf=0.0)).sum(-1)
        shifted_R = self._weighted_sum_K[rows] + self._sum_K[rows] * shift_R
        self._weighted_sum_K[rows] = shifted_R * scale_R + weighted_sum_R
        self._sum_K[rows] = self._sum_K[rows] * scale_R + sum_R
        self._max_K[rows] = max_R

    def logp_K(self) -> Tensor:
        """Return the targets' log-probs."""
        return self._target_logit_K - self._max_K - self._sum_K.log()

    def entropy_K(self) -> Tensor:
        """Return the entropies."""
        return self._sum_K.log() - self._weighted_sum_K / self._sum_K

    def normaliser_K(self) -> Tensor:
        """Return the logarithms of the sums of exponentials."""
        return self._max_K + self._sum_K.log()


def linear_logp(
    hidden_KD: Tensor,
    weight_VD: Tensor,
    target_K: Tensor,
    temperature: float = 1.0,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return float32 log-probs of the targets and entropies, each (K); see ``LinearLogp``.

    A temperature of 0 (greedy sampling) counts as 1.
    """
    hidden_KD = hidden_KD.to(autocast_dtype(hidden_KD.device, hidden_KD.dtype))
    return LinearLogp.apply(hidden_KD, weight_VD, target_K, temperature or 1.0, entropy_gradient)


def _vocabulary_products(
    hidden_KD: Tensor, weight_VD: Tensor
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield chunks of the vocabulary, each with its weight and product (K, v), until the next."""
    buffer: Tensor | None = None
    for chunk in vocabulary_chunks(hidden_KD, len(weight_VD)):
        cast_vD = weight_VD[chunk].to(hidden_KD.dtype)
        shape = len(hidden_KD), len(cast_vD)
        if buffer is None:
            buffer = hidden_KD.new_empty(shape[0] * shape[1])
        product_Kv = buffer[: shape[0] * shape[1]].view(shape)
        torch.mm(hidden_KD, cast_vD.T, out=product_Kv)
        yield chunk, cast_vD, product_Kv


def _logits(product_Rv: Tensor, temperature: float) -> Tensor:
    """Return logits in float32: the product's own memory where that is float32 already."""
    logits_Rv = product_Rv.float()
    return logits_Rv if temperature == 1.0 else logits_Rv.div_(temperature)


def _local_index(target_R: Tensor, chunk: slice) -> tuple[Tensor, Tensor]:
    """Return the targets' indices within a chunk of the vocabulary, and whether they lie in it."""
    index_R1 = (target_R - chunk.start)[:, None]
    size = chunk.stop - chunk.start
    return index_R1.clamp(0, size - 1), (index_R1 >= 0) & (index_R1 < size)


class LinearCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy of the targets under softmax(hidden @ weight.T).

    Logits are made for a chunk of the tokens at a time (``ChunkSizes``). Up to a factor, the
    gradient is known when a token's logits are, so it is computed with them and they are never
    computed again: one of four products with the head is saved.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_KD: Tensor, weight_VD: Tensor, target_K: Tensor, with_gradient: bool
    ) -> Tensor:
        """Return the sum, float32."""
        cast_VD = weight_VD.to(hidden_KD.dtype)
        loss = torch.zeros((), device=hidden_KD.device)
        ctx.save_for_backward(weight_VD)
        ctx.in_place = backend(weight_VD.device).adds_gradients_in_place(weight_VD)
        wanted = with_gradient and any(ctx.needs_input_grad[:2])
        ctx.gradients = _Gradients(ctx, hidden_KD, weight_VD) if wanted else None
        for chunk, product_kV in _token_products(hidden_KD, cast_VD):
            for rows, product_RV in few_rows(chunk, product_kV):
                logits_RV = product_RV.float()
                target_R1 = target_K[rows, None]
                logits_RV.sub_(logits_RV.amax(-1, keepdim=True))
                chosen_R1 = logits_RV.gather(-1, target_R1)
                exp_RV = logits_RV.exp_()
                sum_R1 = exp_RV.sum(-1, keepdim=True)
                loss += (sum_R1.log() - chosen_R1).sum()
                if ctx.gradients is not None:
                    grad_RV = exp_RV.div_(sum_R1)
                    grad_RV.scatter_add_(-1, target_R1, -torch.ones_like(sum_R1))
                    product_RV.copy_(grad_RV)
            if ctx.gradients is not None:
                ctx.gradients.add(chunk, product_kV, hidden_KD, cast_VD)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """Scale what the forward pass has made.

        Raises:
            RuntimeError: the second time, when there is nothing left to scale.
        """
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise RuntimeError("linear_cross_entropy: its gradient can be taken once")
        (weight_VD,) = ctx.saved_tensors
        gradients.scale(grad)
        return gradients.hidden_KD, gradients.of_weight(weight_VD, ctx.in_place), None, None


class _Gradients:
    """Gradients of hidden states and, in float32, of the weight; None where none is needed."""

    def __init__(self, ctx: Any, hidden_KD: Tensor, weight_VD: Tensor) -> None:
        to_hidden, to_weight, *_ = ctx.needs_input_grad
        self.hidden_KD = torch.empty_like(hidden_KD) if to_hidden else None
        self.weight_VD = torch.zeros_like(weight_VD, dtype=torch.float32) if to_weight else None

    def add(self, chunk: slice, grad_kV: Tensor, hidden_KD: Tensor, cast_VD: Tensor) -> None:
        """Take the gradient of a chunk's logits."""
        if self.hidden_KD is not None:
            torch.mm(grad_kV, cast_VD, out=self.hidden_KD[chunk])
        if self.weight_VD is not None:
            add_weight_gradient(self.weight_VD, grad_kV, hidden_KD[chunk])

    def scale(self, factor: Tensor) -> None:
        """Multiply both; rounded once."""
        if self.hidden_KD is not None:
            self.hidden_KD = self.hidden_KD.float().mul_(factor).to(self.hidden_KD.dtype)
        if self.weight_VD is not None:
            self.weight_VD.mul_(factor)

    def of_weight(self, weight_VD: Tensor, in_place: bool) -> Tensor | None:
        """Return the weight's gradient in its own dtype; ``in_place`` it is in ``weight.grad``."""
        if self.weight_VD is None:
            return None
        if not in_place:
            return self.weight_VD.to(weight_VD.dtype)
        add_gradient(weight_VD, self.weight_VD)
        return None


def linear_cross_entropy(hidden_KD: Tensor, weight_VD: Tensor, target_K: Tensor) -> Tensor:
    """Return the cross-entropy summed over the targets, float32; see ``LinearCrossEntropy``."""
    hidden_KD = hidden_KD.to(autocast_dtype(hidden_KD.device, hidden_KD.dtype))
    return LinearCrossEntropy.apply(hidden_KD, weight_VD, target_K, torch.is_grad_enabled())


def _token_products(hidden_KD: Tensor, cast_VD: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield chunks of the tokens, each with its product with the head (k, V), until the next."""
    buffer_kV: Tensor | None = None
    for chunk in token_chunks(len(hidden_KD), len(cast_VD), hidden_KD.device):
        hidden_kD = hidden_KD[chunk]
        if buffer_kV is None:
            buffer_kV = hidden_kD.new_empty(len(hidden_kD), len(cast_VD))
        product_kV = buffer_kV[: len(hidden_kD)]
        torch.mm(hidden_kD, cast_VD.T, out=product_kV)
        yield chunk, product_kV


COPIES = 4  # tensors as large as a chunk's logits that a divergence holds at once


class PolicyOutput(NamedTuple):
    """Results of a forward pass, float32; what was not requested is None.

    A tuple, since hooks of PyTorch's look for tensors in those.

    ``logp_K`` and ``entropy_K`` are those of softmax(logits / temperature); entropies carry no
    gradient unless ``LogProbs`` says so.
    ``cross_entropy`` is summed over the targets. ``states_KD`` may be given back to the same policy
    as ``HiddenStates``.
    """

    logp_K: Tensor | None = None
    entropy_K: Tensor | None = None
    cross_entropy: Tensor | None = None
    divergence_K: Tensor | None = None
    states_KD: Tensor | None = None
    logits_KV: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Hidden states and head, or logits, from which K tokens are predicted in a forward pass.

    ``states_KD`` are the last hidden states, and ``weight_VD`` makes logits of them; where the
    policy cannot be taken apart so, ``weight_VD`` is None and the states are logits (D = V).
    ``candidates`` are all that a target could have been, where top-k or top-p left tokens out.
    """

    states_KD: Tensor
    weight_VD: Tensor | None
    candidates: Candidates | None = None

    def __len__(self) -> int:
        return len(self.states_KD)

    @property
    def vocabulary(self) -> int:
        """V, the number of logits."""
        return self.states_KD.shape[1] if self.weight_VD is None else len(self.weight_VD)

    def logits(self, chunk: slice) -> Tensor:
        """Return the logits of some of the tokens, float32."""
        if self.weight_VD is None:
            return self.states_KD[chunk].float()
        dtype = autocast_dtype(self.states_KD.device, self.states_KD.dtype)
        return (self.states_KD[chunk].to(dtype) @ self.weight_VD.to(dtype).T).float()

    def logp(self, target_K: Tensor, temperature: float = 1.0) -> Tensor:
        """Return the log-probs of the targets, softmax(logits / temperature), float32."""
        if self.weight_VD is not None:
            return linear_logp(self.states_KD, self.weight_VD, target_K, temperature)[0]
        logits_KV = self.states_KD.float()
        if temperature not in (0.0, 1.0):
            logits_KV = logits_KV / temperature
        return -torch.nn.functional.cross_entropy(logits_KV, target_K, reduction="none")


class Compute(ABC):
    """Something that a forward pass computes."""

    @abstractmethod
    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Compute it, within the forward pass."""


@dataclass(frozen=True, kw_only=True)
class LogProbs(Compute):
    """``logp_K`` and ``entropy_K``; a temperature of 0 (greedy sampling) counts as 1.

    ``entropy_gradient``: whether the entropies carry one.
    """

    temperature: float = 1.0
    entropy_gradient: bool = False

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Compute both from the same softmax."""
        states_KD, weight_VD = predictions.states_KD, predictions.weight_VD
        if predictions.candidates is not None:
            among = predictions, predictions.candidates, target_K
            return _among_candidates(*among, self.temperature or 1.0, self.entropy_gradient)
        if weight_VD is not None:
            logp_K, entropy_K = linear_logp(
                states_KD, weight_VD, target_K, self.temperature, self.entropy_gradient
            )
            return PolicyOutput(logp_K=logp_K, entropy_K=entropy_K)
        logits_KV = states_KD.float() / (self.temperature or 1.0)
        logp_K = logits_KV.log_softmax(-1).gather(-1, target_K[:, None]).squeeze(-1)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.entropy_gradient):
            return PolicyOutput(logp_K=logp_K, entropy_K=entropy_BT(logits_KV))


def _among_candidates(
    predictions: Predictions,
    candidates: Candidates,
    target_K: Tensor,
    temperature: float,
    entropy_gradient: bool,
) -> PolicyOutput:
    """Return ``logp_K`` and ``entropy_K`` of a softmax over each target's candidates alone.

    As in ``divergence_K``, logits of a chunk of the tokens exist at a time, and are made again in
    the backward pass.
    """
    device = predictions.states_KD.device
    num = candidates.num_K.tolist()

    def of_chunk(chunk: slice) -> tuple[Tensor, Tensor]:
        ids = ids_of_chunk[chunk.start].to(device, torch.long).split(num[chunk])
        ids_kC = pad_sequence(list(ids), True)
        exists_kC = pad_sequence([torch.ones_like(x, dtype=torch.bool) for x in ids], True)
        logits_kV = predictions.logits(chunk) / temperature
        logits_kC = logits_kV.gather(1, ids_kC).masked_fill(~exists_kC, float("-inf"))
        normaliser_k1 = logits_kC.logsumexp(-1, keepdim=True)
        logp_k1 = logits_kV.gather(1, target_K[chunk, None]) - normaliser_k1
        logp_kC = (logits_kC - normaliser_k1).masked_fill(~exists_kC, 0.0)
        entropy_k = -(logp_kC.exp() * logp_kC).sum(-1)  # 0 where none exists
        return logp_k1.squeeze(-1), entropy_k if entropy_gradient else entropy_k.detach()

    chunks = list(token_chunks(len(predictions), predictions.vocabulary, device, COPIES))
    sizes = [sum(num[chunk]) for chunk in chunks]
    parts = candidates.ids_N.split(sizes) if chunks else ()
    ids_of_chunk = {chunk.start: part for chunk, part in zip(chunks, parts, strict=True)}
    values = [
        checkpoint(of_chunk, chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in chunks
    ]
    if not values:
        none_K = predictions.states_KD.float().sum(-1)
        return PolicyOutput(logp_K=none_K, entropy_K=none_K.detach())
    logp, entropy = zip(*values, strict=True)
    return PolicyOutput(logp_K=torch.cat(logp), entropy_K=torch.cat(entropy))


class CrossEntropy(Compute):
    """``cross_entropy``, summed over the targets; takes less time than ``LogProbs``."""

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Compute it."""
        if predictions.weight_VD is None:
            return PolicyOutput(cross_entropy=-predictions.logp(target_K).sum())
        loss = linear_cross_entropy(predictions.states_KD, predictions.weight_VD, target_K)
        return PolicyOutput(cross_entropy=loss)


class States(Compute):
    """``states_KD``, from which the same policy makes logits later, some at a time."""

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Return them as they are."""
        return PolicyOutput(states_KD=predictions.states_KD)


class Logits(Compute):
    """``logits_KV``."""

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Compute them of all tokens at once."""
        return PolicyOutput(logits_KV=predictions.logits(slice(None)))


@dataclass(frozen=True, kw_only=True)
class Divergences(Compute):
    """``divergence_K`` from a teacher; with ``with_logp`` also ``logp_K`` at temperature 1."""

    teacher: Scores
    divergence: Divergence | SampledReverseKL
    temperature: float = 1.0
    with_logp: bool = False

    def __call__(self, predictions: Predictions, target_K: Tensor) -> PolicyOutput:
        """Compute them."""
        return PolicyOutput(
            divergence_K=divergence_K(
                predictions, self.teacher, target_K, self.divergence, self.temperature
            ),
            logp_K=predictions.logp(target_K) if self.with_logp else None,
        )


class Scores(ABC):
    """A teacher's next-token distributions at K tokens; constants."""

    known_K: Tensor | None = None
    """Where there are any; elsewhere the divergence is 0. None: at all tokens."""

    @abstractmethod
    def distributions(
        self, logits_kV: Tensor, chunk: slice, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs of student (from its logits) and teacher over the same X outcomes."""

    @abstractmethod
    def target_logp(self, target_K: Tensor, temperature: float) -> Tensor:
        """Return the teacher's log-probs of the targets."""


@dataclass(frozen=True, kw_only=True)
class TopScores(Scores):
    """Scores of a server: log-probs of C tokens each, at temperature 1; X = C + 1.

    ``token_KC`` begins with the target; what repeats it fills up the row.
    """

    token_KC: Tensor
    logp_KC: Tensor
    known_K: Tensor | None = None

    def distributions(
        self, logits_kV: Tensor, chunk: slice, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs of the C tokens and of the rest, of both."""
        assert temperature == 1.0, temperature
        token_kC = self.token_KC[chunk]
        student_kX = top_and_rest_KR(logits_kV.log_softmax(-1), token_kC)
        return student_kX, add_rest_KR(self.logp_KC[chunk], token_kC)

    def target_logp(self, target_K: Tensor, temperature: float) -> Tensor:
        """Return the teacher's log-probs of the targets."""
        assert temperature == 1.0, temperature
        assert torch.equal(self.token_KC[:, 0], target_K)
        return self.logp_KC[:, 0]


def divergence_K(
    student: Predictions,
    teacher: Scores,
    target_K: Tensor,
    divergence: Divergence | SampledReverseKL,
    temperature: float = 1.0,
) -> Tensor:
    """Return the divergence at each token; logits of all tokens never exist at once.

    They are made for a chunk of the tokens at a time, and made again in the backward pass, of
    student and teacher both. (A policy without packed tokens has made all of its own before.)
    """
    if isinstance(divergence, SampledReverseKL):
        value_K = divergence(
            student.logp(target_K, temperature), teacher.target_logp(target_K, temperature)
        )
        return _where_known(value_K, teacher)

    def of_chunk(chunk: slice) -> Tensor:
        return divergence(*teacher.distributions(student.logits(chunk), chunk, temperature))

    device = student.states_KD.device
    chunks = [
        checkpoint(of_chunk, chunk, use_reentrant=False, preserve_rng_state=False)
        for chunk in token_chunks(len(student), student.vocabulary, device, COPIES)
    ]
    # without a target there is no chunk, but there shall be a gradient (of 0) all the same
    return _where_known(torch.cat(chunks), teacher) if chunks else student.states_KD.float().sum(-1)


def _where_known(value_K: Tensor, teacher: Scores) -> Tensor:
    return value_K if teacher.known_K is None else value_K.where(teacher.known_K, 0.0)
