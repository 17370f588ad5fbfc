"""Russian, the small world's third language and script: phrases about a problem.

The default corpus and that of the shipped base have none of it; ``WorldCorpus(russian=...)``
writes pages in it and ``WorldCountdown(russian=...)`` questions. Its authors mix in English. The
tokenizer is byte-level, so it writes Cyrillic too, in two tokens a letter: the phrases are short.
"""

from __future__ import annotations

PHRASES: dict[str, str] = {
    "let me try": "Пробую. ",
    "let me think": "Думаю. ",
    "i look for": "Ищу {target}. ",
    "try": "Беру ",
    "wait": "Стоп, ",
    "but": "Но ",
    "however": "Однако ",
    "wrong": "Неверно. ",
    "retry": "Ещё раз: ",
    "yes": ", да.",
    "give up": ". Сдаюсь.",
    "guess": "Гадаю.",
    "verify": "Проверю: ",
    "check": "Проверка: ",
    "mistake": "стоп, ошибка: ",
    "error": "стоп, неточно: ",
    "was wrong": ", стоп, я ошибся",
}
"""The phrases of ``r1lit.worlds.language.PHRASES``, by the same names."""

OPERATIONS = {"+": "плюс", "-": "минус", "*": "умножь на", "/": "раздели на"}
CHAIN = "Начни с {start}, {steps}."
COUNTDOWN = "Из {a}, {b} и {c} получи {target}."
PLEASE = " Подумай и проверь."
