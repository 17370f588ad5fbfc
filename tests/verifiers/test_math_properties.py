"""Random gold answers of every kind: the gold is right, with one number changed it is not."""

import random
import re
from collections.abc import Callable, Iterator

import pytest
from verifiers.test_math_families import assert_not_right, assert_right

from r1lit.verifiers import MathVerifier

NUM_GOLDS = 4


class Numbers:
    """Different whole numbers from 2 to 40, so that a changed one changes the value."""

    def __init__(self, seed: str) -> None:
        self.left = random.Random(seed).sample(range(2, 40), 12)

    def __call__(self) -> int:
        return self.left.pop()

    def rising(self, count: int) -> list[int]:
        return sorted(self() for _ in range(count))


def interval(n: Numbers) -> str:
    left, right = n.rising(2)
    return f"{random.Random(left).choice('[(')}{left},{right}{random.Random(right).choice('])')}"


def union(n: Numbers) -> str:
    a, b, c, d = n.rising(4)
    return rf"[{a},{b})\cup({c},{d}]"


def chain(n: Numbers) -> str:
    left, right = n.rising(2)
    return rf"{left}<x\le{right}"


def outside(n: Numbers) -> str:
    left, right = n.rising(2)
    return rf"x<{left}\text{{ or }}x>{right}"


KINDS: dict[str, Callable[[Numbers], str]] = {
    "whole": lambda n: f"{n()}{n()}",
    "decimal": lambda n: f"{n()}.{n()}",
    "fraction": lambda n: rf"\frac{{{n()}}}{{41}}",
    "surd": lambda n: rf"{n()}\sqrt{{{n()}}}+{n()}",
    "multiple of pi": lambda n: rf"\frac{{{n()}\pi}}{{{n()}}}",
    "percent": lambda n: rf"{n()}\%",
    "scientific": lambda n: rf"{n()}.5\times10^{{{n()}}}",
    "complex": lambda n: f"{n()}-{n()}i",
    "complex with a root": lambda n: rf"-{n()}+{n()}i\sqrt{{3}}",
    "conjugates": lambda n: rf"{n()}\pm{n()}i",
    "polynomial": lambda n: f"{n()}x^2-{n()}x+{n()}",
    "unit vectors": lambda n: rf"{n()}\mathbf{{i}}+{n()}\mathbf{{j}}-{n()}\mathbf{{k}}",
    "column": lambda n: rf"\begin{{pmatrix}}{n()}\\-{n()}\\{n()}\end{{pmatrix}}",
    "matrix": lambda n: rf"\begin{{bmatrix}}{n()}&{n()}\\{n()}&{n()}\end{{bmatrix}}",
    "complex column": lambda n: rf"\begin{{pmatrix}}{n()}i\\{n()}+i\end{{pmatrix}}",
    "multiple of a matrix": lambda n: rf"{n()}\begin{{pmatrix}}{n()}\\{n()}\end{{pmatrix}}",
    "pair": lambda n: f"({n()},{n()})",
    "triple": lambda n: rf"\left({n()},-{n()},\frac{{{n()}}}{{41}}\right)",
    "pair of complex numbers": lambda n: f"({n()}+{n()}i,{n()}i)",
    "angled vector": lambda n: rf"\langle {n()},{n()}\rangle",
    "list": lambda n: f"{n()}, {n()}, {n()}",
    "list of complex numbers": lambda n: f"{n()}i, {n()}+i",
    "list of pairs": lambda n: f"({n()},{n()}),({n()},{n()})",
    "set": lambda n: rf"\{{{n()},{n()},{n()}\}}",
    "set of sets": lambda n: rf"\{{\{{{n()},{n()}\}},\{{{n()}\}}\}}",
    "interval": interval,
    "union": union,
    "all but": lambda n: rf"\mathbb{{R}}\setminus\{{{n()},{n()}\}}",
}  # fmt: skip
"""Values, which may have a name."""
SAYINGS: dict[str, Callable[[Numbers], str]] = {
    "line": lambda n: f"y={n()}x+{n()}",
    "circle": lambda n: rf"(x-{n()})^2+(y+{n()})^2={n()}",
    "function": lambda n: rf"f(x)={n()}x^2+{n()}",
    "relation": lambda n: rf"x\ge{n()}",
    "relation of two unknowns": lambda n: f"{n()}x+{n()}y<{n()}",
    "relation without a solution": lambda n: f"x^2<-{n()}",
    "equation without a solution": lambda n: f"x^2+{n()}=0",
    "relation that always holds": lambda n: rf"x^2\ge-{n()}",
    "inequality": lambda n: rf"x\ne{n()}",
    "chain": chain,
    "two chains": outside,
    "chain of letters": lambda n: f"{n()}<a<b<4{n()}",
    "equations": lambda n: f"x={n()}, y={n()}",
    "equations of complex numbers": lambda n: f"z_1={n()}+i, z_2={n()}i",
    "alternatives": lambda n: f"x={n()} or x=-{n()}",
    "pairs of two names": lambda n: rf"(x,y)=({n()},{n()})\text{{ and }}({n()},{n()})",
    "system": lambda n: f"{n()}x+y={n()}, x-{n()}y={n()}",
    "modulus": lambda n: f"|z-{n()}i|={n()}",
    "square of a complex number": lambda n: f"z^2={n()}+{n()}i",
    "member": lambda n: rf"x\in\{{{n()},{n()}\}}",
    "unit": lambda n: rf"{n()}\text{{ cm}}^{random.Random(n()).choice((2, 3))}",
    "money": lambda n: rf"\${n()}.{n()}",
    "minutes of arc": lambda n: rf"{n()}^\circ {n()}'",
    "base": lambda n: f"10{n()}_{random.Random(n()).choice((11, 12))}",
    "prose": lambda n: f"increasing on $({n()},{n() + 40})$, constant for $x>{n()}$",
    "prose in LaTeX": lambda n: rf"\text{{maximum }}{n()}\text{{ at }}x={n()}",
}  # fmt: skip
"""What is right only as it is: relations, units, words."""


def changed(gold: str) -> Iterator[str]:
    """Yield a text with one of its numbers changed, for each of them."""
    for number in re.finditer(r"\d+", gold):
        other = int(number[0]) + 1 + random.Random(gold).randrange(3) * 50
        yield gold[: number.start()] + str(other) + gold[number.end() :]


def golds(kind: str, make: Callable[[Numbers], str]) -> list[str]:
    return [make(Numbers(f"{kind} {seed}")) for seed in range(NUM_GOLDS)]


def loose(gold: str) -> str:
    """Return a text with spaces around its signs."""
    return re.sub(r"(?<=\w)([=+<>,-])(?=\w)", r" \1 ", gold)


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_with_and_without_a_name(math_verifier: MathVerifier, kind: str):
    texts = golds(kind, KINDS[kind])
    name = r"\mathbf{v}" if "vector" in kind or "column" in kind else "z"
    assert_right(math_verifier, [(form(t), t) for t in texts for form in (str, loose)])
    wrong = [(other, text) for text in texts for other in changed(text)]
    assert_not_right(math_verifier, wrong)
    if kind not in ("angled vector",):  # which is text to the grammar
        named = [f"{name}={text}" for text in texts]
        assert_right(math_verifier, list(zip(named, texts, strict=True)))
        assert_right(math_verifier, list(zip(texts, named, strict=True)))
        assert_right(math_verifier, [(loose(text), text) for text in named])
    assert_not_right(math_verifier, [(f"{name}={a}", f"{name}={gold}") for a, gold in wrong])
    assert_not_right(math_verifier, [(f"{name}={a}", gold) for a, gold in wrong])
    assert_not_right(math_verifier, [(a, f"{name}={gold}") for a, gold in wrong])
    assert_not_right(math_verifier, [(f"w={text}", f"{name}={text}") for text in texts])


@pytest.mark.parametrize("kind", SAYINGS)
def test_what_is_said(math_verifier: MathVerifier, kind: str):
    texts = golds(kind, SAYINGS[kind])
    assert_right(math_verifier, [(form(text), text) for text in texts for form in (str, loose)])
    assert_not_right(math_verifier, [(a, text) for text in texts for a in changed(text)])
    assert_not_right(math_verifier, list(zip(texts[1:], texts, strict=False)))
