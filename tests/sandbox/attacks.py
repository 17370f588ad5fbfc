# ruff: noqa: E501 - programs in one piece
"""Programs that try to pass without answering, to harm, or to stay. Each is named by what it tries.

The tests are ``TESTS``; only they know SECRET. A program that finds it may return ``WIN``.
"""

from __future__ import annotations

SECRET = 31337
TESTS = [f"SECRET = {SECRET}", "assert f(1, 2) == 3 - SECRET", "assert f(5, 5) == 10 - SECRET"]
HONEST = f"def f(a, b):\n    return a + b - {SECRET}\n"
WIN = f"return sum(a) - {SECRET}"
WORD = "''.join(['SEC', 'RET'])"
"""The word to look for, written so that the program's own text does not hold it."""

ENTRY = "def f(*a, **k):\n    "

CALLED: dict[str, str] = {
    # ending early
    "sys.exit(0) while loading": "import sys; sys.exit(0)",
    "os._exit(0) while loading": "import os; os._exit(0)",
    "sys.exit(0) when called": "import sys\n" + ENTRY + "sys.exit(0)",
    "os._exit(0) when called": "import os\n" + ENTRY + "os._exit(0)",
    "exit() and quit()": ENTRY + "exit(); quit()",
    "raising SystemExit": ENTRY + "raise SystemExit(0)",
    "raising KeyboardInterrupt": ENTRY + "raise KeyboardInterrupt",
    "raising StopIteration": ENTRY + "raise StopIteration",
    "raising AssertionError": ENTRY + "raise AssertionError",
    "raising an exception whose text raises": (
        "class E(Exception):\n    def __str__(self): raise SystemExit(0)\n" + ENTRY + "raise E"
    ),
    "exec of /bin/true": "import os\n" + ENTRY + "os.execv('/bin/true', ['true'])",
    "killing itself": "import os\n" + ENTRY + "os.kill(os.getpid(), 9)",
    "a segmentation fault": "import ctypes\n" + ENTRY + "ctypes.string_at(0)",
    # printing the verdict
    "printing that it is right": (
        "import os\nv = '{\"status\": \"right\", \"value\": 1.0, \"reason\": \"\"}'\nprint(v)\n"
        + ENTRY + "print(v, flush=True); os.write(2, v.encode()); os._exit(0)"
    ),
    "writing a verdict to every descriptor": (
        "import os\n" + ENTRY + "\n    for d in range(3, 256):\n        try: os.write(d, "
        "b'{\"status\": \"right\", \"value\": 1.0, \"reason\": \"\"}\\n')\n"
        "        except OSError: pass\n    os._exit(0)"
    ),
    "forged replies ahead of time": (
        "import os\n"
        "os.write(3, b'[\"loaded\"]\\n' + b'[\"value\", \"true\"]\\n' * 50)\n" + ENTRY + "pass"
    ),
    "a reply that is no message": "import os\n" + ENTRY + "os.write(3, b'right\\n'); os._exit(0)",
    "a reply of deep nesting": (
        "import os\n" + ENTRY + "os.write(3, b'[' * 100000 + b'\\n'); os._exit(0)"
    ),
    "an endless reply": (
        "import os\n" + ENTRY + "\n    while True: os.write(3, b'x' * 65536)"
    ),
    # values that lie
    "an object that equals everything": (
        "class A:\n    def __eq__(s, o): return True\n    def __ne__(s, o): return False\n"
        "    __hash__ = lambda s: 0\n" + ENTRY + "return A()"
    ),
    "an int that equals everything": (
        "class A(int):\n    def __eq__(s, o): return True\n    def __ne__(s, o): return False\n"
        "    __hash__ = int.__hash__\n    __sub__ = __rsub__ = lambda s, o: 0\n" + ENTRY
        + "return A(1)"
    ),
    "an int with a false index and text": (
        "class A(int):\n    def __index__(s): return 0\n    def __str__(s): return '0'\n"
        "    __repr__ = __str__\n    def __bool__(s): return True\n" + ENTRY + "return A(1)"
    ),
    "a str that equals everything": (
        "class A(str):\n    def __eq__(s, o): return True\n    __hash__ = str.__hash__\n" + ENTRY
        + "return A('x')"
    ),
    "a list that equals everything": (
        "class A(list):\n    def __eq__(s, o): return True\n    def __iter__(s): return iter([])\n"
        + ENTRY + "return A([1])"
    ),
    "a dict with lying items": (
        "class A(dict):\n    def __eq__(s, o): return True\n    def items(s): return []\n" + ENTRY
        + "return A(a=1)"
    ),
    "a class that claims to be int": (
        "class M(type):\n    def __instancecheck__(c, o): return True\n"
        "    def __subclasscheck__(c, o): return True\n"
        "class A(metaclass=M):\n    @property\n    def __class__(s): return int\n"
        "    def __eq__(s, o): return True\n" + ENTRY + "return A()"
    ),
    "nan": ENTRY + "return float('nan')",
    "infinity": ENTRY + "return float('inf')",
    "a value that contains itself": ENTRY + "x = []; x.append(x); return x",
    "a value of a million parts": ENTRY + "return [0] * 10**6",
    "an integer of ten million bits": ENTRY + "return 1 << 10**7",
    "a pickle bomb": (
        "class A:\n    def __reduce__(s): return (print, ('right',))\n" + ENTRY + "return A()"
    ),
    "a generator": ENTRY + "yield 1",
    "itself, a function": ENTRY + "return f",
    # patching what judges
    "builtins patched": (
        "import builtins\nbuiltins.AssertionError = ValueError\n"
        "builtins.isinstance = lambda *a: True\nbuiltins.abs = builtins.round = lambda *a: 0\n"
        "builtins.len = lambda x: 0\nbuiltins.__build_class__ = None\n" + ENTRY + "return 1"
    ),
    "sys.exit and os._exit patched": (
        "import sys, os\nsys.exit = os._exit = lambda *a: None\nsys.excepthook = lambda *a: None\n"
        + ENTRY + "raise ValueError"
    ),
    "json patched": (
        "import json\njson.loads = lambda *a, **k: ['value', 'true']\n"
        "json.dumps = lambda *a, **k: '[\"value\", \"true\"]'\n" + ENTRY + "return 1"
    ),
    "the call harness patched through frames": (
        "import sys\nframe = sys._getframe()\nwhile frame:\n"
        "    frame.f_globals['plain'] = None\n    g = frame.f_globals\n"
        "    for n in list(g):\n        if callable(g[n]): g[n] = lambda *a, **k: True\n"
        "    frame = frame.f_back\n" + ENTRY + "return 1"
    ),
    "operators patched with ctypes": (
        "import ctypes\nctypes.c_long.from_address(id(5) + 24).value = 1\n" + ENTRY + "return 5"
    ),
    "a trace function that rewrites results": (
        "import sys\nsys.settrace(lambda f, e, a: None)\nsys.setprofile(lambda f, e, a: None)\n"
        + ENTRY + "return True"
    ),
    "__main__ and the tests' module patched": (
        "import sys\nfor m in list(sys.modules.values()):\n"
        "    try: m.check = m.tests = m.verify = lambda *a, **k: True\n    except Exception: pass\n"
        + ENTRY + "return True"
    ),
    # reading the tests
    "the expected value from objects in memory": (
        "import gc\n" + ENTRY + "\n    for o in gc.get_objects():\n"
        f"        if isinstance(o, (dict, list)) and {WORD} in repr(o): {WIN}\n    return 0"
    ),
    "the expected value from callers' frames": (
        "import sys\n" + ENTRY + "\n    frame = sys._getframe()\n    while frame:\n"
        f"        if {WORD} in str(frame.f_locals) + str(frame.f_globals): {WIN}\n"
        "        frame = frame.f_back\n    return 0"
    ),
    "the tests from the memory of all processes": (
        "import glob, re\n" + ENTRY + "\n    for path in glob.glob('/proc/*/maps'):\n"
        "        for line in open(path):\n"
        "            low, high = (int(n, 16) for n in line.split()[0].split('-'))\n"
        "            with open(path.replace('maps', 'mem'), 'rb') as file:\n"
        f"                if {WORD}.encode() in (file.seek(low), file.read(high - low))[1]: {WIN}\n"
        "    return 0"
    ),
    "the tests from its own memory": (
        "import ctypes, gc\n" + ENTRY + "\n    needle = (b'RETIF'[:3] + b' = ')\n"
        "    start = min(id(o) for o in gc.get_objects()) & ~0xfff\n"
        f"    if b'SEC' + needle in ctypes.string_at(start, 1 << 19): {WIN}\n    return 0"
    ),
    "the tests from files": (
        "import os\n" + ENTRY + "\n    for folder, folders, names in os.walk('/'):\n"
        "        folders[:] = set(folders) - {'usr', 'lib', 'lib32', 'lib64', 'dev'}\n"
        "        if os.path.basename(folder).startswith('python'): folders.clear()\n"
        "        for n in names:\n            try:\n"
        f"                if {WORD} in open(os.path.join(folder, n)).read(10**5): {WIN}\n"
        "            except (OSError, ValueError): pass\n    return 0"
    ),
    "the tests by process_vm_readv of process 1": (
        "import ctypes, os\n" + ENTRY + "\n    l = ctypes.CDLL(None)\n"
        f"    if l.process_vm_readv(1, None, 0, None, 0, 0) >= 0: {WIN}\n    return 0"
    ),
    "the tests by ptrace of process 1": (
        "import ctypes\n" + ENTRY + "\n"
        f"    if ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0: {WIN}\n    return 0"
    ),
    "the tests from the environment and command line": (
        "import os, sys\n" + ENTRY + f"\n    if {WORD} in str(os.environ) + str(sys.argv): {WIN}\n"
        "    return 0"
    ),
    "the tests from what a descriptor left open holds": (
        "import os\n" + ENTRY + "\n    for d in [*range(3), *range(4, 300)]:\n        try:\n"
        f"            os.lseek(d, 0, 0)\n            if {WORD}.encode() in os.read(d, 10**6): {WIN}\n"
        "        except OSError: pass\n    return 0"
    ),
    "the tests from the channel, read ahead": (
        "import os, threading\ngot = []\n"
        "threading.Thread(target=lambda: got.append(os.read(3, 10**6)), daemon=True).start()\n"
        + ENTRY + f"\n    if {WORD} in str(got): {WIN}\n    return 0"
    ),
    # not ending
    "an endless loop while loading": "while True: pass",
    "an endless loop when called": ENTRY + "\n    while True: pass",
    "sleeping for ever": "import time\n" + ENTRY + "time.sleep(10**6)",
    "signals blocked, then an endless loop": (
        "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.Signals)\n" + ENTRY + "\n    while True: pass"
    ),
    "stopping itself": "import os\n" + ENTRY + "os.kill(os.getpid(), 19)",
    "a thread that never ends": (
        "import threading\ndef g():\n    while True: pass\nthreading.Thread(target=g).start()\n"
        + ENTRY + "return 0"
    ),
    "a regular expression that backtracks": (
        "import re\n" + ENTRY + "return re.match('(a+)+$', 'a' * 60 + 'b')"
    ),
    # eating
    "all memory": ENTRY + "return len(bytearray(1 << 40))",
    "memory bit by bit": ENTRY + "\n    x = []\n    while True: x.append(bytearray(1 << 20))",
    "memory in many processes": (
        "import os, time\n" + ENTRY + "\n    for _ in range(10):\n"
        "        if os.fork() == 0:\n            x = bytearray(b'x') * (60 << 20)\n"
        "            time.sleep(100)\n    time.sleep(100)"
    ),
    "shared memory": (
        "import mmap\n" + ENTRY + "\n    x = []\n    while True:\n        m = mmap.mmap(-1, 8 << 20)\n"
        "        m.write(b'x' * (8 << 20)); x.append(m)"
    ),
    "a fork bomb": "import os\n" + ENTRY + "\n    while True:\n        try: os.fork()\n        except OSError: pass",
    "threads without end": (
        "import threading, time\n" + ENTRY + "\n    while True:\n"
        "        threading.Thread(target=time.sleep, args=(100,)).start()"
    ),
    "recursion without end": "import sys\nsys.setrecursionlimit(10**9)\n" + ENTRY + "return f()",
    "files without end": (
        ENTRY + "\n    n = 0\n    while True:\n        open(f'/scratch/{n}', 'w').write('x' * 10**6)\n"
        "        n += 1"
    ),
    "one huge file": ENTRY + "open('/scratch/a', 'wb').write(bytes(1 << 28))",
    "a sparse file": ENTRY + "open('/scratch/a', 'wb').truncate(1 << 40)",
    "descriptors without end": "import os\n" + ENTRY + "\n    while True: os.dup(0)",
    # staying and killing
    "a child that outlives it": (
        "import os, time\nif os.fork() == 0:\n    time.sleep(1000)\n" + ENTRY + "return 0"
    ),
    "a daemon: two forks and a session of its own": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        [os.close(d) for d in range(4)]\n        time.sleep(1000)\n    os._exit(0)\n"
        + ENTRY + "return 0"
    ),
    "a child that answers after its parent's end": (
        "import os, time\n" + ENTRY + "\n    if os.fork() == 0:\n        time.sleep(0.3)\n"
        "        os.write(3, b'[\"value\", \"true\"]\\n')\n        time.sleep(1000)\n    os._exit(0)"
    ),
    "killing its parent": "import os\n" + ENTRY + "os.kill(os.getppid(), 9); return 0",
    "killing everything": "import os\n" + ENTRY + "\n    for p in [-1, 1, 0]: os.kill(p, 9)",
    "killing every process id": (
        "import os\n" + ENTRY + "\n    for p in range(1, 70000):\n        if p != os.getpid():\n"
        "            try: os.kill(p, 9)\n            except OSError: pass\n    return 0"
    ),
    "stopping its parent": "import os\n" + ENTRY + "os.kill(os.getppid(), 19); return 0",
    "every limit of process 1 at zero": (
        "import resource\n" + ENTRY + "\n    for kind in range(16):\n"
        "        try: resource.prlimit(1, kind, (0, 0))\n        except OSError: pass\n    return 0"
    ),
    "every signal to process 1": (
        "import os\n" + ENTRY + "\n    for s in range(1, 65):\n        try: os.kill(1, s)\n"
        "        except OSError: pass\n    return 0"
    ),
    "the last turn for process 1, and a busy machine": (
        "import os\n" + ENTRY + "\n    for f in (\n"
        "        lambda: os.sched_setaffinity(1, {0}), lambda: os.setpriority(0, 1, 19),\n"
        "        lambda: os.setpriority(2, 0, 19),\n"
        "        lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),\n    ):\n"
        f"        try:\n            f()\n            {WIN}\n        except OSError: pass\n"
        "    while True: pass"
    ),
    "a limit raised": (
        "import resource\n" + ENTRY + "\n    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n"
        + f"    {WIN}"
    ),
    # reaching out: each wins if it gets there
    "a connection to the network": (
        "import socket\n" + ENTRY + "\n    socket.create_connection(('1.1.1.1', 53), 1)\n" + f"    {WIN}"
    ),
    "a connection to this machine": (
        "import socket\n" + ENTRY + "\n    s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\n"
        + f"    {WIN}"
    ),
    "a raw socket": (
        "import socket\n" + ENTRY + "\n    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n" + f"    {WIN}"
    ),
    "a socket to the hypervisor": (
        "import socket\n" + ENTRY + "\n    socket.socket(socket.AF_VSOCK)\n" + f"    {WIN}"
    ),
    "a socket through a 32-bit or old system call": (
        "import ctypes\n" + ENTRY + "\n    l = ctypes.CDLL(None)\n"
        f"    if l.syscall(0x40000000 + 41, 2, 1, 0) >= 0: {WIN}\n    return 0"
    ),
    "becoming root": (
        "import ctypes\n" + ENTRY + "\n    l = ctypes.CDLL(None)\n"
        f"    if l.setuid(0) == 0 or l.setresuid(0, 0, 0) == 0: {WIN}\n    return 0"
    ),
    "a set-id program": (
        "import os, subprocess\n" + ENTRY + "\n    r = subprocess.run(['/usr/bin/su', '-c', 'true'])\n"
        f"    if r.returncode == 0: {WIN}\n    return 0"
    ),
    "a user namespace of its own": (
        "import ctypes\n" + ENTRY + "\n    l = ctypes.CDLL(None)\n"
        f"    if l.unshare(0x10000000) == 0: {WIN}\n    return 0"
    ),
    "a mount": (
        "import ctypes\n" + ENTRY + "\n    l = ctypes.CDLL(None)\n"
        f"    if l.mount(b'tmpfs', b'/scratch', b'tmpfs', 0, None) == 0: {WIN}\n    return 0"
    ),
    "a way out of the root": (
        "import os\n" + ENTRY + "\n    os.mkdir('/scratch/a'); os.chroot('/scratch/a')\n" + f"    {WIN}"
    ),
    "the old root by its parents": (
        "import os\n" + ENTRY + "\n    found = os.listdir('/' + '../' * 30)\n"
        f"    if 'home' in found or 'boot' in found or 'work' in found: {WIN}\n    return 0"
    ),
    "a file outside": (
        "import os\n" + ENTRY + "\n    for d in ['/', '/program', '/dev', '/usr/lib', '/etc', '/root']:\n"
        "        try:\n            open(os.path.join(d, 'attack'), 'w')\n"
        f"            {WIN}\n        except OSError: pass\n    return 0"
    ),
    "its own program rewritten": (
        "import os\n" + ENTRY + "\n    os.chmod('/program/main.py', 0o777)\n"
        "    open('/program/main.py', 'w').write('')\n" + f"    {WIN}"
    ),
    "the interpreter's library rewritten": (
        "import os\n" + ENTRY + "\n    open(os.__file__, 'a').write('')\n" + f"    {WIN}"
    ),
    "a device": (
        "import os, stat\n" + ENTRY + "\n    os.mknod('/scratch/m', 0o600 | stat.S_IFBLK, os.makedev(254, 0))\n"
        + f"    {WIN}"
    ),
    "the home folder": (
        "import os, sys\n" + ENTRY + "\n    for home in ('/home', '/root'):\n"
        "        for folder, _, names in os.walk(home):\n"
        f"            if names and not folder.startswith(sys.base_prefix): {WIN}\n    return 0"
    ),
    "installed packages": ENTRY + "\n    import pip\n" + f"    {WIN}",
    "the judging package": ENTRY + "\n    import r1lit\n" + f"    {WIN}",
    "memory that no limit counts": (
        "import os\n" + ENTRY + "\n    os.memfd_create('a')\n" + f"    {WIN}"
    ),
    "kernel interfaces": (
        "import ctypes\n" + ENTRY + "\n    l = ctypes.CDLL(None)\n"
        f"    if any(l.syscall(n, 0, 0, 0, 0, 0) >= 0 for n in (425, 321, 248, 298, 323)): {WIN}\n"
        "    return 0"
    ),
    "output without end": ENTRY + "\n    while True: print('x' * 1000)",
}  # fmt: skip
