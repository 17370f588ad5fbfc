"""R1-Zero in one file: GRPO on the small world, with PyTorch and transformers alone.

    python -m experiments.one_file.grpo     # a short one: --iterations 4 --prompts 4

An iteration is: responses to P prompts, G each -> rewards -> advantages -> updates. The objective
is Dr. GRPO (arXiv 2503.20783) with R1's KL penalty towards the base. What this file leaves out and
`r1lit.modules.GRPOModule` has: packed tokens, bfloat16, resume, DDP, other objectives, curves.

P prompts   G responses per prompt   B = P*G rows   b rows of a micro-batch   L tokens of a row
"""

from __future__ import annotations

import argparse
import copy
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import AutoTokenizer, LlamaForCausalLM

from r1lit.verifiers import CountdownVerifier, MathVerifier
from r1lit.worlds import WorldChain, WorldCountdown

TEMPLATE = (  # DeepSeek-R1, arXiv 2501.12948v1, Table 1, which has a period behind the question
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves"
    " it. The assistant first thinks about the reasoning process in the mind and then provides the"
    " user with the answer. The reasoning process and answer are enclosed within <think> </think>"
    " and <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think>"
    " <answer> answer here </answer>. User: {question} Assistant:"
)
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
FORMAT = re.compile(r"\s*<think>.*</think>\s*<answer>.*\S.*</answer>\s*", re.DOTALL)
EPSILON, BETA, MAX_GRAD_NORM, MAX_TOKENS, MICRO_BATCH = 0.2, 0.05, 0.05, 576, 16


@dataclass
class Row:
    """One response: token ids of prompt and response, its reward and advantage."""

    prompt: list[int]
    response: list[int]  # with EOS, unless cut at MAX_TOKENS
    reward: float
    advantage: float = 0.0


@torch.no_grad()
def generate(policy: LlamaForCausalLM, tokenizer, prompts: list[str], group_size: int, max_tokens):
    """Return G responses to each prompt as (prompt ids, response ids), group after group."""
    batch = tokenizer(list(prompts), return_tensors="pt", padding=True, padding_side="left")
    policy.eval()
    ids_BL = policy.generate(
        **batch, num_return_sequences=group_size, max_new_tokens=max_tokens,
        do_sample=True, temperature=1.0, top_k=0, top_p=1.0, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    policy.train()
    completions = []
    for b, row_L in enumerate(ids_BL[:, batch["input_ids"].shape[1] :].tolist()):
        p = b // group_size
        prompt = batch["input_ids"][p][batch["attention_mask"][p].bool()].tolist()
        if tokenizer.eos_token_id in row_L:
            row_L = row_L[: row_L.index(tokenizer.eos_token_id) + 1]
        completions.append((prompt, row_L))
    return completions


def reward_of(text: str, problem, verifiers) -> tuple[float, float]:
    """Return accuracy and format, 1 or 0 each: R1-Zero's reward is their sum."""
    accuracy = verifiers[problem.verifier].verify(text, problem).value
    well_formed = all(text.count(tag) == 1 for tag in TAGS) and FORMAT.fullmatch(text)
    return accuracy, float(bool(well_formed))


def set_advantages(rows: list[Row], group_size: int) -> None:
    """A_i = r_i - mean(r) within each group (Dr. GRPO, Section 3.2; GRPO divides by the std)."""
    for start in range(0, len(rows), group_size):
        group = rows[start : start + group_size]
        mean = sum(row.reward for row in group) / group_size
        for row in group:
            row.advantage = row.reward - mean


def log_probs(policy: LlamaForCausalLM, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Return log pi of every next token (b, L - 1), and which of them belong to a response."""
    length = max(len(row.prompt) + len(row.response) for row in rows)
    ids_bL = torch.zeros(len(rows), length, dtype=torch.long)  # padded on the right
    mask_bL = torch.zeros(len(rows), length, dtype=torch.bool)
    for b, row in enumerate(rows):
        end = len(row.prompt) + len(row.response)
        ids_bL[b, :end] = torch.tensor(row.prompt + row.response)
        mask_bL[b, len(row.prompt) : end] = True
    logits_bLV = policy(input_ids=ids_bL, use_cache=False).logits[:, :-1].float()
    logp_bL = logits_bLV.log_softmax(-1).gather(-1, ids_bL[:, 1:, None]).squeeze(-1)
    return logp_bL, mask_bL[:, 1:]


def objective(logp_bL, logp_old_bL, logp_ref_bL, advantage_b1, mask_bL) -> Tensor:
    """Return sum over tokens of min(rho A, clip(rho) A) - beta KL; rho = pi / pi_old.

    KL is the k3 estimator: pi_ref / pi - log(pi_ref / pi) - 1 (DeepSeekMath, Eq. 4).
    """
    rho_bL = (logp_bL - logp_old_bL).exp()
    clipped_bL = rho_bL.clamp(1 - EPSILON, 1 + EPSILON)
    surrogate_bL = torch.minimum(rho_bL * advantage_b1, clipped_bL * advantage_b1)
    kl_bL = (logp_ref_bL - logp_bL).exp() - (logp_ref_bL - logp_bL) - 1
    return torch.where(mask_bL, surrogate_bL - BETA * kl_bL, 0.0).sum()


def update(policy, reference, optimizer, scheduler, rows, old, max_tokens: int) -> float:
    """Make one update on a minibatch; return its loss, -J.

    J is divided by rows times the limit of tokens, which does not depend on the responses: dividing
    by each response's own length would make long wrong answers cheap (Dr. GRPO).
    """
    optimizer.zero_grad()
    total = 0.0
    for start in range(0, len(rows), MICRO_BATCH):
        part = rows[start : start + MICRO_BATCH]
        logp_bL, mask_bL = log_probs(policy, part)
        with torch.no_grad():
            logp_ref_bL, _ = log_probs(reference, part)
        logp_old_bL = torch.zeros_like(logp_bL).masked_scatter(
            mask_bL, torch.cat([old[id(row)] for row in part])
        )
        advantage_b1 = torch.tensor([[row.advantage] for row in part])
        j = objective(logp_bL, logp_old_bL, logp_ref_bL, advantage_b1, mask_bL)
        loss = -j / (len(rows) * max_tokens)
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), MAX_GRAD_NORM)
    optimizer.step()
    scheduler.step()
    return total


@torch.no_grad()
def old_log_probs(policy: LlamaForCausalLM, rows: Sequence[Row]) -> dict[int, Tensor]:
    """Return the log-probs of each row's response under the policy that drew it."""
    old: dict[int, Tensor] = {}
    for start in range(0, len(rows), MICRO_BATCH):
        part = rows[start : start + MICRO_BATCH]
        logp_bL, mask_bL = log_probs(policy, part)
        old |= {id(r): lp[m] for r, lp, m in zip(part, logp_bL, mask_bL, strict=True)}
    return old


def iterate(policy, reference, optimizer, scheduler, rows, batches, max_tokens) -> list[float]:
    """Make an iteration's updates, one for each list of row indices; return their losses."""
    old = old_log_probs(policy, rows)
    return [
        update(policy, reference, optimizer, scheduler, [rows[i] for i in batch], old, max_tokens)
        for batch in batches
    ]


def make_optimizer(policy, num_updates: int, lr: float = 1.5e-4):
    """Return AdamW, and a rate that falls to a tenth over the run."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    fall = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=num_updates)
    return optimizer, fall


def main() -> None:
    """Train the shipped base; print a line an iteration."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("iterations", 24), ("prompts", 16), ("responses", 16), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained("models/mini")
    policy = LlamaForCausalLM.from_pretrained("models/mini", dtype=torch.float32).train()
    reference = copy.deepcopy(policy).eval().requires_grad_(False)
    optimizer, scheduler = make_optimizer(policy, args.iterations * 4)
    problems = WorldCountdown(num_problems=120, min_attempts=30, max_attempts=40).problems()
    problems += WorldChain(num_problems=60).problems()
    verifiers = {"countdown": CountdownVerifier(), "math": MathVerifier()}
    for iteration in range(args.iterations):
        batch = random.Random(f"{args.seed} {iteration}").sample(problems, args.prompts)
        prompts = [TEMPLATE.format(question=problem.question) for problem in batch]
        completions = generate(policy, tokenizer, prompts, args.responses, MAX_TOKENS)
        texts = tokenizer.batch_decode([ids for _, ids in completions], skip_special_tokens=True)
        earned = [reward_of(t, batch[b // args.responses], verifiers) for b, t in enumerate(texts)]
        rows = [Row(p, ids, sum(both)) for (p, ids), both in zip(completions, earned, strict=True)]
        set_advantages(rows, args.responses)
        order = torch.randperm(len(rows)).tolist()
        quarters = [order[i::4] for i in range(4)]
        losses = iterate(policy, reference, optimizer, scheduler, rows, quarters, MAX_TOKENS)
        accuracy, form = (sum(values) / len(rows) for values in zip(*earned, strict=True))
        length = sum(len(row.response) for row in rows) / len(rows)
        numbers = f"accuracy {accuracy:.2f}  format {form:.2f}  length {length:.0f}"
        print(f"iteration {iteration + 1:2}  {numbers}  loss {sum(losses) / 4:+.5f}", flush=True)
    verifiers["math"].close()


if __name__ == "__main__":
    main()
