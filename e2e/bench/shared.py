"""One view through Redis in the bench: runs `kvasir-bench-redis`, and makes tables and targets of its figures."""

import os
from statistics import median

from tables import figure, gap, table

# What is aimed at.
LAG_MS, BLOCK_BYTES, START_SECONDS, QUERY_BUDGET_MS = 50, 24, 2, 5

HELD_BY = {"all": "all", "one": "one of them", "nobody": "nobody"}


def measure(setup, quick, run_json):
    """Lookups beside HGETALL, then the mirror; each starts a `redis-server` of its own."""
    program = str(setup.binaries / "kvasir-bench-redis")
    before = os.getloadavg()[0]
    lookup = run_json([program, "lookup", f"--seconds={1 if quick else 4}"], os.environ)
    between = os.getloadavg()[0]
    mirror = run_json([program, "mirror", f"--seconds={5 if quick else 20}"], os.environ)
    return {"lookup": lookup, "mirror": mirror, "busy": (before, between, os.getloadavg()[0])}


def row_of(lookup, blocks, held_by):
    return next((row for row in lookup.get("rows", []) if (row["blocks"], row["held_by"]) == (blocks, held_by)), None)


def ratio(row, quantile="p50"):
    return row["query_us"][quantile] / row["hgetall_us"][quantile]


def targets(figures):
    """What design aims at: work, target as text, unit, measured, bound, whether more is better."""
    lookup, mirror = figures["lookup"], figures["mirror"]
    load = mirror.get("load", {})
    lag = load.get("lag_us")
    rows = []
    for blocks in (128, 1250):
        row = row_of(lookup, blocks, "all")
        rows.append((f"Redis: `query`, {blocks:,} blocks, {lookup.get('pods', 8)} pods hold all: p50", "that of HGETALL", "ms",
                     row["query_us"]["p50"] / 1e3 if row else None, row["hgetall_us"]["p50"] / 1e3 if row else None, False))
    rate = f"{load.get('events_per_second', 50_000) / 1e3:.0f} k events/s"
    return [
        *rows,
        (f"Redis: mirror lag at {rate}: p99", f"{LAG_MS} ms", "ms", lag["p99"] / 1e3 if lag else None, LAG_MS, False),
        ("Redis: memory for each block", f"{BLOCK_BYTES} B", "B", mirror.get("redis_bytes_per_block"), BLOCK_BYTES, False),
        ("Redis: a router's start on 1 M blocks", f"{START_SECONDS} s", "s",
         median(mirror["start_seconds"]) if mirror.get("start_seconds") else None, START_SECONDS, False),
    ]


def section(figures):
    """The page's part on Redis."""
    lookup, mirror = figures["lookup"], figures["mirror"]
    before, between, after = figures["busy"]
    parts = ["### Lookups in Redis for each request (`coordination: query`)"]
    parts += [f"**Not measured**: {lookup['problem']}"] if "problem" in lookup else lookup_parts(lookup, before, between)
    parts.append("### The mirror")
    parts += [f"**Not measured**: {mirror['problem']}"] if "problem" in mirror else mirror_parts(mirror, between, after)
    return parts


def lookup_parts(lookup, before, after):
    def cells(spread):
        return f"{spread['p50'] / 1e3:.2f} / {spread['p99'] / 1e3:.2f}"

    return [
        f"kthena's layout in a local redis-server, {lookup['pods']} pods, {lookup['prompts']} prompts of each kind; milliseconds, "
        "p50 / p99. `query` is the router's own lookup: pipelined windows that stop at the first block nobody holds. `HGETALL` "
        "is one for each block of the prompt, all in one pipeline, over the same client; `bare HGETALL` the same over a socket "
        "of its own that keeps nothing of the answers but who holds what, so it is near what the server itself takes. All in "
        f"turns on a connection each; load {before:.1f} before, {after:.1f} after. `in {QUERY_BUDGET_MS} ms` is the share of "
        "`query` within the default budget (here it may take longer).",
        table(
            ["blocks", "held by", "query", "HGETALL", "bare HGETALL", "query / HGETALL: p50", "p99", f"in {QUERY_BUDGET_MS} ms",
             "lookups"],
            [[figure(row["blocks"]), HELD_BY[row["held_by"]], cells(row["query_us"]), cells(row["hgetall_us"]),
              cells(row["bare_us"]), f"{ratio(row):.2f} x", f"{ratio(row, 'p99'):.2f} x",
              f"{100 * row['within_budget']:.1f} %", figure(row["lookups"])] for row in lookup["rows"]]),
    ]


def mirror_parts(mirror, before, after):
    load = mirror["load"]
    lag, cores = load["lag_us"], load["cores"]
    starts = mirror["start_seconds"]
    rows = [
        ("block events a second", figure(load["events_per_second"])),
        ("engine steps (batches of events) a second", figure(load["steps_per_second"])),
        ("deltas written to Redis a second", figure(load["deltas_per_second"])),
        ("owners published anew / loaded anew by the router / failed calls",
         " / ".join(figure(load[name]) for name in ("published_anew", "loaded_anew", "failures"))),
        ("lag p50 / p90 / p99 / longest, ms", " / ".join(f"{lag[name] / 1e3:.1f}" for name in ("p50", "p90", "p99", "max"))),
        (f"processor, cores: {mirror['agents']} agents / router / Redis",
         " / ".join(f"{cores[name]:.2f}" for name in ("agents", "router", "redis"))),
        ("Redis, bytes for each block: at rest / under that load",
         f"{mirror['redis_bytes_per_block']:.1f} / {mirror['redis_bytes_per_block_under_load']:.1f}"),
        ("Redis, MB for a million blocks, at rest", figure(mirror["redis_bytes_per_block"], 1)),
        ("router's index, bytes for each block", figure(mirror["index_bytes_per_block"], 1)),
        (f"a router's start, s: median / longest of {len(starts)}", f"{median(starts):.2f} / {max(starts):.2f}"),
        ("a router's start while the blocks change at that rate, s", f"{mirror['start_under_load_seconds']:.2f}"),
        ("publishing everything into an empty Redis, s", f"{mirror['publish_seconds']:.2f}"),
    ]
    return [
        f"{mirror['owners']} owners with {mirror['held']:,} resident blocks, {mirror['agents']} agents with a connection each, one "
        "local redis-server, one router; agents on one thread, the router on one. Each engine publishes a batch for a step: "
        f"seven blocks of decoding, now and then a prefill of 128, and what that evicts. Lag is for {load['lags']:,} blocks over "
        f"{load['seconds']:.0f} s, one of each step: from before the agent's index takes the batch until the block is in the "
        "router's index, by one clock. In the end the router's index was the agents', block for block. "
        f"Load {before:.1f} before, {after:.1f} after.",
        table(["what", "figure"], [list(row) for row in rows]),
    ]
