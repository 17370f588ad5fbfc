"""The same with an own verifier, which is a reward function here."""

import re

from own_problems import train, well_formed


def same_number(completions, answer, **_):
    answers = [re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL) for text in completions]
    pairs = zip(answers, answer, strict=True)
    return [float(bool(found) and found[-1].strip() == gold) for found, gold in pairs]


train(rewards=(same_number, well_formed))
