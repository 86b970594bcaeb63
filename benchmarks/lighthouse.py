"""Lighthouse on the served page: performance, accessibility, best practices, and what took points.

    python benchmarks/lighthouse.py   (needs node, and Chromium at /usr/bin/chromium; PEAKMEM_CHROMIUM names another)

Lighthouse 12.2.3 is fetched from npm on the first run; 13 asks for a newer node than Debian has. Performance is
measured on a simulated slow phone (`mobile`) and on a desktop. Exit code 1 below a goal.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
from tests.web.serving import served  # noqa: E402

GOALS = {"performance": 95, "accessibility": 100, "best-practices": 100}
SHOWN = ("first-contentful-paint", "largest-contentful-paint", "total-blocking-time", "cumulative-layout-shift")
FORMS: dict[str, list[str]] = {"mobile": [], "desktop": ["--preset=desktop"]}


def report(address: str, options: list[str], place: Path) -> Any:
    """Lighthouse's JSON."""
    subprocess.run(["npm", "exec", "--yes", "--package=lighthouse@12.2.3", "--", "lighthouse", address, "--quiet",
                    "--output=json", f"--output-path={place}", "--chrome-flags=--headless=new --no-sandbox", *options],
                   env=os.environ | {"CHROME_PATH": os.environ.get("PEAKMEM_CHROMIUM", "/usr/bin/chromium")},
                   check=True, timeout=300, stdout=subprocess.DEVNULL)
    return json.loads(place.read_text())


def main() -> int:
    """Print scores beside their goals."""
    if not shutil.which("npm"):
        print("needs node and npm")
        return 2
    low = False
    with served() as address, TemporaryDirectory() as folder:
        for form, options in FORMS.items():
            found = report(address, options, Path(folder) / "report.json")
            print(f"{form} (speed of this machine by Lighthouse's own index: "
                  f"{found['environment']['benchmarkIndex']:.0f}; 1,000 and more is a desktop)")
            for name, goal in GOALS.items():
                score = round(100 * found["categories"][name]["score"])
                low |= score < goal
                print(f"  {name:<16} {score:3}   (goal {goal})")
                for part in found["categories"][name]["auditRefs"]:
                    audit = found["audits"][part["id"]]
                    if part["weight"] and audit["score"] is not None and audit["score"] < 0.9:
                        print(f"      {part['id']}: {audit.get('displayValue', audit['title'])}")
            print("  " + ", ".join(f"{name} {found['audits'][name]['displayValue']}" for name in SHOWN))
    return int(low)


if __name__ == "__main__":
    sys.exit(main())
