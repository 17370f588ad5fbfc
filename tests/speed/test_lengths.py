from __future__ import annotations

import json

import pytest

from benchmarks.lengths import CHAINS, FILE, chain_lengths, read_chains, response_lengths
from benchmarks.problems import encoded
from benchmarks.sizes import sft_work
from benchmarks.work import Work
from r1lit.policy import load_tokenizer


@pytest.mark.parametrize(
    ("prompts", "group", "limit"), [(16, 16, 512), (4, 8, 256), (4, 16, 256), (8, 8, 512)]
)
def test_recorded_lengths_are_skewed(prompts, group, limit):
    lengths = response_lengths(prompts, group, limit)
    assert len(lengths) == prompts * group
    assert max(lengths) == limit
    assert sum(lengths) / len(lengths) < 0.6 * limit


def test_a_group_stays_a_recorded_group():
    groups = json.loads(FILE.read_text())["responses"]
    lengths = response_lengths(16, 16, 10_000)
    assert list(lengths[16:32]) == groups[4]


@pytest.mark.skipif(not CHAINS.exists(), reason="the data are not here")
def test_the_recorded_chains_are_those_of_the_data():
    assert json.loads(FILE.read_text())["chains"] == read_chains(CHAINS)


def test_chains_are_cut_at_the_row():
    lengths = chain_lengths(195, 4096)
    assert max(lengths) == 4096
    assert 2000 < sum(lengths) / len(lengths) < 3000


def test_documents_have_exactly_their_lengths(folder):
    work = sft_work("135M", folder, tiny=True)
    documents = encoded(work, load_tokenizer(work.model))
    assert tuple(map(len, documents)) == work.lengths


def test_lengths_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="lengths: 3 of them for 4 rows"):
        Work(model="m", num_prompts=2, group_size=2, max_tokens=8, lengths=(1, 2, 3))
    with pytest.raises(ValueError, match="from 1 to max_tokens, 8"):
        Work(
            model="m",
            num_prompts=1,
            group_size=2,
            max_tokens=8,
            lengths=(1, 9),
            train_batch_size=2,
        )
