# ruff: noqa: E501 - programs in one piece
"""What crosses between tests and program: honest results and arguments pass, nothing else pays."""

from __future__ import annotations

import importlib.util

import pytest
from verifiers.code_problems import fenced

from r1lit.batches import Problem
from r1lit.sandbox import Limits
from r1lit.verifiers import FunctionalCodeVerifier

HONEST: dict[str, tuple[str, str, str, str]] = {
    # a program, its test, and a change that makes the program wrong
    'generator': (
        'def f(n):\n    for i in range(n): yield i',
        'assert list(f(3)) == [0,1,2]',
        'yield i', 'yield i+1',
    ),
    'generator next': (
        'def f(n):\n    i=0\n    while True:\n        yield i\n        i+=1',
        'g = f(3)\nassert next(g)==0 and next(g)==1',
        'i=0', 'i=1',
    ),
    'islice infinite': (
        'def f():\n    i=0\n    while True:\n        yield i\n        i+=1',
        'import itertools\nassert list(itertools.islice(f(), 3)) == [0,1,2]',
        'i+=1', 'i+=2',
    ),
    'map': (
        'def f(xs): return map(str, xs)',
        "assert list(f([1,2])) == ['1','2']",
        'str', 'int',
    ),
    'zip in set': (
        'def f(xs): return zip(xs, xs)',
        'assert set(f([1,2])) == {(1,1),(2,2)}',
        'xs, xs', 'xs[:1], xs',
    ),
    'range': (
        'def f(n): return range(n)',
        'assert f(3) == range(3) and list(f(2)) == [0,1]',
        'range(n)', 'range(n, 0, -1)',
    ),
    'dict_keys': (
        'def f(d): return d.keys()',
        'assert set(f({1:2})) == {1} and f({1:2}) == {1}',
        'd.keys()', '{2:1}.keys()',
    ),
    'dict_values': (
        'def f(d): return d.values()',
        'assert list(f({1:2})) == [2]',
        'd.values()', 'd.keys()',
    ),
    'dict_items': (
        'def f(d): return d.items()',
        'assert list(f({1:2})) == [(1,2)]',
        'd.items()', '{1:3}.items()',
    ),
    'ndarray': (
        'import numpy as np\ndef f(x): return np.array(x)*2',
        'import numpy as np\nassert np.array_equal(f([1,2]), [2,4]) and (f([1,2]) == np.array([2,4])).all() and f([1,2]).tolist()==[2,4]',
        '*2', '*3',
    ),
    'ndarray2': (
        'import numpy as np\ndef f(x): return np.array(x)*2',
        'assert list(f([1,2])) == [2,4]',
        '*2', '*3',
    ),
    'ndarray arg': (
        'import numpy as np\ndef f(x): return float(x.sum())',
        'assert f(np.array([1,2])) == 3',
        'sum', 'max',
    ),
    'Decimal': (
        'from decimal import Decimal\ndef f(x): return Decimal(x)+1',
        "assert f('1.5') == Decimal('2.5')",
        '+1', '+2',
    ),
    'Fraction': (
        'from fractions import Fraction\ndef f(a,b): return Fraction(a,b)',
        'from fractions import Fraction\nassert f(1,2) == Fraction(1,2)',
        'a,b)', 'b,a)',
    ),
    'dataclass eq': (
        'from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int\n    y:int\ndef f(a,b): return P(a,b)',
        'assert f(1,2) == P(1,2) and P(1,2) == f(1,2) and f(1,2) != P(2,1)',
        'return P(a,b)', 'return P(b,a)',
    ),
    'dataclass fields': (
        'from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int\n    y:int=0\n    def s(self): return self.x+self.y\ndef f(a,b): return P(a,b)',
        'p=f(1,2)\nassert p.x == 1 and p.y==2 and p.s()==3\nassert P(4).x==4 and P(4,5).s()==9',
        'return P(a,b)', 'return P(b,a)',
    ),
    'dataclass list': (
        'from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int\ndef f(n): return [P(i) for i in range(n)]',
        'assert f(2) == [P(0), P(1)]',
        'P(i)', 'P(i+1)',
    ),
    'namedtuple': (
        "from collections import namedtuple\nP=namedtuple('P','x y')\ndef f(a,b): return P(a,b)",
        'assert f(1,2).x == 1 and f(1,2) == (1,2)',
        'return P(a,b)', 'return P(b,a)',
    ),
    'function': (
        'def f(n): return lambda x: x+n',
        'assert f(3)(4) == 7',
        'x+n', 'x-n',
    ),
    'function arg': (
        'def f(g, xs): return [g(x) for x in xs]',
        "assert f(lambda x: x*2, [1,2]) == [2,4] and f(str, [1]) == ['1'] and f(abs,[-1]) == [1]",
        'g(x) for', 'x for',
    ),
    "program's function arg": (
        'def g(x): return x+1\ndef f(h, x): return h(h(x))',
        'assert f(g, 1) == 3',
        'h(h(x))', 'h(x)',
    ),
    'decorator': (
        'def f(g):\n    def w(*a): return g(*a)+1\n    return w',
        '@f\ndef h(x): return x*2\nassert h(3) == 7',
        '+1', '+2',
    ),
    'callback that calls back': (
        'def f(n, g): return n if n<2 else g(n-1)+1\n',
        'assert f(5, lambda k: f(k, lambda x: x)) == 5',
        '+1', '+2',
    ),
    'callback raising': (
        'def f(g):\n    try: g()\n    except ValueError as e: return str(e)',
        "def bad(): raise ValueError('x')\nassert f(bad) == 'x'",
        'return str(e)', "return 'y'",
    ),
    'append cb': (
        'def f(g):\n    for i in range(3): g(i)',
        'out=[]\nf(out.append)\nassert out==[0,1,2]',
        'range(3)', 'range(2)',
    ),
    'in place': (
        'def f(a): a.sort()',
        'a=[3,1]\nf(a)\nassert a == [1,3]',
        'a.sort()', 'a.reverse(); a.append(1)',
    ),
    'in place returns': (
        'def f(a):\n    a.sort()\n    return len(a)',
        'a=[3,1]\nk = f(a)\nassert a[:k] == [1,3]',
        'a.sort()', 'a.clear()',
    ),
    'in place dict': (
        "def f(d): d['x']=1",
        "d={}\nf(d)\nassert d == {'x':1}",
        '=1', '=2',
    ),
    'in place grid': (
        'def f(g):\n    for r in g: r.reverse()',
        'g=[[1,2],[3,4]]\nf(g)\nassert g == [[2,1],[4,3]]',
        'r.reverse()', 'r.sort()',
    ),
    'multiprocessing': (
        'import multiprocessing\ndef sq(x): return x*x\ndef f(xs):\n    with multiprocessing.Pool() as p: return p.map(sq, xs)',
        'assert f([1,2,3]) == [1,4,9]',
        'x*x', 'x+x',
    ),
    'ProcessPool': (
        'from concurrent.futures import ProcessPoolExecutor\ndef sq(x): return x*x\ndef f(xs):\n    with ProcessPoolExecutor(2) as p: return list(p.map(sq, xs))',
        'assert f([1,2,3]) == [1,4,9]',
        'x*x', 'x+x',
    ),
    'Process Queue': (
        'from multiprocessing import Process, Queue\ndef w(q,x): q.put(x*x)\ndef f(x):\n    q=Queue(); p=Process(target=w,args=(q,x)); p.start(); r=q.get(); p.join(); return r',
        'assert f(3) == 9',
        'x*x', 'x+x',
    ),
    'threads': (
        'from concurrent.futures import ThreadPoolExecutor\ndef f(g,xs):\n    with ThreadPoolExecutor(3) as p: return list(p.map(g, xs))',
        'assert f(lambda x: x+1, [1,2,3]) == [2,3,4]',
        'list(p.map(g, xs))', 'xs',
    ),
    'deque': (
        'from collections import deque\ndef f(x): return deque(x)',
        'from collections import deque\nassert f([1]) == deque([1]) and list(f([1])) == [1]',
        'deque(x)', 'deque([2])',
    ),
    'date': (
        'import datetime\ndef f(x): return datetime.date(2020,1,x), datetime.timedelta(days=x)',
        'assert f(3) == (datetime.date(2020,1,3), datetime.timedelta(3))',
        '2020,1', '2021,1',
    ),
    'isclose': (
        'def f(x): return x/3',
        'assert isclose(f(1), 0.3333333333333)',
        '/3', '/4',
    ),
    'Counter': (
        'def f(x): return list(x)',
        "assert Counter(f('aab')) == Counter({'a':2,'b':1})",
        'list(x)', 'list(x)*2',
    ),
    'np': (
        'def f(x): return x/3',
        'assert np.allclose(f(1), 1/3)',
        '/3', '/4',
    ),
    'gcd': (
        'def gcd(a,b):\n    while b: a,b=b,a%b\n    return a',
        'assert gcd(4,6) == 2',
        'return a', 'return a+1',
    ),
    'gcd lcm': (
        'def gcd(a,b):\n    while b: a,b=b,a%b\n    return a\ndef lcm(a,b): return a*b//gcd(a,b)',
        'assert gcd(4,6) == 2\nassert lcm(4,6) == 12',
        '//gcd(a,b)', '',
    ),
    'sqrt': (
        'def sqrt(x): return x**.5',
        'assert isclose(sqrt(2), 1.41421356237)',
        '**.5', '**.6',
    ),
    'iter arg': (
        'def f(it): return sum(it)',
        'assert f(x for x in [1,2]) == 3',
        'sum(it)', 'max(it)',
    ),
    'StopIteration caught by itself': (
        'def f(xs):\n    it=iter(xs)\n    try:\n        while True: r = next(it)\n    except StopIteration: return r',
        'assert f([1,2]) == 2',
        'return r', 'return xs[0]',
    ),
}  # fmt: skip
LOOPS = [
    'assert all(map(lambda p: f(*p) == p[0]+p[1], [(1,2),(3,4)]))',
    'assert all(x == y for x, y in zip(map(f, [1,2],[3,4]), [4,6]))',
    'assert next((r for r in map(f,[1],[2]) if r != 3), None) is None',
    'assert next(map(f,[1],[2]), 3) == 3',
    'for r, e in zip(map(f,[1],[2]), [3]):\n    assert r == e',
    'assert not list(filter(lambda p: f(*p) != sum(p), [(1,2)]))',
    'assert list(zip(map(f,[1],[2]),[3])) in ([], [(3,3)])',
    'assert not any(map(lambda p: f(*p) != sum(p), [(1,2)]))',
    'assert set(map(f,[1],[2])) <= {3}',
    'assert max(map(f,[1],[2]), default=3) == 3',
    'assert sum(map(f, [1],[2])) in (0, 3)',
    'for r in iter(lambda: f(1,2), 3):\n    assert False',
    'import asyncio\nasync def g():\n    for p in [(1,2)]: yield f(*p) == 3\nasync def m(): return [x async for x in g()]\nassert all(asyncio.run(m()))',
]  # fmt: skip
"""Tests that a program could end by an exception with a meaning for control flow."""

FLOWS = [
    'StopIteration',
    'StopIteration(3)',
    'StopAsyncIteration',
    'GeneratorExit',
    'SystemExit(0)',
    'KeyboardInterrupt',
    "type('E',(StopIteration,),{})()",
    "type('E',(StopIteration,ValueError),{})()",
    "__import__('asyncio').CancelledError()",
    "type('E',(IndexError,StopIteration),{})()",
    "__import__('unittest').SkipTest('x')",
    "IndexError",
    "AttributeError",
    "NotImplementedError",
]  # fmt: skip
HOSTILE: dict[str, tuple[str, str]] = {
    'forged end': (
        'import os, json, sys\nfd=3\ndef f(*a,**k):\n    os.write(3, b\'["end"]\\n\'); return 1',
        'assert f(1, 2) == 3 - 31337',
    ),
    'forged call of number 0': (
        'import os, json, sys\nfd=3\ndef f(*a,**k):\n    os.write(3, b\'["call", 0, "[\\\\"t\\\\", []]"]\\n\'); return 1',
        'assert f(1, 2) == 3 - 31337',
    ),
    'forged call bad number': (
        'import os, json, sys\nfd=3\ndef f(*a,**k):\n    os.write(3, b\'["call", -1, "null"]\\n\'); return 1',
        'assert f(1, 2) == 3 - 31337',
    ),
    'forged get': (
        'import os, json, sys\nfd=3\ndef f(*a,**k):\n    os.write(3, b\'["get", "SECRET"]\\n\'); return 1',
        'assert f(1, 2) == 3 - 31337',
    ),
    'forged next': (
        'import os, json, sys\nfd=3\ndef f(*a,**k):\n    os.write(3, b\'["next", 0]\\n\'); return 1',
        'assert f(1, 2) == 3 - 31337',
    ),
    'forged shape': (
        'import os, json, sys\nfd=3\ndef f(*a,**k):\n    os.write(3, b\'["shape", "f"]\\n\'); return 1',
        'assert f(1, 2) == 3 - 31337',
    ),
    'forged value kept': (
        "import os, json, sys\nfd=3\ndef f(*a,**k):\n    os.write(3, json.dumps(['value', json.dumps(['k',[0,'object',None,[]]])]).encode()+b'\\n'); return 1",
        'assert f(1, 2) == 3 - 31337',
    ),
    'forged own reference': (
        "import os, json, sys\nfd=3\ndef f(*a,**k):\n    os.write(3, json.dumps(['value', json.dumps(['h',0])]).encode()+b'\\n'); return 1",
        'assert f(1, 2) == 3 - 31337',
    ),
    'forged array no shape': (
        "import os, json, sys\nfd=3\ndef f(*a,**k):\n    os.write(3, json.dumps(['value', json.dumps(['A',['<f8',[0,5],'']])]).encode()+b'\\n'); return 1",
        'import numpy as np\nassert np.allclose(f(1,2), [1,2,3,4,5])',
    ),
    'forged array object': (
        "import os, json, sys\nfd=3\ndef f(*a,**k):\n    os.write(3, json.dumps(['value', json.dumps(['A',['|O',[1],'00'*8]])]).encode()+b'\\n'); return 1",
        'assert f(1, 2) == 3 - 31337',
    ),
    'forged array structured': (
        "import os, json, sys\nfd=3\ndef f(*a,**k):\n    os.write(3, json.dumps(['value', json.dumps(['A',['<f8,<f8',[1],'00'*16]])]).encode()+b'\\n'); return 1",
        'assert f(1, 2) == 3 - 31337',
    ),
    'empty array broadcast 2': (
        'import numpy as np\ndef f(*a,**k):\n    return np.empty((0,1))',
        'import numpy as np\nassert (f(1) == [5,6]).all()',
    ),
    'empty array allclose': (
        'import numpy as np\ndef f(*a,**k):\n    return np.empty((0,2))',
        'import numpy as np\nassert np.allclose(f(1), [5,6])',
    ),
    'nan array': (
        'import numpy as np\ndef f(*a,**k):\n    return np.full(2, np.nan)',
        'import numpy as np\nassert not (abs(f(1) - [5,6]) > 1e-6).any() and np.allclose(f(1),[5,6])',
    ),
    'ndarray subclass': (
        'import numpy as np\nclass A(np.ndarray):\n    def __eq__(s,o): return np.array([True])\ndef f(*a,**k):\n    return np.array([1,2]).view(A)',
        'assert (f(1) == [5,6]).all()',
    ),
    'object array': (
        'import numpy as np\nclass Q:\n    def __eq__(s,o): return True\ndef f(*a,**k):\n    return np.array([Q(),Q()],dtype=object)',
        'assert (f(1) == [5,6]).all()',
    ),
    'Decimal sub': (
        "from decimal import Decimal\nclass D(Decimal):\n    def __eq__(s,o): return True\n    __hash__=Decimal.__hash__\n    def __str__(s): return '5'\ndef f(*a,**k):\n    return D('1')",
        'from decimal import Decimal\nassert f() == Decimal(5)',
    ),
    'Fraction sub': (
        'from fractions import Fraction\nclass D(Fraction):\n    def __eq__(s,o): return True\n    __hash__=Fraction.__hash__\ndef f(*a,**k):\n    return D(1)',
        'from fractions import Fraction\nassert f() == Fraction(5)',
    ),
    'date sub': (
        'import datetime\nclass D(datetime.date):\n    def __eq__(s,o): return True\n    __hash__=datetime.date.__hash__\ndef f(*a,**k):\n    return D(2020,1,1)',
        'import datetime\nassert f() == datetime.date(2020,1,2)',
    ),
    'timedelta sub': (
        'import datetime\nclass D(datetime.timedelta):\n    def __eq__(s,o): return True\n    __hash__=datetime.timedelta.__hash__\ndef f(*a,**k):\n    return D(1)',
        'import datetime\nassert f() == datetime.timedelta(2)',
    ),
    'deque sub': (
        'from collections import deque\nclass D(deque):\n    def __eq__(s,o): return True\n    def __iter__(s): return iter([5])\ndef f(*a,**k):\n    return D([1])',
        'from collections import deque\nassert f() == deque([5])',
    ),
    'namedtuple lie': (
        "class P(tuple):\n    _fields=('x',)\n    def __eq__(s,o): return True\n    __hash__=tuple.__hash__\ndef f(*a,**k):\n    return P((1,))",
        'assert f() == (5,)',
    ),
    'namedtuple index field': (
        "class P(tuple):\n    _fields=('index','count')\ndef f(*a,**k):\n    return P((1,2))",
        'assert f().index(5) == 0',
    ),
    'namedtuple bad': (
        "class P(tuple):\n    _fields=('__eq__',)\ndef f(*a,**k):\n    return P((1,))",
        'assert f() == (5,)',
    ),
    'iterator that lies': (
        'class I:\n    def __iter__(s): return s\n    def __next__(s): raise StopIteration\n    def __eq__(s,o): return True\ndef f(*a,**k):\n    return I()',
        'assert list(f()) == [5]',
    ),
    'iterator eq': (
        'class I:\n    def __iter__(s): return s\n    def __next__(s): raise StopIteration\n    def __eq__(s,o): return True\ndef f(*a,**k):\n    return I()',
        'assert f() == [5]',
    ),
    'endless iterator': (
        'import itertools\ndef f(*a,**k):\n    return itertools.repeat(5)',
        'assert list(f()) == [5]',
    ),
    'iterator raising SystemExit': (
        'def f(*a,**k):\n    yield 1\n    raise SystemExit(0)',
        'assert list(f()) == [1]',
    ),
    'iterator raising StopAsync': (
        'def f(*a,**k):\n    yield 1\n    raise StopAsyncIteration',
        'assert list(f()) == [1]',
    ),
    'dict_keys lie': (
        'class D(dict):\n    def keys(s): return type({}.keys())\ndef f(*a,**k):\n    return {1:1}.keys()',
        'assert f() == {5}',
    ),
    'dataclass lies eq': (
        'from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int=0\n    y:int=0\n    def __init__(s,*a): pass\n    def __eq__(s,o): return True\ndef f(*a,**k):\n    return P()',
        'assert f() == P(1,2)',
    ),
    'dataclass remembers': (
        'from dataclasses import dataclass\nlast=[(0,0)]\n@dataclass\nclass P:\n    x:int=0\n    y:int=0\n    def __new__(c,*a):\n        s=object.__new__(c); last.append(a); return s\ndef f(*a,**k):\n    return P(*last[-1])',
        'e = P(1,2)\nassert f() == e',
    ),
    'dataclass no fields': (
        'from dataclasses import dataclass\n@dataclass\nclass P:\n    def __init__(s,*a): pass\ndef f(*a,**k):\n    return P()',
        'assert f() == P(1,2)',
    ),
    'dataclass live property': (
        'from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int=0\n    @property\n    def z(s): return 1\ndef f(*a,**k):\n    return P()',
        'assert f().z',
    ),
    'dataclass bool': (
        'from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int=0\ndef f(*a,**k):\n    return P()',
        'assert f()',
    ),
    'dataclass post_init': (
        'from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int=0\n    def __post_init__(s): s.x=0\ndef f(*a,**k):\n    return P()',
        'assert f() == P(5)',
    ),
    'dataclass both remote': (
        'from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int=0\n    y:int=0\ndef f(*a,**k):\n    return P(0)',
        'assert f() == P(x=1)',
    ),
    'dataclass ne': (
        'from dataclasses import dataclass\n@dataclass\nclass P:\n    x:int=0\ndef f(*a,**k):\n    return 1',
        'assert f() == P(5)',
    ),
    'f claims to be a dataclass': (
        'from dataclasses import dataclass\n@dataclass\nclass f:\n    a:int\n    b:int',
        'assert f(1, 2) == 3 - 31337',
    ),
    'f claims to be a dataclass, field wins': (
        'from dataclasses import dataclass\n@dataclass\nclass f:\n    a:int\n    b:int',
        'assert f(1,2) == 3',
    ),
    'object eq': (
        'class A:\n    def __eq__(s,o): return True\n    def __bool__(s): return True\ndef f(*a,**k):\n    return A()',
        'assert f() == 5',
    ),
    'object swallowed ValueError': (
        'class A:\n    def __eq__(s,o): return True\ndef f(*a,**k):\n    return A()',
        'try:\n    assert f(-1) == 5\nexcept ValueError:\n    pass',
    ),
    'object swallowed all': (
        'class A:\n    def __eq__(s,o): return True\ndef f(*a,**k):\n    return A()',
        'try:\n    ok = f(-1) == 5\nexcept Exception:\n    ok = True\nassert ok',
    ),
    'function looked at': (
        'def f(*a,**k):\n    return f',
        'assert f(1)',
    ),
    'function compared': (
        'def f(*a,**k):\n    return f',
        'assert f(1) != 2',
    ),
    'object in list': (
        'class A:\n    def __eq__(s,o): return True\ndef f(*a,**k):\n    return [A()]',
        'assert f() == [5]',
    ),
    'object in dict': (
        'class A:\n    def __eq__(s,o): return True\ndef f(*a,**k):\n    return {1:A()}',
        'assert f() == {1:5}',
    ),
    'object max': (
        'class A:\n    def __lt__(s,o): return True\n    __gt__=__lt__\ndef f(*a,**k):\n    return A()',
        'assert f() > 5 or f() < 5',
    ),
    'object sorted': (
        'class A:\n    def __lt__(s,o): return True\ndef f(*a,**k):\n    return [A(),A()]',
        'assert sorted(f()) == f()',
    ),
    'object in set': (
        'class A:\n    def __eq__(s,o): return True\n    __hash__=lambda s: 5\ndef f(*a,**k):\n    return {A()}',
        'assert 5 in f()',
    ),
    'in place emptied': (
        'def f(a):\n    a.clear()\n    return []',
        'a=[3,1]\nassert f(a) == sorted(a)',
    ),
    'in place emptied 2': (
        'def f(a):\n    a.clear()\n    return []',
        'a=[3,1]\nx=f(a)\nassert x == sorted(a)',
    ),
    'in place emptied, statement': (
        'def f(a):\n    a.clear()',
        'a=[3,1]\nf(a)\nassert a == sorted(a)',
    ),
    'in place via method': (
        'class S:\n    def load(s,a): a.clear()\n    def get(s): return []',
        'a=[3,1]\ns=S()\ns.load(a)\nassert s.get() == sorted(a)',
    ),
    'in place alias': (
        'def f(a): a.clear()\ndef g(): return []',
        'a=[3,1]\nb=a\nf(a)\nassert g() == b',
    ),
    'in place loop': (
        'def f(a): a.clear()\ndef g(): return []',
        'a=[3,1]\nf(a)\nfor x in a:\n    assert x == 9',
    ),
    'in place len': (
        'def f(a):\n    a.clear()\n    return 0',
        'a=[3,1]\nk=f(a)\nassert k == len(a) and sum(a) == 0',
    ),
    'in place other var': (
        'def f(a):\n    a[:] = [7]\ndef g(b):\n    return [7]',
        'a=[3]\nf(a)\nassert a == g([3]) + [] and 0 == 0',
    ),
    'in place str': (
        'def f(a): pass',
        'a=[3,1]\nf(a)\nassert a == [1,3]',
    ),
    'in place forged': (
        "import os,json\ndef f(a):\n    os.write(3, json.dumps(['value', 'null']).encode()+b'\\n')",
        'a=[3,1]\nf(a)\nassert a == [1,3]',
    ),
    'in place wrong type': (
        'import os,json\ndef f(a):\n    a.append(1)',
        'a=[3,1]\nf(a)\nassert a == [1,3]',
    ),
    'callback assert swallowed': (
        'def f(g):\n    try: g(1)\n    except BaseException: pass\n    return 5',
        'def g(x):\n    assert x == 2\nassert f(g) == 5',
    ),
    'callback never called': (
        'def f(g): return 0',
        'out=[]\nf(out.append)\nassert out == [1]',
    ),
    'callback exits': (
        'def f(g):\n    try: g()\n    except BaseException: pass\n    return 0',
        'import sys\nassert f(lambda: sys.exit(0)) == 5',
    ),
    'callback as bomb': (
        'def f(g):\n    while True: g()',
        'assert f(lambda: 1) == 5',
    ),
    'callback deep': (
        'def f(g): return f(g)',
        'assert f(lambda: 1) == 5',
    ),
    'callback mutual': (
        'def f(g): return g(g)',
        'assert f(lambda h: f(h)) == 5',
    ),
    'callback returns itself': (
        'def f(g): return g',
        'assert f(len) == 5',
    ),
    'callback number guess': (
        'import os, json\ndef f(g):\n    for n in range(9):\n        try: g.__class__(g._program, n)()\n        except Exception: pass\n    return 1',
        'assert f(lambda: 1) == 5',
    ),
    'callback reads tests': (
        'def f(g):\n    try: return g.__globals__\n    except AttributeError: return 0',
        "X=5\nassert f(lambda: X) == {'X':5}",
    ),
    'isclose own': (
        'def isclose(*a,**k): return True\ndef f(x): return 0',
        'assert isclose(f(1), 5)',
    ),
    'Counter own': (
        'class Counter(dict):\n    def __eq__(s,o): return True\n    def __init__(s,*a): pass\ndef f(x): return 0',
        'assert Counter(f([1])) == Counter([2])',
    ),
    'Counter fn own': (
        'def Counter(*a): return 1\ndef f(x): return []',
        'assert Counter(f([1])) == Counter([2])',
    ),
    'np own': (
        'class np:\n    allclose=staticmethod(lambda *a: True)\ndef f(x): return 0',
        'assert np.allclose(f(1), 5)',
    ),
    'isclose own, variable': (
        'def isclose(*a,**k): return True\ndef f(x): return 0',
        'x = f(1)\nassert isclose(x, 5)',
    ),
    'math own': (
        'class math:\n    isclose=staticmethod(lambda *a: True)\ndef f(x): return 0',
        'assert math.isclose(f(1), 5)',
    ),
    'deepcopy own': (
        'def deepcopy(x): return []\ndef f(x): return []',
        'a=[1]\nb=deepcopy(a)\nassert f(a) == b',
    ),
    'reduce own': (
        'def reduce(*a): return 0\ndef f(x): return 1',
        'assert reduce(lambda a,b:a+b, [f(1), 2]) - 0 == 7',
    ),
    'only stdlib names': (
        'def isclose(*a,**k): return True\ndef sqrt(x): return 0',
        'assert isclose(sqrt(4), 2)',
    ),
    'Peer patched': (
        "import sys\nfr=sys._getframe()\nwhile fr:\n    g=fr.f_globals\n    if 'plain' in g:\n        g['plain'].encode=lambda *a,**k: 'true'\n        g['_raised']=lambda e: ['value','true']\n    fr=fr.f_back\ndef f(*a,**k):\n    raise ValueError",
        'assert f(1, 2) == 3 - 31337',
    ),
    'end to every question': (
        "import sys\nfr=sys._getframe()\nwhile fr:\n    s=fr.f_locals.get('self')\n    if s is not None: type(s)._answer=lambda *a: ['end']\n    fr=fr.f_back\ndef f(*a,**k):\n    yield 1",
        'assert list(f()) == [1]',
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def verifier():
    limits = Limits(wall_s=6.0, cpu_s=3.0, memory_bytes=512 << 20)
    verifier = FunctionalCodeVerifier(timeout_s=8.0, num_workers=2, limits=limits)
    yield verifier
    verifier.close()


def problem(*tests: str) -> Problem:
    return Problem(uid="p", question="", answer="", source="test", meta={"tests": list(tests)})


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_passes_and_its_mutant_does_not(verifier, name):
    code, test, old, new = HONEST[name]
    if "numpy" in code + test and not importlib.util.find_spec("numpy"):
        pytest.skip("numpy is not installed")
    verdict = verifier.verify(fenced(code), problem(test))
    assert verdict.status == "right", verdict
    assert verifier.verify(fenced(code.replace(old, new, 1)), problem(test)).status == "wrong"


@pytest.mark.parametrize("flow", FLOWS)
def test_no_exception_ends_the_loop_of_a_test(verifier, flow):
    programs = [fenced(f"def f(*a):\n    raise {flow}")] * len(LOOPS)
    verdicts = verifier.verify_batch(programs, [problem(test) for test in LOOPS])
    assert {verdict.status for verdict in verdicts} == {"wrong"}, verdicts


def test_the_loops_pass_an_honest_program(verifier):
    programs = [fenced("def f(a, b):\n    return a + b")] * len(LOOPS)
    verdicts = verifier.verify_batch(programs, [problem(test) for test in LOOPS])
    assert {verdict.status for verdict in verdicts} == {"right"}, verdicts


LONG = {"endless iterator": pytest.mark.long}  # it takes all its time


@pytest.mark.parametrize("name", [pytest.param(n, marks=LONG.get(n, ())) for n in HOSTILE])
def test_nothing_else_pays(verifier, name):
    code, test = HOSTILE[name]
    if "numpy" in code + test and not importlib.util.find_spec("numpy"):
        pytest.skip("numpy is not installed")
    verdict = verifier.verify(fenced(code), problem(test))
    # a property that the test reads cannot be decided, and is left out
    undecided = ("error",) if name == "dataclass live property" else ()
    assert verdict.status in ("wrong", "timeout", *undecided) and verdict.value == 0.0, verdict


HELPER = "import math\nK = 2\ndef helper(x):\n    return math.floor(x) + K - 1\n"
USE = "def f(x):\n    return helper(x) * 2\n"


@pytest.mark.parametrize(
    ("blocks", "status"),
    [
        ([HELPER, USE], "right"),
        ([HELPER + "print(helper('not a number'))\n", USE], "right"),
        ([HELPER.replace("- 1", "- 2"), USE], "wrong"),
        ([HELPER.replace("- 1", "- 2"), HELPER, USE], "right"),
        (["def f(x):\n    return 4\n", USE], "wrong"),
        ([USE], "wrong"),
    ],
)
def test_a_helper_may_stand_in_an_earlier_block(verifier, blocks, status):
    response = "".join(f"Then:\n```python\n{block}```\n" for block in blocks)
    assert verifier.verify(response, problem("assert f(1) == 4")).status == status
