"""pass@k: the chance that k responses hold at least one right one."""

from __future__ import annotations

import math


def pass_at_k(num_samples: int, num_right: int, k: int) -> float:
    """Return the unbiased estimate of pass@k from n samples of which c are right.

    Chen et al. 2021 (arXiv 2107.03374, Eq. 1): 1 - C(n-c, k) / C(n, k), the share of the k-subsets
    of the samples that hold a right one. Computed as 1 - prod over i = n-c+1 .. n of (1 - k/i),
    which forms no large binomials.

    Four samples, one right: half of the six pairs hold it.

    >>> pass_at_k(4, 1, 2)
    0.5

    Raises:
        ValueError: If not 0 <= num_right <= num_samples or not 1 <= k <= num_samples.
    """
    if not 0 <= num_right <= num_samples:
        raise ValueError(f"num_right={num_right} must lie in 0..num_samples={num_samples}")
    if not 1 <= k <= num_samples:
        raise ValueError(f"k={k} must lie in 1..num_samples={num_samples}")
    if num_samples - num_right < k:
        return 1.0
    if k == 1:
        return num_right / num_samples
    wrong = range(num_samples - num_right + 1, num_samples + 1)
    return 1.0 - math.prod(1.0 - k / i for i in wrong)
