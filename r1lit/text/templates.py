"""Prompt templates: from a problem's question to the text a policy is conditioned on."""

from __future__ import annotations

from typing import Literal

R1_ZERO = (
    "A conversation between User and Assistant. The user asks a question, and the Assistant solves"
    " it. The assistant first thinks about the reasoning process in the mind and then provides the"
    " user with the answer. The reasoning process and answer are enclosed within <think> </think>"
    " and <answer> </answer> tags, respectively, i.e., <think> reasoning process here </think>"
    " <answer> answer here </answer>. User: {question} Assistant:"
)
"""DeepSeek-R1, arXiv 2501.12948v1, Table 1; ``{question}`` stands for the paper's red *prompt*."""

TEMPLATES = {
    "r1_zero": R1_ZERO,
    "question_answer": "Question: {question}\nAnswer:",
    "plain": "{question}",
}

TemplateName = Literal["r1_zero", "question_answer", "plain"]


def render(template: str, question: str) -> str:
    """Put ``question`` into the template named ``template``, or into a template given in full.

    Raises:
        ValueError: if it names no template and holds no ``{question}``.
    """
    text = TEMPLATES.get(template, template)
    if "{question}" not in text:
        raise ValueError(
            f"template: {template!r} is neither one of {sorted(TEMPLATES)} nor a text that holds"
            " {question}"
        )
    return text.replace("{question}", question)
