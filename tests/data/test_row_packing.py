from __future__ import annotations

import numpy as np
import pytest

from r1lit.data.packing import EncodedDocument, build_rows, count_rows, pack, truncate
from r1lit.seeding import generator

PAD = 99


def document(first: int, length: int, num_prompt_tokens: int) -> EncodedDocument:
    """A document whose tokens count up from ``first``."""
    return EncodedDocument(
        tokens=np.arange(first, first + length, dtype=np.int32),
        num_prompt_tokens=num_prompt_tokens,
    )


def random_documents(seed: int) -> list[EncodedDocument]:
    """Documents without a token in common."""
    rng = generator(seed, "test documents")
    documents, first = [], 1000
    for length in rng.integers(2, 41, size=80).tolist():
        documents.append(document(first, length, int(rng.integers(0, length))))
        first += length
    return documents


def test_best_fit_takes_the_fullest_row_that_still_holds():
    assert pack([3, 5, 4, 2], 7) == [[0, 2], [1, 3]]
    assert pack([4, 4, 3, 3], 7) == [[0, 2], [1, 3]]
    assert pack([7, 7], 7) == [[0], [1]]
    assert pack([], 7) == []


@pytest.mark.parametrize("seed", range(30))
def test_packing_keeps_every_document_whole_and_wastes_less_than_half(seed):
    rng = generator(seed, "test lengths")
    capacity = int(rng.integers(10, 200))
    lengths = rng.integers(1, capacity + 1, size=int(rng.integers(1, 300))).tolist()
    rows = pack(lengths, capacity)
    assert sorted(index for row in rows for index in row) == list(range(len(lengths)))
    loads = sorted(sum(lengths[i] for i in row) for row in rows)
    assert loads[-1] <= capacity
    if len(rows) > 1:
        assert loads[0] + loads[1] > capacity
        assert sum(lengths) > capacity * len(rows) / 2
    assert rows == pack(lengths, capacity)


def test_short_documents_fill_rows_almost_wholly():
    lengths = generator(0, "fill").integers(20, 200, size=2000).tolist()
    rows = pack(lengths, 1024)
    assert sum(lengths) / (len(rows) * 1024) > 0.98


@pytest.mark.parametrize(
    ("lengths", "named"),
    [
        ([3, 8], r"1 of 2 documents: 1 \(8\); the longest has 8;"),
        ([9, 3, *range(8, 14)], r"7 of 8 documents: 0 \(9\), 2 \(8\), .*, 5 \(11\) …; .* has 13;"),
    ],
)
def test_documents_longer_than_a_row_are_named(lengths, named):
    with pytest.raises(ValueError, match=f"max_seq_len: 7 tokens are too few for {named}"):
        pack(lengths, 7)


def test_truncation_is_asked_for_and_leaves_something_to_learn():
    documents = [document(0, 5, 2), document(10, 9, 3)]
    cut = truncate(documents, 6)
    assert [len(d) for d in cut] == [5, 6]
    assert cut[1].tokens.tolist() == [10, 11, 12, 13, 14, 15]
    with pytest.raises(ValueError, match=r"max_seq_len: 3 .* document 1, whose prompt has 3"):
        truncate(documents, 3)


def test_rows_by_hand():
    documents = [document(10, 3, 2), document(20, 2, 1)]
    options = {"max_seq_len": 7, "pad_id": PAD, "iteration": 4}
    rows = build_rows(documents, [[0, 1]], loss_on="response", **options)
    assert rows.iteration == 4
    assert rows.input_ids_RL.tolist() == [[10, 11, 12, 20, 21, PAD, PAD]]
    assert rows.position_ids_RL.tolist() == [[0, 1, 2, 0, 1, 0, 1]]
    assert rows.loss_mask_RL.int().tolist() == [[0, 0, 1, 0, 1, 0, 0]]
    everything = build_rows(documents, [[0, 1]], loss_on="all", **options)
    assert everything.loss_mask_RL.int().tolist() == [[0, 1, 1, 0, 1, 0, 0]]


def test_a_document_without_a_prompt_never_predicts_its_first_token():
    rows = build_rows([document(0, 3, 0)], [[0]], max_seq_len=3, pad_id=PAD, loss_on="response")
    assert rows.loss_mask_RL.int().tolist() == [[0, 1, 1]]


@pytest.mark.parametrize("loss_on", ["response", "all"])
@pytest.mark.parametrize("seed", range(5))
def test_the_loss_stays_within_documents_and_counts_every_target_once(seed, loss_on):
    documents = random_documents(seed)
    packing = pack([len(d) for d in documents], 64)
    rows = build_rows(documents, packing, max_seq_len=64, pad_id=PAD, loss_on=loss_on)
    predicted = {}
    for r, t in rows.loss_mask_RL.nonzero().tolist():
        assert t > 0 and rows.position_ids_RL[r, t] == rows.position_ids_RL[r, t - 1] + 1
        predicted[int(rows.input_ids_RL[r, t])] = int(rows.input_ids_RL[r, t - 1])
    expected = {}
    for d in documents:
        start = max(1, d.num_prompt_tokens) if loss_on == "response" else 1
        expected |= {int(d.tokens[t]): int(d.tokens[t - 1]) for t in range(start, len(d))}
    assert predicted == expected
    counts = count_rows(documents, packing, 64, loss_on)
    assert counts["num_targets"] == int(rows.loss_mask_RL.sum()) == len(expected)
    assert counts["num_tokens"] == int((rows.input_ids_RL != PAD).sum())
    assert counts["fill"] == pytest.approx((rows.input_ids_RL != PAD).float().mean().item())
