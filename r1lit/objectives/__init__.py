"""Objectives of an update, and advantages from rewards.

Each class is one paper's objective, picked in YAML by ``class_path: r1lit.objectives.GRPO``; each
function is one numbered equation. ``docs/EQUATIONS.md`` is the index. Nothing here uses models or
Lightning: tensors in, tensors out.

GRPO           the ratio per token, the mean over a response, then over rows
GRPOSequence   one ratio per whole output, as DeepSeek-R1 prints it
DrGRPO         without GRPO's two biases, of length and of difficulty
DAPO           the clip higher above than below, every token of the minibatch counted alike
GSPO           the ratio of a response is the geometric mean of its token ratios
GSPOToken      the same with an advantage a token
GMPO           the geometric mean of token ratios that were clipped one by one
SAPO           a soft gate in place of the clip
DPPO           a limit on the divergence of the policies in place of one on the ratio
CISPO          the importance weight clipped, every token's gradient kept
PPO            a critic's advantages, which ``ValueObjective`` trains
PolicyGradient no ratio, no clip
RLOO           REINFORCE on whole responses, with the mean of the others as its baseline
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
