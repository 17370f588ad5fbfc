"""Each suite's prompt is the paper's own, Tables 18 to 32 of arXiv 2501.12948v2.

A row of slots goes through the suite's loader. White space aside, what comes out has the digest of
the paper's text with the same slots in the place of its example. Where the paper's facts lie beside
the project, the digests are taken from them once more.
"""

from __future__ import annotations

import hashlib
import json
import re

import pytest
import yaml
from suite_rows import LIVE, STDIN
from tiny import ROOT

from r1lit.evaluation.suites import load_suite
from r1lit.evaluation.suites.judged import PROMPTS

PAGE = ROOT / ".." / "shared" / "R1_V2.md"
FOUR = ["{option}"] * 4

DIGESTS = {
    "mmlu": "c0ce1b5a1bd736af",
    "mmlu_redux": "968a644983de1647",
    "livecodebench": "844574cafee933a9",
    "mmlu_pro": "eb21d7e0b15f37fc",
    "drop": "3709bd6a490c0227",
    "frames": "b77d1ea019b27b68",
    "cluewsc": "c70aa068f50395cf",
    "ceval": "3f786ce8d5608b87",
    "gpqa_diamond": "0ffb3f5ab3dc349b",
    "aime2024": "84c6b12cfe0edb93",
    "math500": "84c6b12cfe0edb93",
    "cnmo2024": "84c6b12cfe0edb93",
    "frames, judge": "10ced9b8614d4889",
    "arena_hard, judge": "226ad3ca9bb6b170",
}

SPANS = {"span1_text": "{name}", "span2_text": "{pronoun}", "span1_index": 0, "span2_index": 1}
ROWS: dict[str, list[dict]] = {
    "mmlu": [{"question": "{question}", "choices": FOUR, "answer": 0, "subject": ""}],
    "mmlu_redux": [{"question": "{question}", "choices": FOUR, "answer": 0, "subject": "",
                    "error_type": "ok", "correct_answer": None}],
    "livecodebench": [LIVE | {"question_id": "1", "question_content": "{question}",
                              "starter_code": "", "metadata": "{}", "private_test_cases": "[]",
                              "public_test_cases": json.dumps(STDIN)}],
    "mmlu_pro": [{"question": "{question}", "options": ["{option}"] * 9, "answer": "A",
                  "category": "{category}"}],
    "drop": [{"context": "Passage: {passage}\nQuestion: {question}\nAnswer:",
              "completion": " {answer}.", "ref_text": "1"}]
            + [{"context": f"Passage: {'{passage}' + ' ' * n}\nQuestion: {{question}}\nAnswer:",
                "completion": " {answer}.", "ref_text": "1"} for n in range(1, 5)],
    "frames": [{"Prompt": "{query}", "Answer": "1", "wiki_links": [], "reasoning_types": "",
                "articles": [{"url": "{url}", "content": "{content}"}]}],
    "cluewsc": [{"text": "{text}", "target": SPANS, "label": "true"}],
    "ceval": [{"question": "{question}", "subject": "{subject}", "answer": "B",
               **dict.fromkeys("ABCD", "{option}")}],
    "gpqa_diamond": [{"Question": "{question}", "Correct Answer": "{option}",
                      **{f"Incorrect Answer {i}": "{option}" for i in (1, 2, 3)},
                      "High-level domain": ""}],
    "aime2024": [{"problem": "{question}", "answer": "1"}],
    "math500": [{"problem": "{question}", "answer": "1", "unique_id": "1", "level": 1,
                 "subject": ""}],
    "cnmo2024": [{"question": "{question}", "answer": "1"}],
}  # fmt: skip
TABLES = {
    "mmlu": 18, "mmlu_redux": 19, "livecodebench": 20, "mmlu_pro": 21, "drop": 22, "frames": 24,
    "cluewsc": 27, "ceval": 28, "gpqa_diamond": 29, "aime2024": 32, "math500": 32, "cnmo2024": 32,
    "frames, judge": 24, "arena_hard, judge": 25,
}  # fmt: skip


def digest(text: str) -> str:
    """Return the digest of a text without fences, the paper's ellipses and white space."""
    words = re.sub(r"```(json)?|…", " ", text).split()
    return hashlib.blake2b("".join(words).encode(), digest_size=8).hexdigest()


def rendered(name: str, folder) -> str:
    """Return the prompt that a suite makes of the row of slots."""
    if name.endswith(", judge"):
        file = {"frames, judge": "frames", "arena_hard, judge": "arena_hard_system"}[name]
        return (PROMPTS / f"{file}.txt").read_text(encoding="utf-8")
    for file in ("rows.jsonl", "rows_dev.jsonl"):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS[name])
        (folder / file).write_text("".join(lines), encoding="utf-8")
    return load_suite(name).read(str(folder / "rows.jsonl"), num_samples=1)[0].question


@pytest.mark.parametrize("name", TABLES)
def test_a_prompt_is_the_papers(name, tmp_path):
    assert digest(rendered(name, tmp_path)) == DIGESTS[name]


def options(text: str, mark: str) -> str:
    """Return a text whose options, each on a line of its own, are slots."""
    return re.sub(mark + ".+", lambda line: line[1] + "{option}", text)


def slots_of(name: str, block: str) -> str:
    """Return the paper's text with slots in the place of its example."""
    lines = block.rstrip("\n").split("\n")
    if name in ("mmlu", "gpqa_diamond"):
        mark = r"(?m)^([A-D]\. )" if name == "mmlu" else r"(?m)^([A-D]\) )"
        return options("\n".join([lines[0], "{question}", *lines[2:]]), mark)
    if name == "mmlu_redux":
        text = "\n".join([lines[0], "{question}", *lines[2:]])
        return options(text, r"(?m)^(- \([A-D]\) )")
    if name == "livecodebench":
        return re.sub(r"(?s)^Question: .*\n(?=Please)", "Question: {question}\n", block)
    if name == "mmlu_pro":
        text = block.replace("about business.", "about {category}.")
        text = re.sub(r"Question: .+", "Question: {question}", text)
        return options(text, r"((?<=Options: )A\. |(?<=\n)[B-I]\. )")
    if name == "drop":
        shown = "Passage: {passage} Question: {question} Answer: "
        text = re.sub(r"(?s)Passage: .*?Question: .*?Answer: \d+", shown + "{answer}", block)
        return re.sub(r"(?s)Passage: (?!\{).*?Answer:\n", shown, text)
    if name == "frames":
        text = re.sub(r"url: .+", "url: {url}", block)
        text = re.sub(r"url content: .+ Based", "url content: {content} Based", text)
        return re.sub(r"Query: .+", "Query: {query}", text)
    if name == "cluewsc":
        return "\n".join([*lines[:-2], "{text}", lines[-1].replace('"他"', '"{pronoun}"')])
    if name == "ceval":
        text = block.replace("逻辑学", "{subject}", 1)
        return options(re.sub(r"(?m)^.+___$", "{question}", text), r"(?m)^([A-D]\. )")
    if name in ("aime2024", "math500", "cnmo2024"):
        return "\n".join(["{question}", lines[-1]])
    if name == "frames, judge":
        for label, slot in (("Question", "question"), ("Predicted Answer", "predicted_answer"),
                            ("Ground Truth Answer", "target")):  # fmt: skip
            block = re.sub(rf"- {label}: .+", f"- {label}: {{{slot}}}", block)
    return block


@pytest.mark.skipif(not PAGE.is_file(), reason="the paper's facts are not here")
@pytest.mark.parametrize("name", TABLES)
def test_the_digests_are_of_the_papers_text(name):
    text = PAGE.read_text(encoding="utf-8").split(f"\nTable {TABLES[name]}, ")[1]
    blocks = re.findall(r"(?ms)^(`{3,4})\n(.*?)\n\1$", text)
    block = blocks[1 if name == "frames, judge" else 0][1]
    assert digest(slots_of(name, block)) == DIGESTS[name]


def test_the_configuration_of_livecodebench_has_the_suites_words():
    own = yaml.safe_load((ROOT / "configs/eval/livecodebench.yaml").read_text())
    [source] = own["data"]["init_args"]["test"]
    assert (
        source["init_args"]["wording"]
        == (load_suite("livecodebench").problems["init_args"]["wording"])
    )


def test_responses_to_a_problem_are_as_many_as_the_paper_says():
    """64, 16 and 8 where it names the suite, else between 4 and 64 (D.1)."""
    named = {"aime2024": 64, "gpqa_diamond": 64, "math500": 16, "codeforces": 16,
             "livecodebench": 8}  # fmt: skip
    listed = yaml.safe_load((ROOT / "configs/eval/paper.yaml").read_text())
    suites = listed["data"]["init_args"]["suites"]
    paper = suites[: suites.index("humaneval_mul") + 1]
    counts = {name: load_suite(name).responses for name in paper}
    assert {name: counts[name] for name in named} == named
    assert all(4 <= count <= 64 for count in counts.values())


def test_frames_links_stand_where_no_article_is_given(tmp_path):
    row = ROWS["frames"][0]
    path = tmp_path / "rows.jsonl"
    two = [{"url": "u1", "content": "c1"}, {"url": "u2", "content": "c2"}]
    for articles, shown in ((None, "['x']"), (two, "url: u1\nurl content: c1\nurl: u2\n")):
        path.write_text(json.dumps(row | {"articles": articles, "wiki_links": ["x"]}))
        [problem] = load_suite("frames").read(str(path))
        assert shown in problem.question
    path.write_text(json.dumps(row | {"articles": [{"title": "t"}]}))
    with pytest.raises(ValueError, match=r"articles: .* is not a list of mappings with url and"):
        load_suite("frames").read(str(path))


def test_the_bengali_prompt_of_mgsm_has_simple_evals_code_points():
    """210 characters there: U+09DF stands in one place, and no other letter is precomposed."""
    _, prompt = load_suite("mgsm").problems["init_args"]["prompts"]["bn"]
    assert len(prompt) == 210
    assert [i for i, letter in enumerate(prompt) if letter in "\u09dc\u09dd\u09df"] == [50]
