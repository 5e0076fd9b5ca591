"""Proves a wheel: its files are all there, and it runs in an environment that has nothing else.

    python tools/try_wheel.py dist/widerow-0.1.0-py3-none-any.whl

Installs it with its dependencies into an empty environment in a temporary folder, asks for the version, starts the demo and
waits until a report of the simulated fleet has been made durable. Every step is bounded in time.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
import zipfile
from pathlib import Path

INSTALL_S = 600
START_S = 180
"""The first start in a new environment compiles the kernels."""
STOP_S = 60
TOKEN = re.compile(r"wr_[A-Za-z0-9_-]{43}")
ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    wheel = Path(sys.argv[1]).resolve()
    check_files(wheel)
    with tempfile.TemporaryDirectory(prefix="widerow-wheel-") as name:
        folder = Path(name)
        widerow = install(wheel, folder / "venv")
        version = subprocess.run([widerow, "--version"], check=True, capture_output=True, text=True, timeout=60, cwd=folder)
        print(f"installed: {version.stdout.strip()}")
        demo(widerow, folder)
    print(f"{wheel.name} works in an empty environment")


def check_files(wheel: Path) -> None:
    """Every file of the package that git would keep is in the wheel: py.typed and the page's assets among them."""
    with zipfile.ZipFile(wheel) as content:
        packed = set(content.namelist())
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "widerow").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    left_out = sorted(wanted - packed)
    if left_out or "widerow/py.typed" not in packed:
        sys.exit(f"not in {wheel.name}: {', '.join(left_out) or 'widerow/py.typed'}")
    print(f"{wheel.name}: {len(packed)} files, {wheel.stat().st_size / 1024:.0f} KiB")


def install(wheel: Path, folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=INSTALL_S)
    return folder / "bin" / "widerow"


def demo(widerow: Path, folder: Path) -> None:
    """Start it, wait until reports are stored, stop it as a user would."""
    port = free_port()
    log = folder / "demo.log"
    with log.open("wb") as out:
        command = [str(widerow), "demo", "--port", str(port), "--data", str(folder / "data"), "--history", "10m"]
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)
        try:
            await_reports(process, port, log)
            process.send_signal(signal.SIGINT)
            code = process.wait(STOP_S)
        finally:
            process.kill()
            process.wait()
    if code not in (0, 130, -signal.SIGINT):
        sys.exit(f"the demo ended with {code} after Ctrl-C:\n{tail(log)}")


def await_reports(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until the server, asked with the token that the demo printed, has stored reports."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"the demo ended with {process.returncode}:\n{tail(log)}")
        token = TOKEN.search(log.read_text(errors="replace"))
        stored = stored_reports(port, token[0]) if token else 0
        if stored:
            print(f"the demo runs: {stored:,} reports stored")
            return
        time.sleep(0.25)
    sys.exit(f"the demo stored nothing within {START_S} s:\n{tail(log)}")


def stored_reports(port: int, token: str) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/status", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(json.load(answer)["total"]["reports"])
    except (TimeoutError, ConnectionError):
        return 0


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-3000:]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
