import math
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from r1lit.sandbox.plain import Handle, Kept, NotPlainData, Shape, decode, encode


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 10**400, 0.1, -0.0, 1e308, math.inf, -math.inf, 1 + 2j,
        complex(math.inf, -0.0), "", "ü\ud800\0\n", b"\0\xff", bytearray(b"a"), [], [1, [2]], (),
        (1,), {1, (2, "a")}, frozenset({1.5}), {}, {1: {"a": None}, (1, 2): [b"x"]}, [True, 1, 1.0],
        range(3), range(9, 0, -2), Decimal("1.50"), Fraction(-2, 3), deque([1, [2]], 5), deque(),
        date(2020, 2, 29), datetime(2020, 1, 2, 3, 4, 5, 6, UTC), time(1, 2),
        timedelta(-1, 5, 7),
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


@pytest.mark.parametrize("view", ["keys", "values", "items"])
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_a_view_of_a_dictionary_stays_one(view, kind):
    value = getattr(kind({1: 2, "a": 3}), view)()
    back = decode(encode(value))
    assert type(back) is type(getattr({}, view)()) and list(back) == list(value)


def test_a_named_tuple_keeps_its_names():
    back = decode(encode(namedtuple("Point", "x y")(1, [2])))
    assert back == (1, [2]) and (back.x, back.y, type(back).__name__) == (1, [2], "Point")


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool", "complex128", "<U3", "S2", ">i2"])
def test_an_array_comes_back(dtype):
    np = pytest.importorskip("numpy")
    value = np.array([[1, 0], [2, 3]]).astype(dtype)
    back = decode(encode({"a": value}))["a"]
    assert type(back) is np.ndarray and back.dtype == value.dtype and (back == value).all()
    assert back.flags.writeable
    assert decode(encode(value[:0])) == [], "it would be broadcast, and equal everything"
    assert decode(encode(value[0, 0])) == value[0, 0].item()


@dataclass
class Point:
    x: int
    y: object


def test_an_instance_of_a_dataclass_stays_and_shows_its_fields():
    kept = decode(encode(Point(1, [Point(2, 3)]), lambda value: value.x), lambda kept: kept)
    assert kept.shape == Shape(name="Point", fields=("x", "y"))
    assert (kept.number, kept.kind, kept.fields[0]) == (1, "object", 1)
    assert isinstance(kept.fields[1][0], Kept) and kept.fields[1][0].fields == (2, 3)


@pytest.mark.parametrize("value", [object(), iter([]), lambda: 0, range, ..., [object()]])
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
        '["D", "x"]', '["D", 1]', '["F", ["1", "0"]]', '["r", ["0", "1", "0"]]', '["r", ["1"]]',
        '["n", ["P", ["_x"], [null]]]', '["n", ["P", ["x"], []]]', '["n", ["a b", ["x"], [null]]]',
        '["A", ["|O", [1], "0000000000000000"]]', '["A", ["<f8", [0], ""]]',
        '["A", ["<f8", [2], "00"]]',
        '["dk", [["l", []]]]', '["q", [-1, []]]', '["date", "x"]', '["td", ["a", 1, 1]]',
        '["k", [0, "object", null, []]]', '["c", ["0x1p0"]]',
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_malformed_text_is_refused(text):
    with pytest.raises(NotPlainData):
        decode(text)


def test_a_handle_can_only_be_handed_back():
    kept = []
    text = encode(object(), lambda value: kept.append(value) or 0)
    handle = decode(text, lambda kept: Handle(kept.number))
    assert isinstance(handle, Handle) and len(kept) == 1
    assert decode(encode([handle]), own=kept.__getitem__) == kept
    for look in (
        lambda: handle == 1, lambda: handle != 1, lambda: not handle, lambda: 1 in [handle],
        lambda: handle < 1, lambda: 1 in handle, lambda: {handle},
    ):  # fmt: skip
        with pytest.raises((NotPlainData, TypeError)):
            look()
