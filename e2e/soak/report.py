#!/usr/bin/env python3
"""From the figures of a soak to docs/soak.md, its drawing of memory over time, and the closing line."""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HEAD = """# Soak

`make soak` fills this page: minutes of churn, then the comparison of every router's view with the engines' truth.
`make test` runs the same for some seconds. Engines are mock engines with caches that hold a part of what is asked for;
agents (each in a runtime of its own, killed at once and without a last word), routers and the redis-server are real. The
truth is what an engine says it would reuse of a prompt, never its events."""

WIDTH, HEIGHT, MARGIN = 760, 220, 44
LINES = (("resident", "#1f6f8b", "this process (engines, agents, routers, clients)"), ("redis", "#c0392b", "Redis"))


def mib(value):
    return "-" if value is None else f"{value / 2**20:.1f} MiB"


def drawing(samples, seconds):
    """Memory over time, each line on a scale of its own that begins at 0."""
    inner_width, inner_height = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<path d="M{MARGIN} {MARGIN}V{HEIGHT - MARGIN}H{WIDTH - MARGIN}V{MARGIN}" fill="none" stroke="#888"/>']
    for place, (name, colour, title) in enumerate(LINES):
        points = [(sample["at"], sample[name]) for sample in samples if sample[name] is not None]
        most = max((value for _, value in points), default=1) * 1.15
        path = " ".join(f"{MARGIN + inner_width * at / seconds:.1f},{HEIGHT - MARGIN - inner_height * value / most:.1f}"
                        for at, value in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        side, anchor = (MARGIN - 4, "end") if place == 0 else (WIDTH - MARGIN + 4, "start")
        out.append(f'<text x="{side}" y="{MARGIN + 4}" text-anchor="{anchor}" fill="{colour}">{most / 2**20:.0f} MiB</text>')
        out.append(f'<text x="{MARGIN + place * inner_width * 0.6:.0f}" y="{MARGIN - 16}" fill="{colour}">{title}</text>')
    for part in range(0, 6):
        at = part / 5
        out.append(f'<text x="{MARGIN + inner_width * at:.0f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">'
                   f'{seconds * at / 60:.1f} min</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def growth(halves):
    return halves[1] / halves[0] if halves else None


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
    return f"Kvasir {said_by('git', 'rev-parse', '--short', 'HEAD')}, redis-server {redis[1] if redis else 'unknown'}"


def table(heads, rows):
    rule = "|" + "|".join("---" if column == 0 else "--:" for column in range(len(heads))) + "|"
    return "\n".join(["| " + " | ".join(heads) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)])


def memory_row(title, halves, memory):
    if not halves:
        return [title, "-", "-", "not measured"]
    times = growth(halves)
    verdict = f"{times:.2f} x" + ("" if memory["is_held"] else " (too short to judge)")
    return [title, mib(halves[0]), mib(halves[1]), verdict]


def page(figures, args, drawn):
    comparison, faults, memory = figures["comparison"], figures["faults"], figures["memory"]
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")
    settled = comparison["settled_seconds"]
    quiet = f"after {settled:.1f} s of quiet" if settled is not None else "never, within 30 s of quiet"
    rows = [
        ["requests through the routers", f"{figures['requests']:,}"],
        ["of them cut by an engine that died while it answered", f"{figures['cut']:,}"],
        ["of them lost for any other reason", f"{figures['lost']:,}"],
        ["requests to engines past the routers", f"{figures['direct']:,}"],
        *([what, f"{count:,}"] for what, count in faults.items() if what != "total"),
        ["prompts that were ever sent", f"{comparison['prompts']:,}"],
        ["comparisons (prompt, router, engine)", f"{comparison['compared']:,}"],
        ["**differences**", f"**{comparison['differ']:,}**"],
        ["views of an engine with another number of blocks than it holds", f"{comparison['counts_differ']:,}"],
        ["tokens of those prompts that engines held then", f"{comparison['held_tokens']:,}"],
        ["every view was the truth", quiet],
    ]
    verdict = "passed" if args.code == 0 else "**FAILED**"
    parts = [
        HEAD,
        f"## {now} UTC: {verdict}",
        f"`make soak ARGS='--minutes {args.minutes}'`. {versions()}.  \nMachine: {machine()}.",
        f"{figures['engines']} engines, {figures['agents']} agents, {figures['routers']} routers, one Redis.",
        table(["what", "figure"], rows),
        "### Memory",
        f"The most in the first half, once a fifth of the run was over, and in the second; allowed is {memory['allowed']} x.",
        table(["of", "first half", "second half", "growth"], [
            memory_row("this process (engines, agents, routers, clients)", memory["resident"], memory),
            memory_row("Redis, `used_memory` without its streams (bounded at 8,192 entries each)", memory["redis"], memory),
        ]),
        f"![Memory over time]({drawn.name})",
    ]
    if comparison["differ"] or comparison["counts_differ"]:
        parts.append(f"What differed: {comparison['text']}.")
    return "\n\n".join(parts) + "\n"


def closing(figures, args):
    comparison, memory = figures["comparison"], figures["memory"]

    def grew(halves):
        return f"{growth(halves):.2f} x" if halves else "not measured"

    return (f"soak: {args.minutes} minutes, {figures['requests']:,} requests ({figures['lost']} lost), "
            f"{figures['faults']['total']} faults, {comparison['compared']:,} comparisons, {comparison['differ']} differences; "
            f"memory {grew(memory['resident'])}, Redis {grew(memory['redis'])}; {'passed' if args.code == 0 else 'FAILED'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figures", required=True, type=Path)
    parser.add_argument("--minutes", required=True)
    parser.add_argument("--code", required=True, type=int)
    parser.add_argument("--page", required=True, type=Path)
    args = parser.parse_args()
    figures = json.loads(args.figures.read_text())
    drawn = args.page.with_suffix(".svg")
    drawn.write_text(drawing(figures["samples"], max(1, figures["seconds"])))
    args.page.write_text(page(figures, args, drawn))
    print(f"written to {args.page}")
    print(closing(figures, args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
