"""A teacher behind a real server, against the same model in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from http_server import ScoringServer
from tiny_models import VOCABULARY, make_policy, make_tokenizer

from r1lit.endpoint import Endpoint
from r1lit.endpoint.client import SetupError
from r1lit.objectives import ForwardKL, ReverseKL, SampledReverseKL
from r1lit.policy import Divergences, FullScores, Logits, Responses, ServerTeacher, TopScores
from r1lit.supervised_batches import PackedRows

MODEL = make_policy("qwen2")
STUDENT = make_policy("llama")


@pytest.fixture(scope="module")
def tokenizer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(path)
    MODEL.config.save_pretrained(path)
    return path


@pytest.fixture(params=["prompt_logprobs", "echo", "echo by text"])
def teacher(request, tokenizer_path: Path):
    server = ScoringServer(MODEL, make_tokenizer(), spells_ids=request.param != "echo by text")

    def make(**options) -> ServerTeacher:
        logprobs_format = request.param.removesuffix(" by text")
        return ServerTeacher(
            model="tiny", tokenizer=str(tokenizer_path), 
            endpoint=Endpoint(url=server.base_url, max_retries=0),
            logprobs_format=logprobs_format, **options,
        )  # fmt: skip

    make.server = server
    yield make
    server.close()


PROMPTS = [[5, 6, 7], [9, 10]]
RESPONSE_BT = torch.tensor([[40, 41, 42], [50, 51, 0]])
MASK_BT = torch.tensor([[True, True, True], [True, True, False]])
RESPONSES = Responses(prompts=PROMPTS, response_BT=RESPONSE_BT, mask_BT=MASK_BT)


def divergence_K(scores, divergence, inputs=RESPONSES):
    return STUDENT(inputs, Divergences(teacher=scores, divergence=divergence)).divergence_K


def test_responses_are_scored_as_in_this_process(teacher):
    scores = teacher(top_k=5).score_responses(RESPONSES)
    target_K, logp_K = RESPONSES.target_K, MODEL(RESPONSES).logp_K.detach()
    assert isinstance(scores, TopScores) and torch.equal(scores.token_KC[:, 0], target_K)
    logp_KV = MODEL(RESPONSES, Logits()).logits_KV.detach().log_softmax(-1)
    torch.testing.assert_close(scores.target_logp(target_K, 1.0), logp_K, rtol=1e-4, atol=1e-4)
    for row, logp_V in zip(range(5), logp_KV, strict=True):
        told = dict(zip(scores.token_KC[row].tolist(), scores.logp_KC[row].tolist(), strict=True))
        told[int(target_K[row])] = float(scores.logp_KC[row, 0])
        for token in logp_V.topk(3).indices.tolist():
            if token in told:
                assert told[token] == pytest.approx(float(logp_V[token]), abs=1e-3)
    assert [len(body["prompt"]) for body in teacher.server.bodies].count(6) == 1


def test_the_divergence_is_a_lower_bound_that_rises_with_k(teacher):
    whole_K = divergence_K(FullScores.of(MODEL, RESPONSES), ForwardKL())
    sums = []
    for k in (0, 3, 30, VOCABULARY - 1):
        scores = teacher(top_k=k).score_responses(RESPONSES)
        value_K = divergence_K(scores, ForwardKL())
        assert (value_K <= whole_K + 1e-3).all()
        sums.append(value_K.sum().item())
    assert sums == sorted(sums) and 0 < sums[0] < 0.8 * sums[-1]
    if teacher.server.spells_ids:  # by text, bytes that are no character cannot be named
        assert sums[-1] == pytest.approx(float(whole_K.sum()), rel=1e-2)


def test_the_tokens_own_log_prob_is_enough_for_the_sampled_estimate(teacher):
    scores = teacher(top_k=0).score_responses(RESPONSES)
    torch.testing.assert_close(
        divergence_K(scores, SampledReverseKL()),
        divergence_K(FullScores.of(MODEL, RESPONSES), SampledReverseKL()),
        rtol=1e-3, atol=1e-3,
    )  # fmt: skip


def test_documents_are_scored_within_themselves(teacher):
    """Two documents in a row and one in the next; one of them has no target."""
    rows = PackedRows(
        iteration=0,
        input_ids_RL=torch.tensor([[5, 40, 41, 6, 50, 51], [7, 8, 9, 60, 0, 0]]),
        position_ids_RL=torch.tensor([[0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 0, 1]]),
        loss_mask_RL=torch.tensor([[0, 1, 1, 0, 0, 1], [0, 0, 0, 1, 0, 0]]).bool(),
    )
    scores = teacher(top_k=4).score_documents(rows)
    target_K = rows.input_ids_RL[rows.loss_mask_RL]
    expected_K = MODEL(rows).logp_K.detach()
    torch.testing.assert_close(scores.target_logp(target_K, 1.0), expected_K, rtol=1e-4, atol=1e-3)
    divergence_K(scores, ReverseKL(), rows).sum().backward()


def test_a_server_without_log_probs_is_an_error(tokenizer_path: Path):
    """One text is left out; a server whose first replies all lack them is refused."""
    server = ScoringServer(MODEL, make_tokenizer(), tells=False)
    teacher = ServerTeacher(
        model="tiny",
        tokenizer=str(tokenizer_path),
        endpoint=Endpoint(url=server.base_url, max_retries=0),
    )
    left_out = r"of 6 tokens is left out \(logprobs_format: prompt_logprobs\)"
    with pytest.warns(UserWarning, match=left_out):
        scores = teacher.score_responses(
            Responses(prompts=PROMPTS[:1], response_BT=RESPONSE_BT[:1], mask_BT=MASK_BT[:1])
        )
    assert scores.known_K.tolist() == [False] * 3
    eight = Responses(
        prompts=PROMPTS[:1] * 8,
        response_BT=RESPONSE_BT[:1].expand(8, -1),
        mask_BT=MASK_BT[:1].expand(8, -1),
    )
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(SetupError, match=r"no reply of this server could be read so far"),
    ):
        teacher.score_responses(eight)
    server.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"top_k": -1}, "top_k: -1"), ({"concurrency": 0}, "concurrency: 0"),
     ({"logprobs_format": "chat"}, "logprobs_format: 'chat'")],
)  # fmt: skip
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        ServerTeacher(**{"model": "m", "tokenizer": "t", **options})
