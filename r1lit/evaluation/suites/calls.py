"""Function calls as BFCL grades them: prompts in text, gold calls by syntax."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from r1lit.data import ProblemSource
from r1lit.data.tables import Table
from r1lit.problems import Problem

SYSTEM = """You are an expert in composing functions. You are given a question and a set of possible functions. Based on the question, you will need to make one or more function/tool calls to achieve the purpose.
If none of the function can be used, point it out. If the given question lacks the parameters required by the function, also point it out.
You should only return the function call in tools call sections.

If you decide to invoke any of the function(s), you MUST put it in the format of [func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]
You SHOULD NOT include any other text in the response.

Here is a list of functions in JSON format that you can invoke.
{functions}
"""  # noqa: E501
"""ShishirPatil/gorilla, bfcl_eval's system prompt for models without tools (Apache-2.0)."""


class BFCL(ProblemSource):
    """Questions of the Berkeley Function Calling Leaderboard of one turn, with their gold calls.

    Args:
        path: a table with ``id``, ``category``, ``question`` (a list of turns of messages),
            ``function`` and ``ground_truth``: BFCL's questions and possible answers, joined.
        limit: rows read.
    """

    def __init__(self, path: str, limit: int | None = None) -> None:
        self.table = Table(path=path, limit=limit)

    def problems(self) -> list[Problem]:
        """Return every question, its functions before it.

        Raises:
            ValueError: naming a row of several turns, or without gold calls.
        """
        keys = ("id", "category", "question", "function", "ground_truth")
        return [self._problem(row, n) for n, row in self.table.rows({key: key for key in keys})]

    def _problem(self, row: Mapping[str, Any], number: int) -> Problem:
        turns = row["question"]
        if not isinstance(turns, list) or len(turns) != 1 or not row["ground_truth"]:
            raise ValueError(
                f"path: {self.table.row(number)} is not a question of one turn with gold calls"
            )
        functions = json.dumps(row["function"], ensure_ascii=False)
        asked = "\n\n".join(str(message["content"]) for message in turns[0])
        return Problem(
            uid=str(row["id"]),
            question=SYSTEM.replace("{functions}", functions) + "\n" + asked,
            answer="",
            source="bfcl",
            verifier="function_call",
            meta={key: row[key] for key in ("category", "function", "ground_truth")},
        )
