"""Changes by RL: nats between a policy and its base, by kind of decision.

    python -m experiments.what_rl_adds.decisions POLICY BASE RESPONSES.jsonl OUTPUT.json

The policy's own responses are scored under both. Summed over a response, the mean difference of
log-probs is the KL divergence of the policy from its base; here it is split by what a token
decides: whether to go on after a failed attempt, whether to check what seems right, which step is
next, what a calculation gives, or how it is worded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from experiments.launch import command_line, reported
from r1lit.files import Record, read_existing, replace_json
from r1lit.policy import load_policy, load_tokenizer
from r1lit.text.prompts import render

NUM_SAMPLES = 4
"""Responses to each problem that are scored."""
GO_ON = "whether to go on after a failure"
CHECK = "whether to check what seems right"
FIRST = "which first step is next"
SECOND = "which second step is next"
NUMBER = "what a calculation gives"
WORDING = "wording, tags and the answer"
KINDS = (GO_ON, CHECK, FIRST, SECOND, NUMBER, WORDING)
STEP = r"\d+ [-+*] \d+"
PARTS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(rf"({STEP})( = \d+)(, \d+:)"), (FIRST, NUMBER, FIRST)),
    (re.compile(rf"({STEP})( ~ \d+ [<>] \d+)(\W)"), (SECOND, NUMBER, GO_ON)),
    (re.compile(rf"({STEP})( ~ \d+ ~ \d+)(, \w+)"), (SECOND, NUMBER, CHECK)),
    (re.compile(rf"(?:wait|check|verify)\W+({STEP} = \d+)"), (NUMBER,)),
)
"""What the groups of each pattern decide; the rest is wording."""
STOP, GIVE_UP = ".", " I"
"""Tokens: who gives up says so after a full stop, so what follows that also decides whether to."""


def kinds_of(text: str) -> list[str]:
    """Return what each character of a response decides.

    >>> text = "4 + 3 = 7, 9: 9 + 7 ~ 15 < 30. I give up."
    >>> kinds = kinds_of(text)
    >>> kinds[0] == FIRST, kinds[text.index("15")] == NUMBER, kinds[text.index(".")] == GO_ON
    (True, True, True)
    """
    kinds = [WORDING] * len(text)
    for pattern, groups in PARTS:
        for match in pattern.finditer(text):
            for group, kind in enumerate(groups, 1):
                start, end = match.span(group)
                kinds[start:end] = [kind] * (end - start)
    return kinds


def split(
    response: Record,
    policy: PreTrainedModel,
    base: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> Iterator[tuple[str, float, float]]:
    """Yield what each token of a response decides, and its log-probs under both models, in nats.

    The token after a failed attempt's full stop may give up: whether it does is yielded apart from
    what it is if it does not.
    """
    stop, give_up = (
        tokenizer(t, add_special_tokens=False)["input_ids"][0] for t in (STOP, GIVE_UP)
    )
    asked = tokenizer(render("small_world", response["question"]))["input_ids"]
    written = tokenizer(response["response"], add_special_tokens=False, return_offsets_mapping=True)
    of_characters = kinds_of(response["response"])
    ids = written["input_ids"]
    kinds = [of_characters[end - 1] for _, end in written["offset_mapping"]]
    if response["finished"]:
        ids, kinds = [*ids, tokenizer.eos_token_id], [*kinds, WORDING]
    rows = [_logps(model, asked, ids) for model in (policy, base)]
    for index, (token, kind) in enumerate(zip(ids, kinds, strict=True)):
        logps = [float(row[index, token]) for row in rows]
        if index and kinds[index - 1] == GO_ON and ids[index - 1] == stop:
            if token == give_up:
                kind = GO_ON
            else:
                goes_on = [float(torch.log1p(-row[index, give_up].exp())) for row in rows]
                yield GO_ON, goes_on[0], goes_on[1]
                logps = [own - other for own, other in zip(logps, goes_on, strict=True)]
        yield kind, logps[0], logps[1]


@torch.inference_mode()
def _logps(model: PreTrainedModel, asked: list[int], ids: list[int]) -> Tensor:
    """Return the log-probs of every token at each place of a response, ``[tokens, vocabulary]``."""
    logits = model(torch.tensor([asked + ids])).logits[0, len(asked) - 1 : -1]
    return logits.double().log_softmax(-1)


def measure(policy: str, base: str, responses: Sequence[Record]) -> dict[str, dict[str, float]]:
    """Return for each kind of decision its number a response, and nats a response of both models.

    Args:
        policy: whose responses they are: a Hugging Face name or folder.
        base: what it was trained from.
        responses: to problems of the small world, as an evaluation writes them.
    """
    tokenizer = load_tokenizer(base)
    ours, its_base = (load_policy(p).model.eval() for p in (policy, base))
    sums = {kind: [0, 0.0, 0.0] for kind in KINDS}
    for response in responses:
        for kind, of_policy, of_base in split(response, ours, its_base, tokenizer):
            sums[kind] = [a + b for a, b in zip(sums[kind], (1, of_policy, of_base), strict=True)]
    names = ("decisions", "policy", "base")
    return {
        kind: {name: value / len(responses) for name, value in zip(names, own, strict=True)}
        for kind, own in sums.items()
    }


@reported("decisions")
def main(args: Sequence[str] | None = None) -> int:
    """Write the measured decisions as JSON; return the exit status."""
    parser = command_line("experiments.what_rl_adds.decisions", __doc__)
    parser.add_argument("policy")
    parser.add_argument("base")
    parser.add_argument("responses", type=Path, help="of the policy: an evaluation's .jsonl")
    parser.add_argument("output", type=Path)
    options = parser.parse_args(args)
    drawn = [r for r in read_existing(options.responses, "responses") if r["sample"] < NUM_SAMPLES]
    replace_json(options.output, measure(options.policy, options.base, drawn))
    return 0


if __name__ == "__main__":
    sys.exit(main())
