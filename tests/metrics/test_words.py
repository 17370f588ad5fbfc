import time
from collections import Counter

import pytest

from r1lit.metrics.words import count_words, prose


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("so ```python\nprint(x)\n``` done", "so done"),
        ("so ~~~\nprint(x)\n~~~ done", "so done"),
        ("call `len(a)` now", "call now"),
        ("then $x + y$ and $$a = b$$ and", "then and and"),
        (r"then \(x\) and \[a \text{ or } b\] and", "then and and"),
        (r"a \begin{align*} x &= y \end{align*} b", "a b"),
        (r"so \boxed{yes} and \frac{a}{b}", "so {yes} and {a}{b}"),
        ("pay $5 and $6 now", "pay $ and $ now"),
        (r"pay \$a and \$b", r"pay \$a and \$b"),
        ("see https://a.org/wait?x=but or www.b.org/c now", "see or now"),
        ("mail a.b@c.org now", "mail now"),
        ("x1 and max_len and 3rd and H2O and 5kg", "and and and and"),
        ("<think> so <b>it</b> is </think>", "so it is"),
        ("3 < 4 and 5 > 2", "< and >"),
    ],
)
def test_what_is_in_no_language_is_left_out(text: str, left: str):
    assert prose(text).split() == left.split()


@pytest.mark.parametrize(
    "text",
    [
        "```\nthe words behind",
        "a `tick and\n\na new paragraph ` here",
        "one $ and other words",
        r"open \( and never closed",
        r"closed \) and then \( open",
        r"open \begin{align} and never closed",
        "less <than that",
    ],
)
def test_nothing_hides_behind_a_mark_that_is_never_closed(text: str):
    kept = count_words(prose(text), symbols_are_words=True)["Latin"]
    assert kept >= len([w for w in text.split() if w.isalpha()]) > 0


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("Let's see, it's well-known", {"Latin": 5}),
        ("naïve Łódź über", {"Latin": 3}),
        ("nai\u0308ve", {"Latin": 1}),
        ("mistakenly认为 more", {"Latin": 2, "Han": 2}),
        ("我们来看", {"Han": 4}),
        ("データを見る", {"Katakana": 1, "Hiragana": 2, "Han": 1}),
        ("우리는 본다", {"Hangul": 2}),
        ("давай посмотрим", {"Cyrillic": 2}),
        ("دعنا نرى", {"Arabic": 2}),
        ("चलो देखते हैं", {"Devanagari": 3}),
        ("λ and π are numbers", {"Latin": 3}),
        ("ας δούμε το π", {"Greek": 4}),
        ("ดู", {"Thai": 1}),
        ("ꯃꯤꯇꯩ", {"Other": 1}),
        ("12 + 34 = 46 ≈ 😊 —", {}),
        ("", {}),
    ],
)
def test_words_by_script(text: str, counts: dict[str, int]):
    assert count_words(text, symbols_are_words=True) == Counter(counts)


def test_symbols_are_words_only_where_the_script_is_the_targets():
    text = "DNA 里 sin x 和 the 点 A"
    assert count_words(text, symbols_are_words=False) == Counter({"Latin": 1, "Han": 3})
    assert count_words(text, symbols_are_words=True) == Counter({"Latin": 5, "Han": 3})
    assert count_words("DNA sin x A the", symbols_are_words=False) == Counter({"Latin": 1})


@pytest.mark.parametrize(
    "bad",
    ["a", "`", "$", r"\[", r"\begin{align}", "a_", "<a", "``` ", "a@", "$a ", "www.", "é'",
     "`a\n\n", "认", "<think>", r"\begin{math", "a.b-", "a0"],
)  # fmt: skip
def test_a_megabyte_takes_time_linear_in_it(bad: str):
    text = bad * (10**6 // len(bad))
    start = time.process_time()
    count_words(prose(text), symbols_are_words=True)
    assert time.process_time() - start < 10
