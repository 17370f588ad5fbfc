r"""Responses compared with a baseline's by a language model: AlpacaEval 2 and Arena-Hard.

The judge sees answers without their thinking, as in the paper. Its verdicts stand in ``details``;
win rates are fitted from these lines alone. Rows without a verdict are left out and counted.

    N rows   M battles   F features
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from r1lit.data import ProblemSource
from r1lit.data.tables import HUB, Table
from r1lit.endpoint.chat import key_of
from r1lit.endpoint.client import MalformedReply, PermanentError, RequestError, SetupError
from r1lit.evaluation.suites.judged import JudgedGrader, filled, prompt, template
from r1lit.evaluation.suites.scores import Groups, Score
from r1lit.problems import Problem, Verdict
from r1lit.seeding import generator
from r1lit.verifiers.base import conclude
from r1lit.verifiers.generative import LABELS, MAX_CHARACTERS, GenerativeJudge
from r1lit.verifiers.ifeval import judged_text

NUM_BOOTSTRAPS = 100
_TURN = re.compile(r"<\|im_start\|>\w+\n(.*?)\n?<\|im_end\|>", re.DOTALL)


class AlpacaJudge(JudgedGrader):
    """AlpacaEval 2: how likely the judge finds the response better than the baseline's.

    Which of the two stands first is random by the problem. A judge with ``probabilities`` (as
    `r1lit.endpoint.ServedModel`) gives those of ``m`` and ``M``; of another, or of a server
    without log-probs, the reply is read.
    ``value`` is the preference, 1/2 a tie.
    """

    def decide(self, answer: str, problem: Problem) -> Verdict:
        """Compare one answer with the baseline's."""
        baseline = problem.meta["baseline"]
        swapped = bool(generator(0, "alpaca_eval", problem.uid).integers(2))
        first, second = (answer, baseline) if swapped else (baseline, answer)
        # split before it is filled: texts may hold the marks of turns
        system, user = _TURN.findall(template("alpaca_eval"))
        instruction = problem.meta["instruction"]
        user = filled(user, instruction=instruction, output_1=first, output_2=second)
        later = self._preference_of_second(system, user)
        if later is None:
            return conclude("error", None, "the judge gave no verdict")
        preference = 1 - later if swapped else later
        return Verdict(
            value=preference,
            status="right" if preference == 1.0 else "wrong",
            canonical=None,
            reason=f"preference {preference:.3f}",
            details={
                "preference": preference,
                "length": len(answer),
                "baseline_length": len(baseline),
            },
        )

    def _preference_of_second(self, system: str, user: str) -> float | None:
        probabilities = getattr(self.judge.model, "probabilities", None)
        if probabilities is not None:
            try:
                found = probabilities(user, ("m", "M"), system=system)
            except SetupError:
                raise
            except (MalformedReply, PermanentError):
                found = None  # it refuses to send log-probs, or sends them in another form
            except RequestError:
                return None
            if found is not None:
                total = found["m"] + found["M"]
                return found["M"] / total if total else None
        judgement = self.request(
            f"{system}\n\n{user}", lambda reply: {"m": 0.0, "M": 1.0}.get(reply.strip(" \n`\"'."))
        )
        return judgement.value


def sigmoid(value: np.ndarray) -> np.ndarray:
    """Return 1/(1 + e^-x)."""
    return 1 / (1 + np.exp(-np.clip(value, -500, 500)))


def fit_logistic(
    x_NF: np.ndarray, y_N: np.ndarray, weight_N: np.ndarray | None = None, ridge: float = 1e-6
) -> np.ndarray:
    """Return the coefficients of a logistic regression on soft labels, by Newton's method.

    ``ridge`` keeps them finite where one side always wins.
    """
    weight_N = np.ones(len(y_N)) if weight_N is None else weight_N
    beta_F = np.zeros(x_NF.shape[1])
    for _ in range(60):
        p_N = sigmoid(x_NF @ beta_F)
        gradient_F = x_NF.T @ (weight_N * (y_N - p_N)) - ridge * beta_F
        hessian_FF = (x_NF * (weight_N * p_N * (1 - p_N))[:, None]).T @ x_NF
        hessian_FF += max(ridge, 1e-9) * np.eye(x_NF.shape[1])
        step_F = np.linalg.solve(hessian_FF, gradient_F)
        beta_F = beta_F + np.clip(step_F, -2, 2)
        if np.abs(step_F).max() < 1e-8 or np.abs(beta_F).max() > 30:
            break
    return np.clip(beta_F, -30, 30)


def _details(groups: Groups, key: str) -> list[list[Mapping[str, Any]]]:
    """Return the details of the responses that have ``key``, problem by problem."""
    found = (
        [r["details"] for r in group if key in r.get("details", {})] for group in groups.values()
    )
    return [rows for rows in found if rows]


def _with_interval(
    name: str,
    problems: Sequence[Sequence[Any]],
    estimate: Callable[[Sequence[Any]], float],
    total: int,
    seed: int,
) -> Score:
    """Return an estimate with its bootstrap interval over problems; None of no row.

    A problem's responses stay together: they are no independent rows.
    """
    rows = [row for problem in problems for row in problem]
    missing = {"no_verdict": total - len(rows)}
    if not rows:
        return {"name": name, "value": None, "low": None, "high": None, **missing}
    random = np.random.default_rng(seed)
    resampled = [
        estimate(
            [row for i in random.integers(len(problems), size=len(problems)) for row in problems[i]]
        )
        for _ in range(NUM_BOOTSTRAPS)
    ]
    low, high = np.percentile(resampled, [2.5, 97.5])
    value = estimate(rows)
    return {"name": name, "value": value, "low": float(low), "high": float(high), **missing}


def lc_win_rate(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the win rate where both answers were of one length (``length_controlled_minimal``).

    logit P(response wins) = theta tanh((baseline's length - length)/std) + phi, fitted on the
    preferences; the win rate is P where the length term is 0.
    """
    difference_N = np.array([row["baseline_length"] - row["length"] for row in rows], dtype=float)
    std = difference_N.std()
    term_N = np.tanh(difference_N / std) if std else np.zeros(len(rows))
    x_NF = np.stack([term_N, np.ones(len(rows))], axis=1)
    _, phi = fit_logistic(x_NF, np.array([row["preference"] for row in rows]))
    return float(sigmoid(phi))


def length_controlled(groups: Groups, *, seed: int = 0) -> Score:
    """Return AlpacaEval's length-controlled win rate, and the plain one as ``win_rate``."""
    problems = _details(groups, "preference")
    total = sum(map(len, groups.values()))
    score = _with_interval("LC win rate", problems, lc_win_rate, total, seed)
    preferences = [row["preference"] for rows in problems for row in rows]
    plain = float(np.mean(preferences)) if preferences else None
    return score | {"win_rate": plain}


class ArenaHard(ProblemSource):
    """Arena-Hard's prompts, with the answers of its baseline in ``meta["baseline"]``.

    Args:
        path: a file with ``uid``, ``prompt``, ``category`` and ``cluster``.
        baseline: a file with ``uid`` and ``messages``, whose last content has ``answer``; by
            default the one beside a local ``path`` that is named ``*_gpt-4-0314.jsonl``.
        limit: prompts read.
    """

    def __init__(self, path: str, baseline: str | None = None, limit: int | None = None) -> None:
        self.table = Table(path=path, limit=limit)
        local = not path.startswith(HUB)
        if local and (baseline is None or baseline.startswith(HUB)):
            baseline = str(Path(path).with_name(f"{self._stem(path)}_gpt-4-0314.jsonl"))
        if baseline is None:
            raise ValueError("baseline: the file of the baseline's answers is not named")
        self.baseline = Table(path=baseline)

    @staticmethod
    def _stem(path: str) -> str:
        return Path(path).name.removesuffix(".jsonl")

    def problems(self) -> list[Problem]:
        """Return every prompt.

        Raises:
            ValueError: if the baseline did not answer one.
        """
        answers = {
            row["uid"]: row["messages"][-1]["content"]["answer"]
            for _, row in self.baseline.rows({"uid": "uid", "messages": "messages"})
        }
        rows = self.table.rows({"uid": "uid", "prompt": "prompt"})
        for n, row in rows:
            if row["uid"] not in answers:
                raise ValueError(
                    f"baseline: {self.baseline.path} has no answer to {row['uid']!r},"
                    f" {self.table.row(n)}"
                )
        return [
            Problem(
                uid=row["uid"],
                question=row["prompt"],
                answer="",
                source="arena_hard",
                meta={"prompt": row["prompt"], "baseline": answers[row["uid"]]},
            )
            for _, row in rows
        ]


VALUES = {"A>>B": [1.0] * 3, "A>B": [1.0], "A=B": [0.5], "B>A": [0.0], "B>>A": [0.0] * 3}
"""The battles of a game, as wins of A: a clear verdict counts three times."""


class ArenaJudge(JudgedGrader):
    """Arena-Hard: two games, the baseline as A and then the response as A.

    ``value`` is the mean over both games' battles. A response of which a game has no verdict is an
    ``error`` and no part of the win rate.
    """

    requests_per_response = 2

    def decide(self, answer: str, problem: Problem) -> Verdict:
        """Compare one answer with the baseline's."""
        baseline = problem.meta["baseline"]
        labels: list[str] = []
        for first, second in ((baseline, answer), (answer, baseline)):
            label = self._game(problem.meta["prompt"], first, second)
            if label is None:
                game = len(labels) + 1
                return conclude("error", None, f"the judge gave no verdict in game {game}")
            labels.append(label)
        value = float(np.mean(battles(labels)))
        return Verdict(
            value=value,
            status="right" if value == 1.0 else "wrong",
            canonical=None,
            reason=f"baseline as A: {labels[0]}; response as A: {labels[1]}",
            details={
                "games": labels,
                "style": style(answer),
                "baseline_style": style(baseline),
            },
        )

    def _game(self, question: str, first: str, second: str) -> str | None:
        text = prompt("arena_hard", question=question, answer_a=first, answer_b=second)
        return self.request(f"{template('arena_hard_system')}\n\n{text}", read_label).value


class ArenaHardPreference(GenerativeJudge):
    r"""Arena-Hard's judge for pairs of responses, as R1 builds those of its helpful reward model.

    "we prompt DeepSeek-V3 using the arena-hard prompt format" (arXiv 2501.12948v2, Sec. 3.1 and
    B.2): a `r1lit.verifiers.PreferenceJudge` for ``r1lit-pairs``, which asks four times in both
    orders. The prompt is that of the suite.

    >>> judge = ArenaHardPreference(lambda prompt: "My final verdict is: [[A>>B]]")
    >>> judge("What is 2 + 2?", "4", "5")
    2.0
    """

    def __call__(
        self, prompt_text: str, first: str, second: str, judgement_index: int = 0
    ) -> float | None:
        """Return from 2 (the first is significantly better) to -2, or None for no judgement."""
        if max(len(first), len(second)) > MAX_CHARACTERS:
            return None
        system = template("arena_hard_system")
        key = key_of(system, self.name, prompt_text, first, second, str(judgement_index))
        text = prompt("arena_hard", question=prompt_text, answer_a=first, answer_b=second)
        value = self.kept_or_requested(
            key,
            lambda fence: f"{system}\n\n{text}",
            lambda reply, fence: LABELS.get(read_label(judged_text(reply)) or ""),
        )
        return None if value is None else float(value)


def read_label(reply: str) -> str | None:
    """Return the last label of a judge's reply, or None.

    >>> [read_label(r) for r in ("[[B>A]], no: my final verdict is [[A>>B]]", "[b>a]", "A")]
    ['A>>B', 'B>A', None]
    """
    for pattern in (r"\[\[([AB<>=]+)\]\]", r"\[([AB<>=]+)\]"):
        found = [label for label in re.findall(pattern, reply.upper()) if label]
        if found:
            return found[-1] if found[-1] in VALUES else None
    return None


def battles(games: Sequence[str]) -> list[float]:
    """Return the battles of two games, as wins of the response.

    >>> battles(["B>>A", "A=B"])
    [1.0, 1.0, 1.0, 0.5]
    """
    return [1 - value for value in VALUES[games[0]]] + VALUES[games[1]]


def style(answer: str) -> list[int]:
    """Return words, headers, list items and bold texts of an answer, code blocks left out."""
    text = re.sub(r"```[^`]*```", "", answer)
    return [
        len(answer.split()),
        len(re.findall(r"^#{1,6}\s", text, re.MULTILINE)),
        len(re.findall(r"^[ \t]*(?:[-*+]|\d{1,9}\.)[ \t]", text, re.MULTILINE)),
        len(re.findall(r"\*\*[^*\n]+\*\*|__[^_\n]+__", text)),
    ]


def style_features(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Return Arena-Hard's four features of each row, standardised over battles.

    Lengths as (m - b)/(m + b); headers, lists and bold texts first per word. A row counts as often
    as it has battles, two to six times, as in Arena-Hard's ``show_result.py``, whose standard
    deviation has n - 1 below.
    """
    m_N4, b_N4 = (np.array([row[k] for row in rows], float) for k in ("style", "baseline_style"))
    length_N = (m_N4[:, 0] - b_N4[:, 0]) / np.maximum(m_N4[:, 0] + b_N4[:, 0], 1)
    m_N3, b_N3 = (v[:, 1:] / (v[:, :1] + 1) for v in (m_N4, b_N4))
    features_NF = np.column_stack([length_N, (m_N3 - b_N3) / (m_N3 + b_N3 + 1)])
    count_N = [len(battles(row["games"])) for row in rows]
    battles_MF = np.repeat(features_NF, count_N, axis=0)
    std_F = battles_MF.std(0, ddof=1)
    return (features_NF - battles_MF.mean(0)) / np.where(std_F > 0, std_F, 1)


def arena_win_rate(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean over all battles."""
    return float(np.mean([value for row in rows for value in battles(row["games"])]))


def style_controlled_win_rate(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the win rate of a Bradley-Terry fit whose style terms are then left out.

    logit P(response wins a battle) = theta + features . beta; the rate is that of theta alone.
    """
    outcomes = [battles(row["games"]) for row in rows]
    x_NF = np.column_stack([np.ones(len(rows)), style_features(rows)])
    y_N, weight_N = (np.array([f(values) for values in outcomes]) for f in (np.mean, len))
    theta, *_ = fit_logistic(x_NF, y_N, weight_N)
    return float(sigmoid(theta))


def arena_hard(groups: Groups, *, seed: int = 0) -> Score:
    """Return Arena-Hard's win rate against the baseline, and with style control beside it."""
    problems = _details(groups, "games")
    total = sum(map(len, groups.values()))
    plain = _with_interval("win rate", problems, arena_win_rate, total, seed)
    controlled = _with_interval("style control", problems, style_controlled_win_rate, total, seed)
    return plain | {"style_control": json.loads(json.dumps(controlled))}
