"""Answers as JSON: an object with the keys that the question asks for, checked by a schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from r1lit.batches import Problem
from r1lit.data.sources import ProblemSource
from r1lit.errors import check_at_least
from r1lit.seeding import generator
from r1lit.worlds.splits import Split, check_split, draw_distinct, hashed_split
from r1lit.worlds.tools import CITIES, UNKNOWN

COLOURS = ("red", "blue", "green", "black", "white", "yellow")
KEYS = ("age", "city", "colour", "pets")
SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "age": {"type": "integer"},
    "city": {"enum": list(CITIES)},
    "colour": {"enum": list(COLOURS)},
    "pets": {"type": "integer"},
}
Form = tuple[str, Mapping[str, Any], tuple[str, ...]]
"""A person, what is said of them, and the keys that are asked for."""


def draw_form(split: Split, rng: np.random.Generator) -> Form:
    """Return a form of ``split`` with two to four keys, of somebody unknown."""
    while True:
        person = UNKNOWN[int(rng.integers(len(UNKNOWN)))]
        said = {
            "age": int(rng.integers(1, 100)),
            "city": CITIES[int(rng.integers(len(CITIES)))],
            "colour": COLOURS[int(rng.integers(len(COLOURS)))],
            "pets": int(rng.integers(1, 10)),
        }
        num = int(rng.integers(2, len(KEYS) + 1))
        keys = tuple(KEYS[i] for i in sorted(rng.permutation(len(KEYS))[:num]))
        form = person, said, keys
        if hashed_split("forms", as_question(form)) == split:
            return form


def as_question(form: Form) -> str:
    """Return a form in words."""
    person, said, keys = form
    return (
        f"{person} is {said['age']}, lives in {said['city']}, likes {said['colour']} and has"
        f" {said['pets']} pets. JSON with {', '.join(keys)}?"
    )


def gold_of(form: Form) -> dict[str, Any]:
    """Return the object that is asked for."""
    _, said, keys = form
    return {key: said[key] for key in keys}


def schema_of(keys: Sequence[str], required: bool) -> dict[str, Any]:
    """Return the schema of an object with these keys and no other, all of them ``required``."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {key: SCHEMAS[key] for key in keys},
        "additionalProperties": False,
    }
    return {**schema, "required": list(keys)} if required else schema


class WorldForms(ProblemSource):
    """Questions for an object of JSON.

    Args:
        split: corpus, train or held_out.
        num_problems: how many.
        validity_alone: leave out the gold answer, and do not require a key: any object that breaks
            no rule is right then, also the empty one.
        seed: of the sample.
        name: of the source.
    """

    def __init__(
        self,
        split: Split = "train",
        num_problems: int = 64,
        validity_alone: bool = False,
        seed: int = 0,
        name: str = "json",
    ) -> None:
        check_split(split)
        check_at_least("num_problems", num_problems, 1)
        self.split: Split = split
        self.num_problems = num_problems
        self.validity_alone = validity_alone
        self.seed = seed
        self.name = name

    def problems(self) -> list[Problem]:
        """Return the problems, without repetition."""
        rng = generator(self.seed, "forms", self.split)
        draw = partial(draw_form, self.split, rng)
        forms = draw_distinct(draw, as_question, self.num_problems, f"split {self.split!r}")
        return [self._problem(text, form) for text, form in forms.items()]

    def _problem(self, text: str, form: Form) -> Problem:
        return Problem(
            uid=f"{self.name}-{text}",
            question=text,
            answer="" if self.validity_alone else json.dumps(gold_of(form)),
            source=self.name,
            verifier="json_schema",
            meta={"schema": schema_of(form[2], not self.validity_alone)},
        )
