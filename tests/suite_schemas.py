"""Columns of the public data of suites of which no row may stand in the tree, and where they are.

``read`` says what the columns were compared with when they were written down: the source itself, a
public text that lists the columns of that data set, or nothing (from memory).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns of a data set."""

    source: str
    columns: tuple[str, ...]
    read: str


def words(text: str) -> tuple[str, ...]:
    """Return the columns of a text with commas."""
    return tuple(column.strip() for column in " ".join(text.split()).split(","))


_EXPERT = "Feedback, Validator Revision Suggestion, Is First Validation, Post hoc agreement, Sufficient Expertise?, Understand the question?, Question Difficulty, Validator Answered Correctly, Self-reported time (minutes), Probability Correct, Manual Correctness Adjustment, Expert Validator"  # noqa: E501
_OTHER = "Feedback, Validator Answered Correctly, Explanation, Self-reported time (minutes), Websites visited, Probability Correct, Manual Correctness Adjustment, Non-Expert Validator"  # noqa: E501
GPQA = (
    words("""Pre-Revision Question, Pre-Revision Correct Answer, Pre-Revision Incorrect Answer 1,
    Pre-Revision Incorrect Answer 2, Pre-Revision Incorrect Answer 3, Pre-Revision Explanation,
    Self-reported question-writing time (minutes), Question, Correct Answer, Incorrect Answer 1,
    Incorrect Answer 2, Incorrect Answer 3, Explanation, Revision Comments (from Question Writer),
    Subdomain, Writer's Difficulty Estimate, Extra Revised Question, Extra Revised Explanation,
    Extra Revised Correct Answer, Extra Revised Incorrect Answer 1,
    Extra Revised Incorrect Answer 2, Extra Revised Incorrect Answer 3,
    Non-Expert Validator Accuracy, Majority Non-Expert Vals Incorrect,
    Expert Validator Accuracy, Record ID, High-level domain,
    Question Writer""")
    + tuple(f"{column}_EV_{n}" for n in (1, 2) for column in words(_EXPERT))
    + tuple(f"{column}_NEV_{n}" for n in (1, 2, 3) for column in words(_OTHER))
    + ("Expert Validator Disagreement Category", "Canary String")
)

SCHEMAS = {
    "gpqa_diamond": Schema(
        source="huggingface.co/datasets/Idavidrein/gpqa", columns=GPQA, read="a list of its columns"
    ),
    "alpaca_eval": Schema(
        source="huggingface.co/datasets/tatsu-lab/alpaca_eval, alpaca_eval.py, _info",
        columns=words("instruction, output, generator, dataset"),
        read="the source",
    ),
    "livecodebench": Schema(
        source="LiveCodeBench/LiveCodeBench, lcb_runner/benchmarks/code_generation.py,"
        " CodeGenerationProblem",
        columns=words("""question_title, question_content, platform, question_id, contest_id,
        contest_date, starter_code, difficulty, public_test_cases, private_test_cases, metadata"""),
        read="the source",
    ),
    "codeforces": Schema(
        source="huggingface.co/datasets/open-r1/codeforces, README.md, dataset_info",
        columns=words("""id, aliases, contest_id, contest_name, contest_type, contest_start,
        contest_start_year, index, time_limit, memory_limit, title, description, input_format,
        output_format, interaction_format, note, examples, editorial, rating, tags, testset_size,
        official_tests, official_tests_complete, input_mode, generated_checker, executable,
        generated_tests"""),
        read="the source",
    ),
    "swe_bench_verified": Schema(
        source="SWE-bench/SWE-bench, swebench/harness/constants, SWEbenchInstance; Verified has"
        " difficulty too",
        columns=words("""repo, instance_id, base_commit, patch, test_patch, problem_statement,
        hints_text, created_at, version, FAIL_TO_PASS, PASS_TO_PASS, environment_setup_commit,
        difficulty"""),
        read="the source",
    ),
    "aime2024": Schema(
        source="huggingface.co/datasets/HuggingFaceH4/aime_2024",
        columns=words("id, problem, solution, answer, url, year"),
        read="nothing",
    ),
    "cnmo2024": Schema(
        source="huggingface.co/datasets/opencompass/LiveMathBench",
        columns=words("question, answer, question_type"),
        read="a list of its columns",
    ),
    "cluewsc": Schema(
        source="huggingface.co/datasets/clue/clue, cluewsc2020; its label is a class, 0 for true",
        columns=words("idx, text, label, target"),
        read="a list of its columns",
    ),
    "ceval": Schema(
        source="huggingface.co/datasets/ceval/ceval-exam; subject is r1lit's, as the Hub has a part"
        " a subject",
        columns=words("id, question, A, B, C, D, answer, explanation, subject"),
        read="a list of its columns",
    ),
    "c_simpleqa": Schema(
        source="huggingface.co/datasets/OpenStellarTeam/Chinese-SimpleQA",
        columns=words("id, primary_category, secondary_category, question, answer, urls"),
        read="nothing",
    ),
}
