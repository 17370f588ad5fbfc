"""Every architecture of transformers at a tiny size, beside a plain Hugging Face forward pass.

    python -m benchmarks.architectures                     # fills in docs/MODEL_FAMILIES.md
    python -m benchmarks.architectures --only llama phi3   # prints some lines of it

Each model has random weights and is saved, loaded as a run loads it, and compared with the same
model as Hugging Face loads it, which reads one row at a time without padding or cache.

K response tokens   G responses per prompt
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel
from transformers.utils import logging

from benchmarks.tiny_configs import VOCABULARY, causal_model_types, tiny_config
from r1lit.data.packing import EncodedDocument, build_rows
from r1lit.policy import LogProbs, ModelSource, Policy, Responses, is_packed, load_policy
from r1lit.rollout import Completion, InProcessEngine, ModelSpec, Request, Sampling
from r1lit.rollout.decoding_method import find_decoding_method
from r1lit.supervised_batches import PackedRows

PAGE = Path(__file__).parents[1] / "docs" / "MODEL_FAMILIES.md"
PATHS = {
    "packed": "packed",
    "padded": "padded",
    "refused": "refused",
    "not made": "whose defaults make no tiny model (left out)",
}
CLAIM = (
    "None is silently wrong, as configured here; families with an optional window or sparse layers"
    " have a line with it on."
)
SMALLEST = 1e-4
PROMPTS = ((3, 4, 5, 6, 7, 8, 9, 10, 11), (3, 12, 13), tuple(range(20, 34)), (3, 40))
LENGTHS = (12, 3, 7, 1, 9, 12, 2, 5)  # of given responses, two a prompt
DOCUMENTS = [list(range(50, 60)), list(range(60, 83)), list(range(90, 95)), list(range(70, 84))]
DOCUMENT_ROWS = ((0, 1, 2), (3,))
GROUP_SIZE, MAX_TOKENS = 2, 12
TOKENIZER: Any = SimpleNamespace(eos_token_id=2, pad_token_id=0)

# nats; float32's own rounding over a few layers is 1e-6 to 1e-5
EXACT = 1e-4
GRADIENT = 1e-3
# how much further than Hugging Face's own forward pass ours may be from float32, in bfloat16
ROUNDING = 2.0
MISMATCH = 0.1  # mean, in bfloat16


@dataclass(frozen=True, kw_only=True)
class Case:
    """An architecture: what its configuration has beside its defaults, and its attention."""

    name: str
    model_type: str
    changes: dict[str, Any] = field(default_factory=dict)
    attention: str = "sdpa"


LONGROPE = {
    "rope_parameters": {
        **{"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0},
        **{"short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0]},
        "original_max_position_embeddings": 64,
    },
    "original_max_position_embeddings": 64,
}
DYNAMIC = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}}
YARN = {
    "rope_parameters": {
        **{"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0},
        "original_max_position_embeddings": 64,
    }
}
SPARSE = {
    "layer_types": ["full_attention", "minimax_m3_sparse"],
    **{"index_n_heads": 2, "index_block_size": 4, "index_topk_blocks": 2, "index_local_blocks": 1},
}
SLIDING = {
    **{"use_sliding_window": True, "sliding_window": 8},
    "layer_types": ["sliding_attention", "full_attention"],
}
VARIANTS = (
    Case(name="minimax_m3_vl_text (sparse)", model_type="minimax_m3_vl_text", changes=SPARSE),
    Case(name="phimoe (window)", model_type="phimoe", changes={"sliding_window": 8}),
    Case(name="qwen2_moe (window)", model_type="qwen2_moe", changes=SLIDING),
    Case(name="zamba2 (small steps)", model_type="zamba2", changes={"initializer_range": 0.1}),
    Case(
        name="nemotron_h (small steps)",
        model_type="nemotron_h",
        changes={"initializer_range": 0.1},
    ),
    Case(name="phi3 (longrope)", model_type="phi3", changes=LONGROPE),
    Case(name="llama (dynamic rope)", model_type="llama", changes=DYNAMIC),
    Case(name="llama (yarn)", model_type="llama", changes=YARN),
    Case(name="llama (eager)", model_type="llama", attention="eager"),
    Case(name="mistral (no window)", model_type="mistral", changes={"sliding_window": None}),
    Case(name="granite (logits_scaling 8)", model_type="granite", changes={"logits_scaling": 8.0}),
    Case(name="falcon (ALiBi)", model_type="falcon", changes={"alibi": True}),
    Case(name="opt (eager)", model_type="opt", attention="eager"),
    Case(name="biogpt (eager)", model_type="biogpt", attention="eager"),
)


def cases() -> list[Case]:
    """Return every architecture, and some in other guises."""
    return [*(Case(name=name, model_type=name) for name in causal_model_types()), *VARIANTS]


def make_model(case: Case) -> PreTrainedModel:
    """Return a model with random weights whose next-token distributions are far from uniform."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        changes = {k: v for k, v in case.changes.items() if v is not None}
        config = tiny_config(case.model_type, **changes)
        for name in case.changes.keys() - changes.keys():
            setattr(config, name, None)
        try:
            model = AutoModelForCausalLM.from_config(config, attn_implementation=case.attention)
        except ValueError:
            model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        model.generation_config = GenerationConfig(pad_token_id=0, bos_token_id=1, eos_token_id=2)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
            ids = torch.tensor([PROMPTS[2]])
            spread = model.eval()(input_ids=ids, use_cache=False).logits.std()
            head = model.get_output_embeddings()
            if head is not None and spread < 1.0:
                head.weight.mul_(1.5 / spread)
    return model


def plain_logp(model: PreTrainedModel, rows: Sequence[tuple[Sequence[int], list[int]]]) -> Tensor:
    """Return the log-probs (K) of responses, each row alone, without padding or cache."""
    found = []
    for prompt, response in rows:
        ids = torch.tensor([[*prompt, *response]])
        logits_TV = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
        target_T1 = ids[0, len(prompt) :, None]
        found.append(logits_TV.log_softmax(-1).gather(-1, target_T1).squeeze(-1))
    return torch.cat(found)


def responses_of(prompts: Sequence[Sequence[int]], tokens: Sequence[list[int]]) -> Responses:
    """Return responses as a policy reads them."""
    length_B = torch.tensor([len(row) for row in tokens])
    mask_BT = torch.arange(int(length_B.max())) < length_B[:, None]
    flat = torch.tensor([token for row in tokens for token in row])
    response_BT = torch.zeros(mask_BT.shape, dtype=torch.long).masked_scatter(mask_BT, flat)
    return Responses(prompts=prompts, response_BT=response_BT, mask_BT=mask_BT)


def packed_rows() -> PackedRows:
    """Return the documents in two rows, as supervised training reads them."""
    width = max(sum(len(DOCUMENTS[d]) for d in row) for row in DOCUMENT_ROWS)
    documents = [EncodedDocument(tokens=np.array(d), num_prompt_tokens=0) for d in DOCUMENTS]
    return build_rows(documents, DOCUMENT_ROWS, max_seq_len=width, pad_id=0, loss_on="all")


def draw(policy: Policy, temperature: float) -> list[Completion]:
    """Return G responses to each prompt."""
    engine = InProcessEngine(compile=False)
    engine.bind(ModelSpec(name="tiny", tokenizer=TOKENIZER, policy=policy))
    sampling = Sampling(temperature=temperature, max_tokens=MAX_TOKENS)
    requests = [
        Request(
            prompt=prompt,
            samples=tuple(range(GROUP_SIZE * p, GROUP_SIZE * (p + 1))),
            sampling=sampling,
            seed=0,
        )
        for p, prompt in enumerate(PROMPTS)
    ]
    return engine.generate(requests)


def measure(case: Case) -> dict[str, Any]:
    """Return one line of the page: how an architecture is computed, and how far from plainly.

    ``path`` is packed, padded or refused; ``why`` says why not the one before. Log-probs differ by
    the greatest over tokens, gradients by the norm of all together.
    """
    line: dict[str, Any] = {"name": case.name}
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        folder = Path(name)
        try:
            model = make_model(case)
            model.save_pretrained(folder)
        except Exception as error:  # whatever transformers' own code says of its own defaults
            return line | {"path": "not made", "why": first(error)}
        attention = model.config._attn_implementation or "eager"
        try:
            policy = load_policy(ModelSource(str(folder), attention=attention), dropout=False)
        except ValueError as error:
            return line | {"path": "refused", "why": first(error).replace(str(folder), "...")}
        plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention).eval()
    reasons = [
        str(w.message).split("packed tokens: ")[1] for w in said if "padded" in str(w.message)
    ]
    line |= {"path": "padded" if reasons else "packed", "why": "".join(reasons[:1])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        line |= _training(policy, plain)
        line |= {"way": find_decoding_method(policy)}
        line |= _rollouts(policy, plain)
    return line


def _training(policy: Policy, plain: PreTrainedModel) -> dict[str, float]:
    """Compare log-probs and gradients of responses, and log-probs of packed documents."""
    generator = torch.Generator().manual_seed(1)
    prompts = [prompt for prompt in PROMPTS for _ in range(GROUP_SIZE)]
    tokens = [torch.randint(3, VOCABULARY - 4, (n,), generator=generator).tolist() for n in LENGTHS]
    rows = list(zip(prompts, tokens, strict=True))
    responses = responses_of(prompts, tokens)
    found: dict[str, float] = {}
    exact: tuple[Tensor, Tensor] | None = None
    for dtype in ("fp32", "bf16"):
        both = []
        for module in (policy, plain):
            module.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
                if isinstance(module, Policy):
                    logp_K = module(responses).logp_K
                else:
                    logp_K = plain_logp(module, rows)
                (logp_K * torch.linspace(-1, 1, len(logp_K))).sum().backward()
            both.append((logp_K.detach(), _gradient(module)))
        exact = exact or both[1]
        if dtype == "fp32":
            found["logp_fp32"], found["gradient_fp32"] = _difference(both[0], exact)
            found["padded_fp32"] = _largest(_padded_logp(policy, responses) - exact[0])
            continue
        for whose, (logp_K, gradient) in zip(("ours", "plain"), both, strict=True):
            said = _difference((logp_K, gradient), exact)
            found[f"logp_bf16_{whose}"], found[f"gradient_bf16_{whose}"] = said
    with torch.no_grad():
        alone_K = plain_logp(plain, [(document[:1], document[1:]) for document in DOCUMENTS])
        found["leak"] = _largest(policy(packed_rows(), LogProbs()).logp_K - alone_K)
    return found


@torch.no_grad()
def _padded_logp(policy: Policy, responses: Responses) -> Tensor:
    """Return a policy's log-probs over padded rows, also where it computes packed tokens."""
    if not is_packed(policy):
        return policy(responses).logp_K
    model: Any = policy.model
    before = model.config._attn_implementation
    model.set_attn_implementation("sdpa")
    try:
        return policy(responses).logp_K
    finally:
        model.set_attn_implementation(before)


@torch.no_grad()
def _rollouts(policy: Policy, plain: PreTrainedModel) -> dict[str, Any]:
    """Compare greedy responses with ``generate``, and log-probs as drawn with the plain ones.

    In bfloat16, where rounding differs, they are compared with training's.
    """
    found: dict[str, Any] = {}
    prompts = [prompt for prompt in PROMPTS for _ in range(GROUP_SIZE)]
    greedy = [completion.token_ids.tolist() for completion in draw(policy, 0.0)]  # type: ignore[union-attr]
    found["argmax"] = all(
        _argmax(plain, prompt, tokens) for prompt, tokens in zip(prompts, greedy, strict=True)
    )
    found["generate"] = "same"
    for prompt, tokens in zip(PROMPTS, greedy[::GROUP_SIZE], strict=True):
        ids = torch.tensor([prompt])
        try:
            out = plain.generate(  # type: ignore[operator]
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=MAX_TOKENS
            )
        except Exception as error:
            found["generate"] = f"fails: {type(error).__name__}"
            break
        if out[0, len(prompt) :].tolist() != tokens:
            found["generate"] = "differs"
    for dtype in ("fp32", "bf16"):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            drawn = draw(policy, 1.0)
            tokens = [completion.token_ids.tolist() for completion in drawn]  # type: ignore[union-attr]
            if dtype == "fp32":
                logp_K = plain_logp(plain, list(zip(prompts, tokens, strict=True)))
            else:
                logp_K = policy(responses_of(prompts, tokens)).logp_K
        change_K = (logp_K - torch.cat([c.logps for c in drawn])).abs()  # type: ignore[misc]
        found[f"mismatch_{dtype}"] = float(change_K.max() if dtype == "fp32" else change_K.mean())
    return found


def _argmax(plain: PreTrainedModel, prompt: Sequence[int], tokens: list[int]) -> bool:
    logits = plain(input_ids=torch.tensor([[*prompt, *tokens]]), use_cache=False).logits
    return logits[0, len(prompt) - 1 : -1].argmax(-1).tolist() == tokens


def _gradient(module: nn.Module) -> Tensor:
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in module.parameters()]
    return torch.cat([part.flatten() for part in parts])


def _difference(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> tuple[float, float]:
    """Return how far log-probs are, and gradients relatively."""
    return _largest(one[0] - other[0]), float((one[1] - other[1]).norm() / other[1].norm())


def _largest(change: Tensor) -> float:
    return float(change.abs().max())


def first(error: BaseException) -> str:
    """Return the beginning of an error's message, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:160]


def faults(line: dict[str, Any]) -> list[str]:
    """Return what is wrong with an architecture although it was not refused."""
    if "logp_fp32" not in line:
        return []
    # a model that float32's own rounding moves, as recursion does, may be that far from itself
    noise = max(1.0, line["logp_bf16_plain"])
    wrong = {
        "log-probs": line["logp_fp32"] > EXACT * noise,
        "padded log-probs": line["padded_fp32"] > EXACT * noise,
        "gradient": line["gradient_fp32"] > GRADIENT,
        "log-probs in bf16": line["logp_bf16_ours"] > ROUNDING * line["logp_bf16_plain"] + 0.05,
        "gradient in bf16": line["gradient_bf16_ours"]
        > ROUNDING * line["gradient_bf16_plain"] + 0.01,
        "documents see each other": line["leak"] > EXACT * noise,
        "greedy": not line["argmax"],
        "mismatch": line["mismatch_fp32"] > EXACT * noise,
        "mismatch in bf16": line["mismatch_bf16"] > MISMATCH * noise,
    }
    return [name for name, is_wrong in wrong.items() if is_wrong]


def page(lines: Sequence[dict[str, Any]]) -> str:
    """Return the page's tables as Markdown: of what was measured, and of why not packed."""
    counts = Counter(line["path"] for line in lines)
    versions = f"transformers {transformers.__version__} and PyTorch {torch.__version__}"
    cases = ", ".join(f"{counts[path]} {said}" for path, said in PATHS.items() if counts[path])
    reasons: dict[str, list[str]] = {}
    for line in lines:
        if line["why"]:
            reason = f"{line['path']}: {line['why']}".replace("|", "/")
            reasons.setdefault(reason, []).append(line["name"])
    measured = [line for line in lines if "logp_fp32" in line]
    order = sorted(measured, key=lambda line: (list(PATHS).index(line["path"]), line["name"]))
    header = (
        "architecture", "path", "logp fp32", "grad fp32", "logp bf16, HF's", "grad bf16, HF's",
        "documents", "decodes", "generate", "mismatch fp32", "bf16",
    )  # fmt: skip
    return "\n".join(
        [
            f"With {versions.split('+')[0]}, {len(lines)} cases: {cases}. {CLAIM}",
            "",
            _row(header),
            "|" + "---|" * len(header),
            *(_row(_cells(line)) for line in order),
            "",
            "## Why not packed",
            "",
            "| architectures | why |",
            "|---|---|",
            *(
                _row([", ".join(names), reason])
                for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1]))
            ),
        ]
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(line: dict[str, Any]) -> list[str]:
    """Return an architecture's row, in the order of the page's columns."""
    figures = {key: _number(value) for key, value in line.items() if isinstance(value, float)}
    return [
        line["name"],
        line["path"],
        _number(max(line["logp_fp32"], line["padded_fp32"])),
        figures["gradient_fp32"],
        f"{figures['logp_bf16_ours']}, {figures['logp_bf16_plain']}",
        f"{figures['gradient_bf16_ours']}, {figures['gradient_bf16_plain']}",
        figures["leak"],
        line["way"],
        line["generate"],
        figures["mismatch_fp32"],
        figures["mismatch_bf16"],
    ]


def _number(value: float) -> str:
    """Return a figure of two digits; below ``SMALLEST`` it varies with the machine.

    >>> _number(0.0312), _number(4.8e-7)
    ('0.031', '<')
    """
    return "<" if value < SMALLEST else f"{value:.2g}"


def survey(only: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the page's lines, and say on stderr how far it is."""
    chosen = [case for case in cases() if not only or case.name in only or case.model_type in only]
    started = time.perf_counter()
    for index, case in enumerate(chosen, start=1):
        yield measure(case)
        seconds = time.perf_counter() - started
        print(
            f"\r{index} of {len(chosen)} architectures, {seconds:.0f} s: {case.name:28}",
            end="" if index < len(chosen) else "\n", file=sys.stderr, flush=True,
        )  # fmt: skip


def main(args: Sequence[str] | None = None) -> None:
    """Write the page, or print some lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=(), help="architectures to print, not write")
    options = parser.parse_args(args)
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    lines = list(survey(options.only))
    wrong = {line["name"]: faults(line) for line in lines if faults(line)}
    if options.only:
        for line in lines:
            print({k: float(f"{v:.2g}") if isinstance(v, float) else v for k, v in line.items()})
    elif not wrong:
        from experiments.page import write_into

        write_into(PAGE, page(lines))
    for name, found in wrong.items():
        print(f"{name}: wrong in {', '.join(found)}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
