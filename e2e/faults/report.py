#!/usr/bin/env python3
"""From the tables that fault tests leave behind, and from what they said, to docs/faults.md and the closing line."""

import argparse
import datetime
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HEAD = """# Faults

`make faults-long` fills this page; `make test` runs the same tests with outages of two or three seconds. Redis servers, the
API server, proxies, agents and routers are real; engines are mock engines, and what is true of their caches is asked of them directly, never
read from the events under test. The list of all cases is in [fault-cases.md](fault-cases.md).
"""

FAULTS = """Two engines, an agent beside each, one router that knows their caches by Redis alone, and clients that send all the
time. *Seen after* is from the fault until the router says so (`-` where there is nothing to be seen); *whole again after* is
from the repair until the router credits each engine with exactly what it holds of every prompt that was sent, after two more
prompts for each and after the clients left. The waits are whole requests as the clients saw them, engines' work included.
Leases last two seconds here (ten by default), so that an abandoned owner is seen to lapse."""

CLUSTER = """A router over pods whose engines are mock engines, the probe's clients that send all the time, and a real API server
whose outages are twice as long as the others. *Seen after* is from the event until the router says so; of the rolling update
it is the longest time from a pod's deletion mark to its last request. *Whole again after* is from the repair until the router
routes by what changed meanwhile or just after: a pod that is gone, a new one, another name of the route; of the rolling update
it is the whole update."""

TOKENS = """A router with one source of tokens, which fails. *Added* is what requests waited for tokens; *used again* is from the
repair until the source gives tokens again."""

# The first heads of the tables that are merged to one.
MERGED = "fault"
CLUSTERS = "cluster event"


class Table:
    """One table as a test wrote it."""

    def __init__(self, title, lines):
        self.title = title
        rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
        self.heads, self.rows = rows[0], rows[2:]

    def is_of(self, kind):
        return self.heads[0] == kind


def read_tables(text):
    found, title, lines = [], None, []
    for line in [*text.splitlines(), ""]:
        if line.startswith("### "):
            title = line.removeprefix("### ")
        elif line.startswith("|"):
            lines.append(line)
        elif lines:
            found.append(Table(title or "untitled", lines))
            title, lines = None, []
    return found


def shown(heads, rows):
    def cells(row):
        return "| " + " | ".join(row) + " |"

    rule = "|" + "|".join("---" if column == 0 else "--:" for column in range(len(heads))) + "|"
    return "\n".join([cells(heads), rule, *map(cells, rows)])


class Outcome:
    """What the test runs said."""

    def __init__(self, logs):
        text = "\n".join(path.read_text(errors="replace") for path in logs)
        counts = re.findall(r"^test result: .*?(\d+) passed; (\d+) failed; (\d+) ignored", text, re.M)
        self.passed, self.failed, self.skipped = (sum(int(one[place]) for one in counts) for place in range(3))
        self.names = sorted(set(re.findall(r"^test (\S+) \.\.\. FAILED$", text, re.M)))


def said_by(*command):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), "unknown")
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return f"{os.cpu_count()} cores, {cpu}, {memory:.0f} GiB, Linux {platform.release()}"


def versions():
    redis = re.search(r"v=(\S+)", said_by("redis-server", "--version"))
    return (f"Kvasir {said_by('git', 'rev-parse', '--short', 'HEAD')}, redis-server {redis[1] if redis else 'unknown'}, "
            f"{' '.join(said_by('rustc', '--version').split()[:2])}")


def page(tables, outcome, args):
    merged = [table for table in tables if table.is_of(MERGED)]
    clusters = [table for table in tables if table.is_of(CLUSTERS)]
    others = [table for table in tables if table not in merged + clusters]
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")
    parts = [
        HEAD.rstrip(),
        f"## {now} UTC, outages of {args.outage_ms / 1e3:g} s",
        f"`make faults-long`, {args.seconds / 60:.0f} minutes. {versions()}.  \nMachine: {machine()}.",
        f"**{outcome.passed} tests passed, {outcome.failed} failed, {outcome.skipped} skipped.**",
    ]
    if outcome.names:
        parts.append("Failed: " + ", ".join(f"`{name}`" for name in outcome.names) + ".")
    parts.append("### Redis, agents and engines")
    if merged:
        parts += [FAULTS, shown(merged[0].heads, sorted(row for table in merged for row in table.rows))]
    else:
        parts.append("**No figures**: no test came as far.")
    if clusters:
        rows = sorted(row for table in clusters for row in table.rows)
        parts += ["### Pods and the API server", CLUSTER, shown(clusters[0].heads, rows)]
    if others:
        parts += ["### Sources of tokens", TOKENS]
        for table in sorted(others, key=lambda table: table.title):
            parts += [f"#### {table.title}", shown(table.heads, table.rows)]
    return "\n\n".join(parts) + "\n", sum(len(table.rows) for table in tables)


def lost_requests(tables):
    lost = 0
    for table in tables:
        if "lost" in table.heads:
            column = table.heads.index("lost")
            lost += sum(int(row[column] or 0) for row in table.rows)
    return lost


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", required=True, type=Path)
    parser.add_argument("--log", required=True, type=Path, action="append")
    parser.add_argument("--outage-ms", required=True, type=int)
    parser.add_argument("--seconds", required=True, type=int)
    parser.add_argument("--page", required=True, type=Path)
    args = parser.parse_args()
    tables, outcome = read_tables(args.tables.read_text()), Outcome(args.log)
    text, faults = page(tables, outcome, args)
    args.page.write_text(text)
    print(f"written to {args.page}")
    print(f"faults-long: {faults} faults of {args.outage_ms} ms outages, {lost_requests(tables)} requests lost; "
          f"{outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped")
    # A run that tested nothing is no success.
    return 0 if outcome.passed and faults else 1


if __name__ == "__main__":
    sys.exit(main())
