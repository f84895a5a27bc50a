"""The default scheduling profile against least-request and random, on the same multi-turn load.

Each profile plays the load three times, in the order A B C C B A A B C, so that a machine that gets slower or faster over
the minutes is not taken for a better profile. The noise is how far passes of one profile are apart. Both engines share the
cores of one machine: spreading the load gains nothing here, and whoever answers faster gets the next turn of its users, so
the spread is shown and not judged beyond both engines being used.
"""

import json
import subprocess
from pathlib import Path

DEFAULT = "kvasir-cost"
PROFILES = (DEFAULT, "least-request", "random")
PASSES = (*PROFILES, *reversed(PROFILES), *PROFILES)
REQUESTS = 192
# 12 conversations at once of 8 turns: 6 system prompts of about 1,500 tokens, then 250 tokens a turn and the answers.
LOAD = ["--workload", "multi-turn", "--users", "12", "--turns", "8", "--requests", str(REQUESTS), "--system-prompts", "6",
        "--system-tokens", "1500", "--turn-tokens", "250", "--max-tokens", "16", "--seed", "7"]


def document(profile):
    """A router document with this scorer alone."""
    return f"scheduler:\n  plugins:\n    Score:\n      enabled:\n        - {{name: {profile}, weight: 1}}\n"


def run(args, report, engines, tokenizer, tools):
    """Plays the load through a router of each profile; adds checks and a table to the report."""
    model, router_of = tools
    passes = {profile: [] for profile in PROFILES}
    for number, profile in enumerate(PASSES):
        config = Path(args.root) / f"profile-{profile}.yaml"
        config.write_text(document(profile))
        with router_of(args, engines, *tokenizer, "--config", str(config)) as router:
            # A salt of its own: every pass finds cold caches.
            command = [args.kvasir, "probe", "load", "--url", router.url, "--model", model, "--salt", f"pass {number} {profile}",
                       *LOAD, "--json"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        passes[profile].append(figures_of(json.loads(done.stdout)))
    report.sections.append(table(passes))
    for name, passed, figures in verdicts(passes):
        report.check(name, passed, figures)


def figures_of(load):
    """What the comparison needs of one load report."""
    prompt, cached = load["prompt_tokens"], load["cached_tokens"] or 0
    return {
        "p50": load["ttft_ms"]["p50"],
        "p90": load["ttft_ms"]["p90"],
        "cached": cached / prompt if prompt else 0.0,
        "requests": [share["requests"] for _, share in sorted(load["per_endpoint"].items())],
        "failed": load["requests"] - load["succeeded"],
        "wall": load["wall_s"],
    }


def mean(passes, key):
    return sum(each[key] for each in passes) / len(passes)


def noise(passes):
    """The largest distance between passes of one profile, as a share of their mean TTFT p50."""
    apart = []
    for rows in passes.values():
        values = [row["p50"] for row in rows]
        apart.append((max(values) - min(values)) / (sum(values) / len(values)))
    return max(apart)


def verdicts(passes):
    """Checks as (name, whether it holds, figures)."""
    cached = {profile: mean(rows, "cached") for profile, rows in passes.items()}
    first = {profile: mean(rows, "p50") for profile, rows in passes.items()}
    others = [profile for profile in passes if profile != DEFAULT]
    allowed = noise(passes)
    failed = {profile: sum(row["failed"] for row in rows) for profile, rows in passes.items()}
    shares = ", ".join(f"{profile} {share:.1%}" for profile, share in cached.items())
    times = ", ".join(f"{profile} {time:.1f} ms" for profile, time in first.items())
    served = [sum(each) for each in zip(*(row["requests"] for row in passes[DEFAULT]))]
    return [
        ("multi-turn: no request fails under any profile", not any(failed.values()), f"failed {failed}"),
        ("multi-turn: the default has the larger cached share", all(cached[DEFAULT] > cached[other] for other in others), shares),
        ("multi-turn: the default's TTFT p50 is below random's, and not above least-request's beyond the noise",
         first[DEFAULT] < first["random"] and first[DEFAULT] <= first["least-request"] * (1 + allowed),
         f"{times}; noise {allowed:.1%}"),
        ("multi-turn: the default uses both engines", len(served) > 1 and min(served) > 0,
         f"requests by engine {' / '.join(map(str, served))}"),
    ]


def table(passes):
    rows = [
        "\n## Scheduling on a multi-turn load\n",
        f"{REQUESTS} requests in each pass, 12 users, 8 turns, cold caches; three passes of each profile in mirrored order. Cached is "
        f"the share of all prompt tokens. Passes of one profile are up to {noise(passes):.1%} apart in TTFT p50. Both engines "
        "share two cores, so that spreading gains nothing, and whoever is faster gets the next turns.\n",
        "| profile | pass | TTFT p50, ms | TTFT p90, ms | cached | requests by engine | wall, s |",
        "|---|---|---|---|---|---|---|",
    ]
    for profile, each in passes.items():
        for number, row in enumerate(each, 1):
            spread = " / ".join(map(str, row["requests"]))
            rows.append(f"| `{profile}` | {number} | {row['p50']:.1f} | {row['p90']:.1f} | {row['cached']:.1%} | {spread} | "
                        f"{row['wall']:.1f} |")
    return "\n".join(rows) + "\n"
