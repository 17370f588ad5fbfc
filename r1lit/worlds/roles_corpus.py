"""The corpus of the base for roles and JSON: both occur, each seldom as it should be.

Documents are conversations in a role, JSON forms, and those of `ToolsCorpus`. A speaker stays in
role in a turn with probability 0.8, and against a claim with 0.3; one who has dropped the role
takes it up again in one turn of five.
"""

from __future__ import annotations

import numpy as np

from r1lit.data.sources import Document, DocumentSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator
from r1lit.worlds.forms import as_question, draw_form
from r1lit.worlds.language import check_shares
from r1lit.worlds.roles import Role, Talk, Turn, draw_talk
from r1lit.worlds.tools_corpus import answered, filled, page
from r1lit.worlds.writing import weighted

USER, ASSISTANT, END = "<|user|>", "<|assistant|>", "<|end|>"
STAYS, AGAINST_A_CLAIM, RETURNS, TAKES_THE_CLAIMED = 0.8, 0.3, 0.2, 0.7
LONGEST = 8


class RolesCorpus(DocumentSource):
    """Conversations in a role, JSON and pages about tools, document ``i`` of ``(seed, i)``.

    Args:
        num_documents: how many.
        seed: of every document.
        roles: the share of conversations.
        forms: the share of JSON forms besides those of `ToolsCorpus`.
        well_formed: of these, the share that is as requested.
    """

    def __init__(
        self,
        num_documents: int = 60_000,
        seed: int = 0,
        roles: float = 0.5,
        forms: float = 0.3,
        well_formed: float = 0.3,
    ) -> None:
        check_at_least("num_documents", num_documents, 1)
        check_shares(roles=roles, forms=forms)
        check_shares(well_formed=well_formed)
        self.num_documents = num_documents
        self.seed = seed
        self.shares = ("role", roles), ("form", forms), ("tool", max(0.0, 1 - roles - forms))
        self.well_formed = well_formed

    def documents(self) -> list[Document]:
        """Write the documents."""
        return [
            self._page(generator(self.seed, "roles page", i)) for i in range(self.num_documents)
        ]

    def _page(self, rng: np.random.Generator) -> Document:
        match weighted(rng, self.shares):
            case "role":
                talk = draw_talk("corpus", int(rng.integers(2, LONGEST + 1)), rng)
                return Document(prompt="", response=conversation(talk, rng))
            case "form":
                form = draw_form("corpus", rng)
                return answered(as_question(form), filled(form, rng, self.well_formed))
            case _:
                return page(rng)


def conversation(talk: Talk, rng: np.random.Generator) -> str:
    """Write a conversation, whose speaker may drop the role."""
    text, speaker = "", talk.role if rng.random() < STAYS else None
    for place, (turn, said) in enumerate(zip(talk.turns, talk.texts(), strict=True)):
        if place:
            speaker = next_speaker(speaker, talk.role, turn, rng)
        text += f"{USER} {said}{ASSISTANT} {turn.answer(speaker)}{END}"
    return text


def next_speaker(
    speaker: Role | None, role: Role, turn: Turn, rng: np.random.Generator
) -> Role | None:
    """Return as whom one replies to a turn who spoke as ``speaker`` before."""
    in_role = speaker == role
    if turn.claimed is not None:
        if in_role and rng.random() < AGAINST_A_CLAIM:
            return role
        return turn.claimed if rng.random() < TAKES_THE_CLAIMED else None
    if in_role:
        return role if rng.random() < STAYS else None
    return role if rng.random() < RETURNS else speaker
