"""Prompt templates: texts with {question} in them."""

from __future__ import annotations

R1_ZERO = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves"
    " it. The assistant first thinks about the reasoning process in the mind and then provides the"
    " user with the answer. The reasoning process and answer are enclosed within <think> </think>"
    " and <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think>"
    " <answer> answer here </answer>. User: {question}. Assistant:"
)
"""DeepSeek-R1, arXiv 2501.12948v1, Table 1; ``{question}`` stands for the paper's red *prompt*."""

SMALL_WORLD = R1_ZERO.replace("{question}.", "{question}")
"""R1-Zero's without the period behind the question, as the shipped base was pretrained on it."""

TEMPLATES = {
    "r1_zero": R1_ZERO,
    "small_world": SMALL_WORLD,
    "question_answer": "Question: {question}\nAnswer:",
    "plain": "{question}",
}


def render(template: str, question: str) -> str:
    """Return ``question`` in the template named ``template``, or in a template given in full.

    Raises:
        ValueError: if it names no template and holds no ``{question}``.
    """
    text = TEMPLATES.get(template, template)
    if "{question}" not in text:
        raise ValueError(
            f"template: {template!r} is neither one of {sorted([*TEMPLATES, 'chat'])} nor a text"
            " that holds {question}"
        )
    return text.replace("{question}", question)
