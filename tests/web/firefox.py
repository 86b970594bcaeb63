"""Debian's Firefox by its own protocol, Marionette: JSON over a socket, each message after its length and a colon.

Source: firefox, remote/marionette/server.sys.mjs and driver.sys.mjs.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PREFERENCES = {"marionette.port": 0, "devtools.console.stdout.content": True, "app.update.enabled": False,
               "datareporting.policy.dataSubmissionEnabled": False, "browser.shell.checkDefaultBrowser": False,
               "network.captive-portal-service.enabled": False, "network.connectivity-service.enabled": False}
STARTS = 60.0  # seconds, on a busy machine


class Firefox:
    """One window."""

    def __init__(self, port: int, log: Path) -> None:
        self.log, self.number = log, 0
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=STARTS)
        self.file = self.socket.makefile("rb")
        self.receive()
        self.ask("WebDriver:NewSession", capabilities={})

    def receive(self) -> Any:
        size = b""
        while (byte := self.file.read(1)) not in (b":", b""):
            size += byte
        return json.loads(self.file.read(int(size)))

    def ask(self, command: str, **given: Any) -> Any:
        self.number += 1
        text = json.dumps([0, self.number, command, given])
        self.socket.sendall(f"{len(text.encode())}:{text}".encode())
        _, _, error, value = self.receive()
        assert error is None, (command, error)
        return value

    def open(self, url: str) -> None:
        self.ask("WebDriver:Navigate", url=url)

    def run(self, script: str, *given: Any) -> Any:
        """The value of a script that says `return`."""
        return self.ask("WebDriver:ExecuteScript", script=script, args=list(given))["value"]

    def until(self, expression: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({expression})"):
            assert time.monotonic() < end, (expression, self.complaints())
            time.sleep(0.05)

    def complaints(self) -> list[str]:
        """What scripts of pages did not catch, with their addresses; Firefox's own parts complain, too."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if line.startswith(tuple(f"JavaScript error: {place}" for place in
                                                                ("http:", "file:", "data:", "blob:")))]


@contextmanager
def firefox(folder: Path) -> Iterator[Firefox]:
    """A Firefox with a profile of its own; None of what it writes stays outside `folder`."""
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    assert program
    profile, log = folder / "profile", folder / "log"
    profile.mkdir()
    (profile / "user.js").write_text("".join(f"user_pref({json.dumps(name)}, {json.dumps(value)});\n"
                                             for name, value in PREFERENCES.items()))
    with log.open("wb") as out:
        process = subprocess.Popen([program, "--headless", "--marionette", "--profile", str(profile), "about:blank"],
                                   stdout=out, stderr=subprocess.STDOUT, env={"HOME": str(folder), "PATH": "/usr/bin"})
    try:
        found = profile / "MarionetteActivePort"
        end = time.monotonic() + STARTS
        while not (found.exists() and found.read_text().strip()):
            assert process.poll() is None and time.monotonic() < end, log.read_text(errors="replace")[-500:]
            time.sleep(0.1)
        yield Firefox(int(found.read_text()), log)
    finally:
        process.terminate()
        process.wait(20)
