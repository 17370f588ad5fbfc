"""Sentences that declare an option, in English and Chinese, beside those that only name one."""

import pytest

from r1lit.batches import Problem
from r1lit.verifiers import ChoiceVerifier
from r1lit.verifiers.last_expression import last_expression

CHOICES = ["-23", "23", "Paris", "a dog", "5"]
DECLARES = (
    "Answer @", "Answer: @", "answer: (@)", "Option @", "Option @.", "(@)", "@", "**@**",
    "Choice @",
    "@ is correct", "@ is the correct choice", "(@) is correct answer.",
    "Hence (@) is correct answer.",
    "Option @ is correct.", "The correct option is @.", "The correct answer is option (@).",
    "So I choose option @.", "I would pick @", "I'd go with @.", "Thus @.",
    "Therefore, the answer is @.",
    "My answer: (@)", "Final answer: @", "Correct choice: @", "@ is the best answer", "@ is right",
    "【答案】@", "【答案】：@", "本题选@。", "故选@", "故选：@．", "应选@项", "因此选项@正确。",
    "选@",
    "答案：@", "答案是@", "答案选@", "正确答案是@。", "故本题正确答案为@", "故正确答案为选项@",
    "所以选择@选项。", "选项@是正确的", "@项正确", "综上所述，选@", "因此，正确的选项是 @。",
    "所以应该选@。",
    "Thus, option @ is the answer.", "@ is my answer", "(@) is our final answer.", "It's @.",
    "So it is (@).",
)  # fmt: skip
DOES_NOT = (
    "Option @ is wrong", "@ is not correct", "@ is the incorrect choice", "Is it @?",
    "The answer is @?",
    "Answer @ or %", "Option @ or %", "Either @ or %", "Not @", "@ is not the correct choice",
    "The answer is not @", "Maybe @", "Option @ might be correct", "@ or % is correct", "@ and %",
    "@ is correct, and % is correct.", "@ is correct. % is correct.", "It cannot be @",
    "I doubt that @",
    "本题不选@", "选项@错误", "因此选项@不正确", "选@或%", "选项@正确，选项%也正确", "应选@吗？",
    "可能选@",
    "@ is not the answer", "It's not @", "If @ is the answer", "@ is the answer? No.",
    "@ is the answer. % is the answer.", "@ is my second choice", "【答案】@或%【解析】略",
    "@项不对", "答案不是@", "除了@都对", "选项@正确吗？",
)  # fmt: skip
BEFORE = (
    "",
    "Rome is far from here. ",
    "First we add.\nThen we look at B and C.\n\n",
    "先算一下。",
)


def status(response: str, answer: str) -> tuple[str, str | None]:
    problem = Problem(uid="", question="", answer=answer, source="t", meta={"choices": CHOICES})
    verdict = ChoiceVerifier().verify(response, problem)
    return verdict.status, verdict.canonical


@pytest.mark.parametrize("form", DECLARES)
def test_a_sentence_declares_an_option(form: str):
    for letter in "ABCDE":
        said = form.replace("@", letter)
        for before in BEFORE:
            if len(said) == 1 and before and "\n" not in before:
                continue  # a letter alone commits on a line of its own
            if said.endswith(("(A)", "(B)", "(C)", "(D)", "(E)")) and len(said) == 3 and before:
                continue
            assert status(before + said, letter) == ("right", letter), before + said
            other = "E" if letter != "E" else "A"
            assert status(before + said, other) == ("wrong", letter)
        assert status(f"<answer>{said}</answer>", letter) == ("right", letter)


@pytest.mark.parametrize("behind", ["【解析】略", "【详解】A项不对。", "【分析】B和C不对"])
def test_a_chinese_explanation_behind_the_answer_ends_it(behind: str):
    assert status(f"【答案】D{behind}", "D") == ("right", "D")
    assert status(f"【答案】B或D{behind}", "D")[0] == "unparsed"


@pytest.mark.parametrize("form", DOES_NOT)
def test_a_sentence_does_not(form: str):
    for letter, other in ("DB", "BD", "CE"):
        said = form.replace("@", letter).replace("%", other)
        for text in (*(before + said for before in BEFORE), f"<answer>{said}</answer>"):
            assert status(text, letter)[0] == "unparsed", text
            assert status(text, other)[0] == "unparsed", text


@pytest.mark.parametrize("sign", ["-", "−", "–", "- ", "− "])
@pytest.mark.parametrize("label", ["(@) ", "@. ", "@) ", "(@). ", "@: "])
def test_a_minus_belongs_to_the_number(label: str, sign: str):
    at_a, at_b = (label.replace("@", letter) for letter in "AB")
    if sign.strip() == sign:
        assert status(f"<answer>{at_a}{sign}23</answer>", "A") == ("right", "A")
        assert status(f"<answer>{at_b}{sign}23</answer>", "B")[0] == "unparsed"
    assert status(f"<answer>{at_b}23</answer>", "B") == ("right", "B")
    assert status(f"<answer>{at_a}23</answer>", "A")[0] == "unparsed"


@pytest.mark.parametrize("number", ["12", "12.5", "1,080", "0.05", "-4", "12.25"])
@pytest.mark.parametrize("unit", ["", "kg", "cm", "m/s", "%", " kg", " apples", "．", "。", "."])
@pytest.mark.parametrize(
    "before", ["It is ", "故答案为：", "所以答案是：", "答：", "The answer is ", "= "]
)
def test_free_text_never_cuts_a_number(before: str, unit: str, number: str):
    found = last_expression(f"So.\n{before}{number}{unit}")
    assert found is not None
    assert (
        found.rstrip("．。.").startswith(number)
        and not found[len(number) : len(number) + 1].isdigit()
    )


@pytest.mark.parametrize("inside", ["[0, 5]", r"\frac{1}{2}", "(1, 2)", "x + 1", "5"])
def test_spaces_inside_dollars(inside: str):
    for form in ("Hence $ @ $", "Hence $@$", "The answer is $ @ $.", r"Hence \( @ \)", "$$ @ $$"):
        found = last_expression(form.replace("@", inside))
        assert found is not None and found.strip() == inside
    assert last_expression(f"It is not $ {inside} $") is None


def test_a_list_is_taken_whole_or_not_at_all():
    assert last_expression("They are 3, 4, 5") == "3, 4, 5"
    assert last_expression("They are 3, 4 and 5.") == "3, 4, 5"
    assert last_expression("They are $3$, $4$ and $5$.") == "3, 4, 5"
    for doubt in ("It could be", "It is not", "It might be", "可能是"):
        for numbers in ("3, 4, 5", "3, 4 and 5", "$3$, $4$, $5$", "3、4、5"):
            assert last_expression(f"{doubt} {numbers}") is None, (doubt, numbers)


PARTS = (
    "3 + ", "3-", "3 − ", "3 * ", "3 × ", "3 x ", "3 / ", "π/", "3 : ", "2^", "√", "sqrt(", "log ",
    "minus ", "negative ", "twice ", "half of ", "1 out of ",
)  # fmt: skip
WHOLES = (
    "= @", "10 - 5 = @", "Total: @", "Step 3: @", "Total (@)", "we get @ apples", "**@**",
    "- @ apples", "@ times", "@ per day", "There are @ and a dog",
)  # fmt: skip


@pytest.mark.parametrize("number", ["5", "$5$", "$ 5 $"])
def test_a_part_of_an_expression_is_no_answer(number: str):
    for before in PARTS:
        assert last_expression(f"So it is\nthe value {before}{number}") is None, before
    for behind in (" million", " dozen eggs", " thousand", " squared", " + x", "万"):
        assert last_expression(f"So it is\nthe value {number}{behind}") is None, behind
    for form in WHOLES:
        assert last_expression(form.replace("@", number)) in ("5", " 5 "), form


def test_a_mixed_number_and_a_pair_are_taken_whole():
    assert last_expression("So it takes 1 1/2 hours") == "1 1/2"
    assert last_expression("The point is (5, 6).") == "5, 6"
