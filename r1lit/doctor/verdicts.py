"""Verdicts that do not come, or that another verifier would not give."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from functools import lru_cache

from r1lit.doctor.rule import Evidence, above
from r1lit.doctor.run import Run, got_right
from r1lit.evaluation.second_verdict import is_right
from r1lit.files import Record
from r1lit.text.extract import extract_final

TIME_OUT = r"tim(e|ed)[ -]?out|\bin time\b|out of time|too slow|gave up|took too long|overloaded"
"""Pattern of reasons for a verdict that did not come in time."""


def without_verdict(status: str, reasons: str) -> Callable[[Run], Evidence]:
    """Return a function that sees missing verdicts: by their status, or by the reason they give.

    A verifier of one's own may call a time-out or a crash of it a wrong answer.
    """

    def see(run: Run) -> Evidence:
        if seen := above(f"train/verifier/{status}", 0.01)(run):
            return seen
        found = [x for x in run.responses if re.search(reasons, str(x.get("reason") or ""), re.I)]
        if len(found) < max(2, 0.01 * len(run.responses)):
            return None
        seen = f"{len(found)} of {len(run.responses)} recorded responses have a reason such as"
        return f"{seen} {found[0]['reason'][:60]!r}, with status {found[0].get('status')}"

    return see


def unread(run: Run) -> Evidence:
    """See responses in which verifiers find no answer, from the first recorded ones on.

    Half of all, or a quarter of those that the limit did not cut. Or a prompt that does not ask for
    the tags that are paid, and does not get them.
    """
    early = run.by_iteration[0] if run.responses else []
    whole = [x for x in early if x.get("finished", True)]
    for lines, bound, least in ((early, 0.5, 1), (whole, 0.25, 16)):
        share = statistics.fmean([x.get("status") == "unparsed" for x in lines] or [0.0])
        if share > bound and len(lines) >= least:
            seen = f"no answer was read in {share:.0%} of the {len(lines)} responses first recorded"
            return seen if lines is early else f"{seen} that ended by themselves"
    prompts = [x["prompt"] for x in run.trained_on if x.get("prompt")]
    opened = all(prompt.rstrip().endswith("<think>") for prompt in prompts)
    for reward in run.setting("model.rewards", []) if prompts else ():
        options = (reward.get("init_args") or {}) if isinstance(reward, dict) else {}
        if options.get("think_prefilled", opened) != opened:
            end = "end" if opened else "do not end"
            return f"prompts {end} in <think>, and think_prefilled is {not opened} in model.rewards"
    form = run.start("train/reward/format")
    if not form < 0.5 or not prompts or any("<answer>" in prompt for prompt in prompts):
        return None
    return f"no prompt asks for <answer>, and train/reward/format is {form:.3g} at the start"


REFUSED, PAID = ("wrong", "unparsed"), ("right",)
second_verdict = lru_cache(maxsize=100_000)(is_right)
"""A running training is looked at again and again."""


def is_refused(line: Record) -> bool:
    """Return whether a response earned nothing, and is right to a second verifier."""
    if line.get("status") not in REFUSED or not line.get("answer"):
        return False
    return second_verdict(line["response"], str(line["answer"])) is True


def is_wrong_and_paid(line: Record) -> bool:
    """Return whether a response was judged right, and is wrong to a second verifier."""
    if line.get("status") not in PAID or not line.get("answer"):
        return False
    return second_verdict(line["response"], str(line["answer"])) is False


def status_is(status: str) -> Callable[[Record], bool]:
    """Return a function that tells whether a response has a status."""
    return lambda line: line.get("status") == status


has_no_answer = status_is("unparsed")


def disagreeing(
    run: Run, status: tuple[str, ...], disagrees: Callable[[Record], bool]
) -> tuple[list[Record], int]:
    """Return responses about which a second verifier disagrees, and how many have a status."""
    given = [x for x in run.responses if x.get("status") in status and x.get("answer")]
    return [x for x in given if disagrees(x)], len(given)


def refused(run: Run) -> Evidence:
    """See right answers that earn nothing: by a second verifier's verdict, or by the run's own.

    An answer in its tags is rarely refused for its form, so a few such are enough.
    """
    found, whole = disagreeing(run, REFUSED, is_refused)
    marked = [x for x in found if extract_final(x["response"]) is not None]
    if len(found) >= max(3, 0.05 * whole) or len(marked) >= max(2, 0.01 * whole):
        seen = f"{len(found)} of {whole} refused responses are right to a second verifier"
        return f"{seen}, {len(marked)} of them in the tags or box of an answer"
    right = [x for x in run.trained_on if got_right(x) and "accuracy" in (x.get("rewards") or {})]
    free = [x for x in right if not x["rewards"]["accuracy"]]
    if len(free) < max(3, 0.05 * len(right)):
        return None
    return f"the reward accuracy is 0 for {len(free)} of {len(right)} responses judged right"


def wrong_and_paid(run: Run) -> Evidence:
    """See answers that a second verifier finds wrong, and the run's finds right."""
    found, whole = disagreeing(run, PAID, is_wrong_and_paid)
    if len(found) < max(2, 0.02 * whole):
        return None
    return f"{len(found)} of {whole} responses judged right have another value than the gold answer"
