"""Programs that try to hold more memory than their limit where nothing counts it.

Each is named by where it puts it, most in several processes, ``HELD`` bytes in each. One that holds
what it wants goes through to its end; to be refused or killed on the way is to be caught.
"""

from __future__ import annotations

LIMIT = 320 << 20
HELD = 240 << 20

_IN_PROCESSES = """
import os, time
def spread(num, work):
    children = []
    for _ in range(num):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                work()
                time.sleep(9)
            finally:
                os._exit(1)
    time.sleep(1.5)
    if any(os.waitpid(child, os.WNOHANG)[0] for child in children): raise OSError('refused')
"""
_FILL = """
import fcntl, os, socket, time
kept = []
def fill(s):
    s.setblocking(False)
    try:
        while True: s.send(bytes(1 << 15))
    except BlockingIOError: pass
    kept.append(s)
"""
_MMAP = (
    _IN_PROCESSES
    + """
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
kept = []
"""
)

HOARDERS: dict[str, str] = {
    "shared pages that it gives back": _MMAP + f"""
def work():
    kept.append(mmap.mmap(-1, {HELD}))
    for _ in range({HELD >> 22}):
        kept[-1].write(b'x' * (1 << 22))
        kept[-1].madvise(mmap.MADV_DONTNEED)
spread(4, work)
""",
    "shared pages of which one stays mapped": _MMAP + f"""
for _ in range({HELD >> 22}):
    kept.append(mmap.mmap(-1, 1 << 24))
    kept[-1].write(b'x' * (1 << 24))
    address = ctypes.addressof(ctypes.c_char.from_buffer(kept[-1]))
    libc.munmap(ctypes.c_void_p(address + 4096), ctypes.c_size_t((1 << 24) - 4096))
""",
    "shared pages of a device of zeros": _MMAP + f"""
def work():
    kept.append(mmap.mmap(os.open('/dev/zero', os.O_RDWR), {HELD}))
    for _ in range({HELD >> 22}):
        kept[-1].write(b'x' * (1 << 22))
        kept[-1].madvise(mmap.MADV_DONTNEED)
spread(4, work)
""",
    "a file without a name": f"""
import os
file = os.memfd_create('a')
for _ in range({HELD >> 22}): os.write(file, b'x' * (1 << 24))
""",
    "pages given to pipes": _MMAP + f"""
class Part(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]
for _ in range({HELD >> 25}):
    pages = mmap.mmap(-1, 1 << 26, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    pages.write(b'x' * (1 << 26))
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages)) + (1 << 21) & -(1 << 21)
    kept.append(os.pipe())
    for n in range(16):
        part = Part(start + (n << 21), 4096)
        if libc.vmsplice(kept[-1][1], ctypes.byref(part), 1, 0) < 0: raise OSError
    pages.madvise(mmap.MADV_DONTNEED)
""",
    "pipes made larger": _FILL + """
for _ in range(25):
    read, write = os.pipe()
    fcntl.fcntl(write, 1031, 1 << 20)
    kept.append(read)
    os.write(write, bytes(1 << 20))
""",
    "buffers of sockets made larger": _FILL + """
for _ in range(30):
    for s in socket.socketpair():
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        fill(s)
""",
    "buffers of many sockets": _FILL + _IN_PROCESSES + """
spread(14, lambda: [fill(s) for _ in range(28) for s in socket.socketpair()])
""",
    "connections that nobody accepts": _FILL + _IN_PROCESSES + """
def work():
    server = socket.socket(socket.AF_UNIX)
    server.bind('')
    server.listen(60)
    for _ in range(58):
        s = socket.socket(socket.AF_UNIX)
        s.connect(server.getsockname())
        fill(s)
    kept.append(server)
spread(15, work)
""",
    "processes": _IN_PROCESSES + """
kept = []
spread(12, lambda: kept.append(bytearray(b'x') * (60 << 20)))
""",
    "processes whose first thread has ended": _IN_PROCESSES + """
import ctypes, threading
def hold():
    time.sleep(0.3)
    kept = bytearray(b'x') * (60 << 20)
    time.sleep(9)
def work():
    threading.Thread(target=hold).start()
    ctypes.CDLL(None).syscall(60 if os.uname().machine == 'x86_64' else 93, 0)
spread(7, work)
""",
    "rules that no process is charged for": """
import ctypes
call = ctypes.CDLL(None).syscall
handled = ctypes.c_uint64(1)
if call(444, ctypes.byref(handled), 8, 0) < 0 or call(294, 0) < 0: raise OSError
""",
}  # fmt: skip

HOARDERS = {
    name: code + "\nimport time\ntime.sleep(1)\nprint('END')" for name, code in HOARDERS.items()
}

HONEST: dict[str, str] = {
    "an event loop": "import asyncio\nasync def f(): print('END')\nasyncio.run(f())",
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor as T\nlist(T(8).map(abs, range(9)))\n"
        "print('END')"
    ),
    "pages of its own": (
        "import mmap\nmmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "print('END')"
    ),
    "pipes and sockets": "import os, socket\nos.pipe(), socket.socketpair()\nprint('END')",
    "memory within its limit": "x = bytearray(b'x') * (90 << 20)\nprint('END')",
    "memory given back": "for _ in range(9): x = bytearray(b'x') * (60 << 20); del x\nprint('END')",
    "its own limits": (
        "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))\n"
        "print('END')"
    ),
}
