"""The same with an own verifier, which is a reward function here."""

import re

from own_problems import train, well_formed


def same_digits(completions, answer, **_):
    answers = [re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL) for text in completions]
    digits = ["".join(re.findall(r"\d", found[-1])) if found else None for found in answers]
    return [float(one == gold) for one, gold in zip(digits, answer, strict=True)]


train(rewards=(same_digits, well_formed))
