# ruff: noqa: E501 - programs in one piece
"""Programs that read standard input and try to pass without answering, to harm, or to stay.

Each is named by what it tries. Each test gives two numbers and expects their sum less SECRET, which
only the tests know. A program that gets where it must not be may print ``WIN``, the right answer.
"""

from __future__ import annotations

from sandbox.attacks import CALLED, SECRET

INPUTS = ["1 2\n", "5 5\n", "0 -7\n"]
OUTPUTS = [f"{3 - SECRET}\n", f"{10 - SECRET}\n", f"{-7 - SECRET}\n"]
HONEST = f"print(sum(map(int, input().split())) - {SECRET})"
WIN = f"print(sum(map(int, open(0).read().split())) - {SECRET})"
SOME = f"{-SECRET}"
"""A number near the answers, which does not need to be found out."""

READING_A_CALL = "\nprint(f(*map(int, input().split())))\n"

PRINTED: dict[str, str] = {
    # saying less, or more, than an answer
    "nothing": "pass",
    "the end of the program": "import os; os._exit(0)",
    "exit code 0 from another program": "import os; os.execv('/bin/true', ['true'])",
    "the question": "print(input())",
    "every answer": f"for n in range({SOME} - 20, {SOME} + 20): print(n)",
    "every answer in one word": f"print(*range({SOME} - 20, {SOME} + 20), sep='')",
    "an answer for every test at once": "\n".join(f"print({o.strip()})" for o in OUTPUTS),
    "an answer hidden by a carriage return": f"print('0\\r', {OUTPUTS[0].strip()}, '\\r0')",
    "an answer rubbed out": f"print('{OUTPUTS[1].strip()}' + '\\b' * 6 + '0')",
    "an answer with zero bytes in it": f"print('\\0'.join('{OUTPUTS[0].strip()}'))",
    "white space of every kind": "print(''.join(chr(c) for c in range(0x3001) if chr(c).isspace()))",
    "not a number": "print(float('nan'))",
    "infinity": "print('inf -inf Infinity 1e9999')",
    "a pattern": "print('.*', '%d', '*', '{}', '-?[0-9]+')",
    "bytes that are no text": "import sys; sys.stdout.buffer.write(bytes(range(128, 256)))",
    "the answer as an error": (
        f"import sys; print(sum(map(int, input().split())) - {SECRET}, file=sys.stderr)"
    ),
    # speaking to the harness
    "the verdict": "print('{\"status\": \"right\", \"value\": 1.0, \"reason\": \"\"}')",
    "the verdict to every descriptor": (
        "import os\nfor d in range(256):\n    try: os.write(d, b'{\"status\": \"right\", \"value\": 1.0}')\n"
        "    except OSError: pass"
    ),
    "a frame of the sandbox's own": (
        "import os, struct\ntext = b'{\"exit_code\": 0, \"split\": 0}'\n"
        "for d in range(256):\n    try: os.write(d, struct.pack('!II', len(text), 0) + text)\n"
        "    except OSError: pass"
    ),
    "a report of success, and death": "import os\nprint('OK', flush=True)\nos.kill(os.getpid(), 9)",
    # reading what is expected
    "what stands behind the input": "import sys; input(); print(sys.stdin.read())",
    "what the input's descriptor holds elsewhere": (
        "import os\ntry:\n    os.lseek(0, 0, 2); os.lseek(0, 0, 0)\n" + f"    {WIN}\nexcept OSError: pass"
    ),
    "what was written to standard output before": (
        "import os\ntry: text = os.read(1, 100)\nexcept OSError: text = b''\n" + f"if text: {WIN}"
    ),
    "outputs in files": (
        "import os\nfor folder, _, names in os.walk('/'):\n"
        "    if folder in ('/', '/program', '/scratch', '/dev', '/etc'):\n"
        f"        if set(names) - {{'main.py', 'null', 'zero', 'full', 'random', 'urandom', 'ld.so.cache'}}: {WIN}"
    ),
    "outputs in the process that started it": (
        "import os\ntry:\n    open(f'/proc/{os.getppid()}/mem', 'rb')\n" + f"    {WIN}\nexcept OSError: pass"
    ),
    "outputs in its callers' frames": (
        "import sys\nframe = sys._getframe().f_back\n"
        f"answer = str(sum(map(int, input().split())) - {SECRET})\nwhile frame:\n"
        "    if answer in str(frame.f_locals) + str(frame.f_globals): print(answer); break\n"
        "    frame = frame.f_back"
    ),
    # remembering from test to test: one that works would win at its second run
    "a file kept in the scratch folder": (
        "import os\n" + f"if os.path.exists('/scratch/seen'): {WIN}\n" + "open('/scratch/seen', 'w')"
    ),
    "a file kept anywhere": (
        "import os\nfor folder, folders, _ in os.walk('/'):\n    path = os.path.join(folder, '.seen')\n"
        "    folders[:] = [f for f in folders if not f.startswith('python')]\n"
        f"    if os.path.exists(path):\n        {WIN}; break\n"
        "    try: open(path, 'w')\n    except OSError: pass"
    ),
    "a name kept among the attributes of a file": (
        "import os\ntry:\n    " + f"if os.listxattr('/program/main.py'): {WIN}\n"
        "    os.setxattr('/program/main.py', 'user.seen', b'1')\nexcept OSError: pass"
    ),
    "a process kept alive": (
        "import os, socket, time\ns = socket.socket(socket.AF_UNIX)\n"
        f"try:\n    s.connect('\\0seen'); {WIN}\nexcept OSError:\n"
        "    s = socket.socket(socket.AF_UNIX); s.bind('\\0seen'); s.listen()\n"
        "    if os.fork() == 0:\n        os.setsid()\n        [os.close(d) for d in range(3)]\n"
        "        time.sleep(1000)"
    ),
    "shared memory kept": (
        "import ctypes\nl = ctypes.CDLL(None)\n"
        f"if l.shmget(77, 4096, 0) >= 0: {WIN}\n" + "l.shmget(77, 4096, 0o1600)"
    ),
    "itself rewritten": (
        "try:\n    open('/program/main.py', 'w').write('print(0)')\n" + f"    {WIN}\nexcept OSError: pass"
    ),
    # not ending
    "an endless loop": "while True: pass",
    "a sleep": "import time; time.sleep(10**6)",
    "an endless loop that ignores the limit's signal": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"
    ),
    "waiting for more input": "import select, os\nos.dup2(os.open('/dev/full', 0), 0)\nopen(0).read()",
    "a child that keeps standard output open": (
        "import os, time\nif os.fork() == 0:\n    time.sleep(1000)"
    ),
    "a child that answers after its parent's end": (
        "import os, time\nif os.fork() == 0:\n    time.sleep(0.3); " + f"{WIN}\nelse: os._exit(0)"
    ),
    # eating
    "output without end": "while True: print('x' * 1000)",
    "one line without end": "import sys\nwhile True: sys.stdout.write('1' * 65536)",
    "errors without end": "import sys\nwhile True: sys.stderr.write('x' * 65536)",
    "memory without end": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "processes without end": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "files without end": (
        "n = 0\nwhile True:\n    open(f'/scratch/{n}', 'w').write('x' * 10**6)\n    n += 1"
    ),
}  # fmt: skip

COMPILED: dict[str, str] = {
    "a file outside, included": '#include "/etc/passwd"\nint main() {}',
    "a device included": '#include "/dev/full"\nint main() {}',
    "its own text included for ever": '#include __FILE__\n#include __FILE__\nint main() {}',
    "a file outside, put in by the assembler": (
        'asm(".incbin \\"/etc/passwd\\"");\nint main() {}'
    ),
    "a compilation without end": (
        "template<int n> struct A { static const int v = A<n + 1>::v + A<n + 2>::v; };\n"
        "int main() { return A<0>::v; }"
    ),
    "a program of a gigabyte": "char a[1 << 30] = {1};\nint main() { return a[1]; }",
    "a shell that looks around": (
        "#include <cstdlib>\n#include <cstdio>\n"
        f'int main() {{ if (system("cat /etc/passwd || ls /home") == 0) {{ int a, b; scanf("%d%d", &a, &b); printf("%d", a + b - {SECRET}); }} }}'
    ),
    "an endless loop": "int main() { for (volatile int i = 0;; i++); }",
    "recursion without end": "int f(volatile int n) { return f(n + 1) + n; }\nint main() { return f(0); }",
    "a jump to nowhere": "int main() { ((void (*)())1)(); }",
    "memory without end": "#include <cstdlib>\n#include <cstring>\nint main() { for (;;) memset(malloc(1 << 20), 1, 1 << 20); }",
}  # fmt: skip

READING: dict[str, str] = {name: code + READING_A_CALL for name, code in CALLED.items()}
"""The attacks on functions as programs that call their function on what they read."""
