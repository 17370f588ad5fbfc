import math

import pytest

from r1lit.sandbox.plain import Handle, NotPlainData, decode, encode


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 10**400, 0.1, -0.0, 1e308, math.inf, -math.inf, 1 + 2j,
        complex(math.inf, -0.0), "", "ü\ud800\0\n", b"\0\xff", bytearray(b"a"), [], [1, [2]], (),
        (1,), {1, (2, "a")}, frozenset({1.5}), {}, {1: {"a": None}, (1, 2): [b"x"]}, [True, 1, 1.0],
    ],
    # a set's repr differs between processes
    ids=lambda value: "set" if isinstance(value, set) else repr(value)[:20],
)  # fmt: skip
def test_round_trip_keeps_value_and_types(value):
    back = decode(encode(value))
    assert back == value and repr(back) == repr(value) and type(back) is type(value)


def test_nan_comes_back_as_another_nan():
    back = decode(encode([math.nan]))
    assert math.isnan(back[0]) and back != [math.nan] and back[0] is not math.nan


class Liar(int):
    def __eq__(self, other):
        return True

    def __index__(self):
        return 99

    def __hash__(self):
        return 0


class LyingList(list):
    def __iter__(self):
        return iter([99])


class LyingDict(dict):
    def items(self):
        return [(99, 99)]

    def __eq__(self, other):
        return True


def test_subclasses_travel_as_their_true_content():
    back = decode(encode([Liar(7), LyingList([1]), LyingDict(a=1)]))
    assert repr(back) == "[7, [1], {'a': 1}]"
    assert [type(item) for item in back] == [int, list, dict]


@pytest.mark.parametrize("value", [object(), iter([]), range(3), lambda: 0, range, ..., [object()]])
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(NotPlainData, match="not plain data"):
        encode(value)


def test_what_contains_itself_is_refused():
    value: list = []
    value.append(value)
    with pytest.raises(NotPlainData, match="deeper"):
        encode(value)


@pytest.mark.parametrize(
    "text",
    [
        "", "1", "1.5", "{}", "[]", '["i"]', '["i", 5]', '["i", "x"]', '["x", []]', '["l", 5]',
        '["f", 1.0]', '["f", "1.0g"]', '["c", "0x1p0"]', '["b", "0"]', '["s", [["l", []]]]',
        '["d", [[["l", []], null]]]', '["d", [[null]]]', '["d", 5]', '["h", 0]', '["i", "1", "2"]',
        '["l", {"a": 1}]', "[" * 10**5, '["l", [' * 200 + "]]" * 200, "nan", "NaN", '[["l"], []]',
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_malformed_text_is_refused(text):
    with pytest.raises(NotPlainData):
        decode(text)


def test_a_handle_can_only_be_handed_back():
    kept = []
    text = encode(object(), lambda value: kept.append(value) or 0)
    handle = decode(text, Handle)
    assert isinstance(handle, Handle) and len(kept) == 1
    assert decode(encode([handle]), kept.__getitem__) == kept
    for look in (
        lambda: handle == 1, lambda: handle != 1, lambda: not handle, lambda: 1 in [handle],
        lambda: handle < 1, lambda: 1 in handle, lambda: {handle},
    ):  # fmt: skip
        with pytest.raises((NotPlainData, TypeError)):
            look()
