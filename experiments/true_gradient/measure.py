"""Bias and noise of policy-gradient estimators at a checkpoint, against the true gradient.

    python -m experiments.true_gradient.measure models/mini --name base --output base.jsonl \
        --later runs/x/policy_1 runs/x/policy_4 --updates 1 4

The first policy samples. Gradients are taken at it (0 updates of staleness) and at the later ones.
Writes one line for the true gradient at each, and one for each estimator.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.launch import command_line, reported
from experiments.true_gradient.estimators import (
    Batch,
    Leaf,
    estimators,
    gradients_KX,
    groups_of,
    token_weights_BT,
    true_weights_BT,
)
from experiments.true_gradient.tree import Scores, Subspace, sample_tree
from r1lit.batches import Problem, Response
from r1lit.files import Record, write_records
from r1lit.policy import load_policy, load_tokenizer
from r1lit.rewards import Accuracy, Format
from r1lit.seeding import generator
from r1lit.text.prompts import encode_prompts, prompt_text
from r1lit.verifiers import Grader
from r1lit.worlds import WorldChain

MAX_TOKENS = 64
GROUP_SIZE, NUM_GROUPS = 8, 64
DIRECTIONS = 32
"""Directions that are kept of each side of the layer: X has 32 x 32 numbers."""


class Pool:
    """Samples of the first policy for each problem, as leaves of trees, scored by all policies."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.samples: list[list[int]] = []
        """Of each problem: leaves, one entry a sample."""
        self._tokens: list[np.ndarray] = []
        self._scores: list[list[Scores]] = []
        self.num_nodes = 0

    def add(self, problem: Problem, tree: Any, tokenizer: Any, grader: Grader) -> list[int]:
        """Add a tree's leaves, graded; return one leaf a sample."""
        ids = [tree.tokens(leaf) for leaf in range(len(tree.nodes))]
        texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
        verdicts = grader.verdicts(texts, [problem] * len(texts))
        samples = []
        for row, (text, verdict) in enumerate(zip(texts, verdicts, strict=True)):
            response = Response(
                text=text,
                problem=problem,
                verdict=verdict,
                num_tokens=len(ids[row]),
                finished=bool(tree.finished[row]),
            )
            rewards = {f.name: f([response])[0] for f in (Accuracy(), Format())}
            nodes = torch.from_numpy(tree.nodes[row] + self.num_nodes)
            samples += [len(self.leaves)] * int(tree.counts[row])
            self.leaves.append(Leaf(nodes=nodes, response=response, rewards=rewards))
        self._tokens.append(tree.token_N)
        self._scores.append(tree.scores)
        self.num_nodes += len(tree.token_N)
        return samples

    def token_N(self) -> Tensor:
        """Return the tokens of all nodes."""
        return torch.from_numpy(np.concatenate(self._tokens))

    def scores(self, policy: int) -> Scores:
        """Return what a policy makes of all nodes."""
        return Scores.joined([scores[policy] for scores in self._scores])


def sample_pool(
    policies: Sequence[str], num_problems: int, num_trees: int, num_samples: int, seed: int
) -> Pool:
    """Sample responses to the run's problems, ``num_trees`` trees of ``num_samples`` each."""
    tokenizer = load_tokenizer(policies[0])
    loaded = [load_policy(path, dropout=False).eval().requires_grad_(False) for path in policies]
    subspace = Subspace.random(loaded[0].model, DIRECTIONS, DIRECTIONS)
    problems = WorldChain(num_problems=num_problems, min_steps=4, max_steps=4).problems()
    texts = [prompt_text(tokenizer, "small_world", problem.question) for problem in problems]
    pool, grader = Pool(), Grader()
    for place, prompt in enumerate(encode_prompts(tokenizer, texts)):
        rng = generator(seed, "samples", place)
        samples: list[int] = []
        for _ in range(num_trees):
            tree = sample_tree(
                loaded, prompt, num_samples, MAX_TOKENS, tokenizer.eos_token_id, subspace, rng
            )
            samples += pool.add(problems[place], tree, tokenizer, grader)
        pool.samples.append(rng.permutation(samples).tolist())
        print(f"problem {place}: {pool.num_nodes:,} nodes, {len(pool.leaves):,} leaves", flush=True)
    grader.close()
    return pool


def batch_gradients(pool: Pool, policy: int, seed: int) -> tuple[Tensor, Tensor, Record]:
    """Return gradients ``[R, K + 1, X]`` of R batches, clip fractions ``[R, K]`` and facts.

    The last of the K + 1 is the gradient of the expected reward, from the batch's samples.
    """
    token_N, old_N = pool.token_N(), pool.scores(0).logp_N
    scores = pool.scores(policy)
    log_weights = torch.stack([(scores.logp_N - old_N)[x.nodes].sum() for x in pool.leaves])
    rewards = torch.tensor([leaf.reward for leaf in pool.leaves])
    batches = groups_of([np.array(x) for x in pool.samples], GROUP_SIZE, NUM_GROUPS)
    sampled_RB = torch.tensor(batches)
    weight_RB = log_weights[sampled_RB].exp()
    earned_RB = weight_RB * rewards[sampled_RB]
    num_problems = len(pool.samples)
    by_problem_RQ = earned_RB.view(len(batches), num_problems, -1).sum(-1)
    weight_RQ = weight_RB.view(len(batches), num_problems, -1).sum(-1)
    baseline_RQ = (by_problem_RQ.sum(0) - by_problem_RQ) / (weight_RQ.sum(0) - weight_RQ)
    baseline_RB = baseline_RQ.repeat_interleave(sampled_RB.shape[1] // num_problems, 1)
    gradients, clipped = [], []
    for r, leaves in enumerate(batches):
        batch = Batch(leaves=[pool.leaves[leaf] for leaf in leaves], group_size=GROUP_SIZE)
        rollout = batch.rollout(token_N, old_N)
        nodes_BT, mask_BT = batch.nodes_BT()
        logp_BT = torch.where(mask_BT, scores.logp_N[nodes_BT], 0.0)
        pairs = [
            token_weights_BT(name, objective, rollout, logp_BT, seed + r)
            for name, objective in estimators(MAX_TOKENS).items()
        ]
        true_BT = true_weights_BT(batch, log_weights[leaves], baseline_RB[r])
        weights_KBT = torch.stack([*(c_BT for c_BT, _ in pairs), true_BT])
        gradients.append(gradients_KX(weights_KBT, batch, scores))
        clipped.append(torch.tensor([share for _, share in pairs]))
    ratio_N = (scores.logp_N - old_N).double()
    nodes = torch.cat([pool.leaves[leaf].nodes for leaf in sampled_RB.flatten().tolist()])
    right = torch.tensor([leaf.rewards["accuracy"] for leaf in pool.leaves])[sampled_RB]
    lengths = torch.tensor([float(len(leaf.nodes)) for leaf in pool.leaves])[sampled_RB]
    facts = {
        "samples": sampled_RB.numel(),
        "responses": len(pool.leaves),
        "accuracy": float((right * weight_RB).mean()),
        "reward": float(earned_RB.mean()),
        "length": float((lengths * weight_RB).mean()),
        "effective_share": float(weight_RB.sum() ** 2 / (weight_RB**2).sum() / weight_RB.numel()),
        "kl_old": float((torch.expm1(ratio_N) - ratio_N)[nodes].mean()),
    }
    return torch.stack(gradients), torch.stack(clipped), facts


def inner(a_RX: Tensor, b_RX: Tensor) -> tuple[Tensor, Tensor]:
    """Return an unbiased estimate of <E a, E b> from R pairs, and those without each pair.

    Products of one pair are left out: their noise is common.
    """
    num = len(a_RX)
    own_R = (a_RX * b_RX).sum(-1)
    a_X, b_X = a_RX.sum(0), b_RX.sum(0)
    whole = a_X @ b_X - own_R.sum()
    without_R = whole - a_RX @ b_X - b_RX @ a_X + 2 * own_R
    return whole / (num * (num - 1)), without_R / ((num - 1) * (num - 2))


def with_error(
    statistic: Callable[..., Tensor], *pairs: tuple[Tensor, Tensor]
) -> tuple[float, float]:
    """Return a statistic of estimates, and its standard error by the jackknife."""
    value = statistic(*(whole for whole, _ in pairs))
    without_R = statistic(*(parts for _, parts in pairs))
    num = len(without_R)
    spread = (without_R - without_R.mean()).square().sum() * (num - 1) / num
    return float(value), math.sqrt(float(spread))


def mean_without(value_R: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean over batches, and the means without each."""
    return value_R.mean(), (value_R.sum() - value_R) / (len(value_R) - 1)


def describe(g_RX: Tensor, true_RX: Tensor) -> Record:
    """Return an estimator's cosines, noise and scale, each with its standard error.

    ``cosine_mean`` is of the expected gradient with the true one: 1 without a bias in direction.
    ``cosine`` is of one batch's gradient, NaN if that is 0 in some batch. ``noise`` is the root of
    the variance's trace over the length of the expected gradient. ``scale`` is how long the
    expected gradient is along the true.
    """
    g_RX, true_RX = g_RX.double(), true_RX.double()
    gg, gt, tt = inner(g_RX, g_RX), inner(g_RX, true_RX), inner(true_RX, true_RX)
    square = mean_without(g_RX.square().sum(-1))
    others_RX = (true_RX.sum(0) - true_RX) / (len(true_RX) - 1)
    along_R = (g_RX * others_RX).sum(-1) / g_RX.norm(dim=-1)  # NaN where all is clipped
    found = {
        "cosine_mean": with_error(lambda a, b, c: b / (a * c).clamp(min=0).sqrt(), gg, gt, tt),
        "cosine": with_error(lambda a, b: a / b.sqrt(), mean_without(along_R), tt),
        "noise": with_error(lambda s, a: (s / a - 1).clamp(min=0).sqrt(), square, gg),
        "scale": with_error(lambda b, c: b / c, gt, tt),
    }
    return {k: v for name, (value, error) in found.items()
            for k, v in ((name, value), (f"{name}_se", error))}  # fmt: skip


def measure(pool: Pool, name: str, updates: Sequence[int], seed: int) -> list[Record]:
    """Return the lines of a checkpoint."""
    lines = []
    for policy, stale in enumerate(updates):
        gradients, clipped, facts = batch_gradients(pool, policy, seed)
        true_RX = gradients[:, -1].double()
        key = {"checkpoint": name, "stale": stale}
        norm, norm_se = with_error(lambda x: x.sqrt(), inner(true_RX, true_RX))
        error = (true_RX.var(0).sum() / len(true_RX)).sqrt()
        truth = {"norm": norm, "norm_se": norm_se, "relative_error": float(error) / norm}
        lines.append({**key, "estimator": "true", "batches": len(true_RX), **facts, **truth})
        for k, estimator in enumerate(estimators(MAX_TOKENS)):
            found = describe(gradients[:, k], true_RX)
            share = float(clipped[:, k].mean())
            lines.append({**key, "estimator": estimator, "clipped": share, **found})
        print(f"{name}, {stale} updates later: {facts}, {truth}", flush=True)
    return [rounded(line) for line in lines]


def rounded(line: Record) -> Record:
    """Return a line with six digits of each number, and none for what is not defined."""
    found = {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in line.items()}
    return {k: None if v != v else v for k, v in found.items()}


@reported("experiments.true_gradient.measure")
def main(args: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status, 2 for bad input."""
    parser = command_line("experiments.true_gradient.measure", __doc__)
    parser.add_argument("policy", help="a directory; it samples")
    parser.add_argument("--later", nargs="*", default=[], help="policies some updates later")
    parser.add_argument("--updates", nargs="*", type=int, default=[], help="how many, of each")
    parser.add_argument("--name", default="base", help="of the checkpoint")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--num-problems", type=int, default=16)
    parser.add_argument("--trees", type=int, default=2, help="of each problem")
    parser.add_argument("--samples", type=int, default=3200, help="responses of a tree")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(args)
    if len(options.later) != len(options.updates):
        counts = f"{len(options.updates)} numbers for {len(options.later)} policies"
        raise ValueError(f"--updates: {counts}; give one for each of --later")
    if NUM_GROUPS % options.num_problems:
        raise ValueError(f"--num-problems: {options.num_problems} does not divide {NUM_GROUPS}")
    policies = [options.policy, *options.later]
    pool = sample_pool(policies, options.num_problems, options.trees, options.samples, options.seed)
    write_records(options.output, measure(pool, options.name, [0, *options.updates], options.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
