"""A headless Chromium, Qt's, in a process of its own: ``python browser.py PAGE STEPS.json``.

Steps are done in order: ``{"do": js}`` runs it, ``{"wait": js}`` until it is true, ``{"get": js}``
keeps its value, ``{"size": [420, 900]}`` resizes the window, ``{"shot": path}`` keeps a picture.
Printed is JSON: ``got``, what the page wrote to its console, what it asked the network for, and
``seconds`` of each step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ["QT_QPA_PLATFORM"] = "offscreen"
os.environ["QTWEBENGINE_CHROMIUM_FLAGS"] = "--no-sandbox --disable-gpu"  # root, as in containers

LIMIT_S = 90.0


def main(path: str, steps: list[dict]) -> dict:
    from PySide6.QtCore import QEventLoop, QTimer, QUrl
    from PySide6.QtWebEngineCore import (
        QWebEnginePage,
        QWebEngineProfile,
        QWebEngineUrlRequestInterceptor,
    )
    from PySide6.QtWebEngineWidgets import QWebEngineView
    from PySide6.QtWidgets import QApplication

    console: list[str] = []
    outside: list[str] = []

    class Requests(QWebEngineUrlRequestInterceptor):
        def interceptRequest(self, info):
            if info.requestUrl().scheme() not in ("file", "data", "blob"):
                outside.append(info.requestUrl().toString())

    class Page(QWebEnginePage):
        def javaScriptConsoleMessage(self, level, message, line, source):
            console.append(f"{message} ({line})")

    def pause(seconds):
        loop = QEventLoop()
        QTimer.singleShot(int(1000 * seconds), loop.quit)
        loop.exec()

    def evaluate(script):
        found: list = []
        loop = QEventLoop()

        def keep(value):
            found.append(value)
            loop.quit()

        page.runJavaScript(f"JSON.stringify({script})", keep)
        loop.exec()
        return json.loads(found[0]) if found[0] else None

    app = QApplication([])
    profile, requests = QWebEngineProfile(), Requests()
    profile.setUrlRequestInterceptor(requests)
    page = Page(profile)
    view = QWebEngineView()
    view.setPage(page)
    view.resize(1500, 950)
    view.show()
    loop = QEventLoop()
    page.loadFinished.connect(loop.quit)
    started = time.monotonic()
    page.load(QUrl.fromLocalFile(str(Path(path).resolve())))
    loop.exec()
    got, seconds = [], [time.monotonic() - started]
    for step in steps:
        started = time.monotonic()
        [(kind, what)] = step.items()
        if kind == "do":
            evaluate(f"(() => {{ {what}; return 0; }})()")
        elif kind == "get":
            got.append(evaluate(what))
        elif kind == "size":
            view.resize(*what)
            pause(0.4)
        elif kind == "shot":
            pause(0.4)  # painting lags behind the page
            assert view.grab().save(what), what
        else:
            while not evaluate(what):
                if time.monotonic() - started > LIMIT_S:
                    raise SystemExit(f"never true: {what}; console: {console}")
                pause(0.02)
        seconds.append(time.monotonic() - started)
    del app
    return {
        "got": got,
        "console": console,
        "outside": outside,
        "seconds": [round(s, 3) for s in seconds],
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()))), flush=True)
    os._exit(0)  # Qt's own farewell may crash when no screen is there
