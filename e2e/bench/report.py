"""From the figures of a run to a page: medians, ratios, targets and gaps."""

from pathlib import Path
from statistics import median

import cluster
import shared
import tokens
from tables import figure, gap, table

HEAD = """# Benchmarks

`make bench` fills this page, newest run first. Everything runs on one machine, so the clients and the engines take part
of the cores; compare figures of one run only. CPU time per request is the steadiest of them.
`make bench ARGS='--only tokens'` measures tokenizing alone, in a minute; `--only redis` what one view through Redis costs,
`--only cluster` what thousands of pods and routes in Kubernetes do.
"""

NETWORK = """Four mock engines that answer at once; access log to a file and decision record on. Prompts are cut from this \
repository's text and never repeat unless a row says so. `CPU` is user and system time of the proxy's processes, `x hop` its \
ratio to the bare Pingora hop, `added` is beyond the direct call of the same round, in microseconds. The KV-aware row has \
engines of its own, which tokenize and publish events; its direct call is the one to those. Where a row says that engines \
read and forget, and in the 220 KB rows, they look at nothing of a prompt and publish nothing (a mock engine would take most \
of the cores), and the KV-aware router goes by what it placed itself."""


def brief(figures, unit):
    """One line for the terminal while the run goes on."""
    if not figures["answered"]:
        return f"no answer: {figures['first_failure']}"
    spread = figures["gap_us"] if unit == "chunk" else figures["latency_us"]
    if not spread:
        return "no streams came"
    text = (f"{figure(figures['per_second']):>7}/s  p50 {figure(spread['p50']):>8}  p99 {figure(spread['p99']):>9} us  "
            f"CPU {figure(figures['cpu_us'], 1):>8} us/{unit}  engines {figure(figures['engine_cpu_us'], 1)}")
    if figures["failed"]:
        text += f"  {figures['failed']} FAILED: {figures['first_failure']}"
    return text


class Run:
    """The figures of a whole run."""

    def __init__(self, whole):
        self.whole = whole
        self.results = whole["results"]
        self.events = {target["name"]: target["events"] for target in whole["targets"]}

    def rounds(self, row, target):
        return [figures for figures in self.results.get(row, {}).get(target, []) if figures["answered"]]

    def value(self, row, target, *path):
        """The median over the rounds of one figure."""
        found = []
        for figures in self.rounds(row, target):
            for step in path:
                figures = figures.get(step) if figures else None
            if figures is not None:
                found.append(figures)
        return median(found) if found else None

    def direct(self, row, target):
        """The direct call to the engines that the target had."""
        with_events = self.events.get(target) and self.results.get(row, {}).get("direct-events")
        return "direct-events" if with_events else "direct"

    def added(self, row, target, *path):
        """Beyond the direct call of the same round, median over the rounds."""
        direct = self.direct(row, target)
        if target == direct:
            return None
        found = []
        pairs = zip(self.results.get(row, {}).get(target, []), self.results.get(row, {}).get(direct, []))
        for figures, direct in pairs:
            for step in path:
                figures, direct = (one.get(step) if one else None for one in (figures, direct))
            if figures is not None and direct is not None:
                found.append(figures - direct)
        return median(found) if found else None

    def ratio(self, row, target, other, *path):
        above, below = self.value(row, target, *path), self.value(row, other, *path)
        return above / below if above is not None and below else None

    def failed(self, row, target):
        return sum(figures["failed"] for figures in self.results.get(row, {}).get(target, []))

    def peak(self, rows, target):
        found = [self.value(row, target, "peak_mib") for row in rows]
        found = [peak for peak in found if peak is not None]
        return max(found) if found else None


def row_table(run, row):
    if row["unit"] == "chunk":
        spread, rate, shown = "gap_us", "chunks/s", "gap"
    else:
        spread = "latency_us" if row["name"].startswith(("small", "new")) else "first_byte_us"
        rate, shown = "req/s", "p50" if spread == "latency_us" else "TTFT p50"
    p50, p99 = ("gap p50", "gap p99") if shown == "gap" else (shown, shown.replace("p50", "p99"))
    heads = ["to", f"CPU us/{row['unit']}", "x hop", rate, "x direct", f"{p50} us", "added", f"{p99} us", "added",
             "engines' CPU us", "failed"]
    lines = []
    for target in run.whole["targets"]:
        name = target["name"]
        if not run.results.get(row["name"], {}).get(name):
            continue
        if row["unit"] == "chunk":
            speed = median([figures["events"] / figures["seconds"] for figures in run.rounds(row["name"], name)] or [0])
            speeds = median([f["events"] / f["seconds"] for f in run.rounds(row["name"], run.direct(row["name"], name))] or [0])
            of_direct = speed / speeds if speeds else None
        else:
            speed = run.value(row["name"], name, "per_second")
            of_direct = run.ratio(row["name"], name, run.direct(row["name"], name), "per_second")
        lines.append([
            target["title"],
            figure(run.value(row["name"], name, "cpu_us"), 1),
            figure(run.ratio(row["name"], name, "hop", "cpu_us"), 2),
            figure(speed),
            figure(of_direct, 2),
            figure(run.value(row["name"], name, spread, "p50")),
            figure(run.added(row["name"], name, spread, "p50")),
            figure(run.value(row["name"], name, spread, "p99")),
            figure(run.added(row["name"], name, spread, "p99")),
            figure(run.value(row["name"], name, "engine_cpu_us"), 1),
            figure(run.failed(row["name"], name)),
        ])
    return table(heads, lines)


def case_of(decision, tokenizer, case):
    for row in decision.get("rows", []):
        if row["tokenizer"] == tokenizer:
            return next((found for found in row["cases"] if found["case"] == case), None)
    return None


def decision_table(decision):
    stages = ["scan", "template", "tokens", "hashes", "index walk", "scores"]
    heads = ["tokenizer, case", *stages, "sum p50", "whole p50", "whole p99"]
    lines = []
    for row in decision.get("rows", []):
        for case in row["cases"]:
            spreads = [stage["us"] for stage in case["stages"]]
            lines.append([
                f"{row['tokenizer']} ({row['encoder']}), {case['case']}",
                *(f"{figure(spread['p50'], 1)} / {figure(spread['p99'], 1)}" for spread in spreads),
                figure(case["sum_us"]["p50"]), figure(case["whole_us"]["p50"]), figure(case["whole_us"]["p99"]),
            ])
    return table(heads, lines)


def fleet_table(fleets):
    heads = ["pods", "for", "index walk", "filters, scores, picks", "together p50", "together p99"]
    lines = []
    for row in fleets.get("rows", []):
        walk, decide, whole = row["gather_us"], row["decide_us"], row["whole_us"]
        lines.append([
            f"{row['pods']:,}", "pairs" if row["pairs"] else "whole requests",
            *(f"{figure(spread['p50'], 1)} / {figure(spread['p99'], 1)}" for spread in (walk, decide)),
            figure(whole["p50"], 1), figure(whole["p99"], 1),
        ])
    return table(heads, lines)


def targets(run):
    """What design aims at: work, target as text, unit, measured, bound, whether more is better. Of a run of some parts
    theirs alone."""
    whole = run.whole
    return [
        *(network_targets(run) if whole["rows"] else []),
        *(tokens.targets(whole["tokens"]) if whole["tokens"] else []),
        *(decision_targets(whole["decision"]) if whole["decision"] else []),
        *(index_targets(whole["index"]) if whole["index"] else []),
        *(shared.targets(whole["redis"]) if whole["redis"] else []),
        *(cluster.targets(whole["cluster"]) if whole["cluster"] else []),
        *(placement_targets(whole["placement"]) if whole["placement"] else []),
    ]


def network_targets(run):
    small = ("small-1", "small-32", "new")
    hop = run.value("small-32", "hop", "cpu_us")
    return [
        ("small chat, by load, 32 clients: CPU", "1.15 x hop", "us", run.value("small-32", "kvasir", "cpu_us"),
         1.15 * hop if hop else None, False),
        ("small chat, KV-aware, 32 clients: CPU", "70 us", "us", run.value("small-32", "kvasir-kv", "cpu_us"), 70, False),
        ("small chat, KV-aware, 1 client: added p50", "120 us", "us",
         run.added("small-1", "kvasir-kv", "latency_us", "p50"), 120, False),
        ("small chat, KV-aware, 1 client: added p99", "250 us", "us",
         run.added("small-1", "kvasir-kv", "latency_us", "p99"), 250, False),
        ("new connection per request, by load: CPU", "90 us", "us", run.value("new", "kvasir", "cpu_us"), 90, False),
        ("80 kB chat, first sight: CPU", "900 us", "us", run.value("long-first", "kvasir-kv", "cpu_us"), 900, False),
        ("80 kB chat, first sight, without events: CPU", "900 us", "us",
         run.value("long-first-sink", "kvasir-kv", "cpu_us"), 900, False),
        ("80 kB chat, first sight, without events: added TTFT p50", "1,500 us", "us",
         run.added("long-first-sink", "kvasir-kv", "first_byte_us", "p50"), 1500, False),
        ("80 kB chat, next turn: CPU", "250 us", "us", run.value("long-next", "kvasir-kv", "cpu_us"), 250, False),
        ("80 kB chat, next turn, without events: CPU", "250 us", "us",
         run.value("long-next-sink", "kvasir-kv", "cpu_us"), 250, False),
        ("SSE, by load: CPU per chunk", "14 us", "us", run.value("stream", "kvasir", "cpu_us"), 14, False),
        ("SSE, KV-aware: CPU per chunk", "14 us", "us", run.value("stream", "kvasir-kv", "cpu_us"), 14, False),
        ("SSE, by load: gap p99 beyond direct", "1,000 us", "us", run.added("stream", "kvasir", "gap_us", "p99"), 1000, False),
        ("220 KB, first sight, KV-aware: rate", "500/s", "/s", run.value("large-first", "kvasir-kv", "per_second"), 500, True),
        ("220 KB, shared prefixes, KV-aware: rate", "1,000/s", "/s",
         run.value("large-shared", "kvasir-kv", "per_second"), 1000, True),
        ("220 KB, by load: rate", "1,000/s", "/s", run.value("large-first", "kvasir", "per_second"), 1000, True),
        ("memory, by load, small chats: peak", "30 MiB", "MiB", run.peak(small, "kvasir"), 30, False),
    ]


def decision_targets(decision):
    cases = [("first sight", "1.5 ms", 1.5), ("next turn", "0.3 ms", 0.3)]
    found = [case_of(decision, "qwen2_5", name) for name, _, _ in cases]
    return [(f"decision, 20k tokens, {name}, Qwen2.5: p50", wanted, "ms", case["whole_us"]["p50"] / 1e3 if case else None,
             bound, False) for (name, wanted, bound), case in zip(cases, found)]


def index_targets(index):
    return [
        ("index: block events applied", "2 M/s", "M/s", millions(index.get("change_per_second")), 2, True),
        ("index: block lookups, one core", "5 M/s", "M/s", millions(index.get("lookups_per_second_4_owners")), 5, True),
        ("index: bytes per block and owner", "64 B", "B", index.get("resident_bytes_per_held"), 64, False),
    ]


def placement_targets(placement):
    """The demo's workload is the 32 multi-turn users of the target: within 5 % of perfect knowledge."""
    ours, best = placement.get("kv_aware"), placement.get("best_possible")
    if not ours or not best:
        return [("placement, 32 multi-turn users", "within 5 % of bound", "", None, None, False)]
    return [
        ("placement, 32 multi-turn users: hit rate", "95 % of bound", "%", 100 * ours["hit_rate"],
         95 * best["hit_rate"], True),
        ("placement, 32 multi-turn users: TTFT p50", "105 % of bound", "ms", ours["ttft_ms"]["p50"],
         1.05 * best["ttft_ms"]["p50"], False),
        ("placement, 32 multi-turn users: TTFT p95", "105 % of bound", "ms", ours["ttft_ms"]["p95"],
         1.05 * best["ttft_ms"]["p95"], False),
    ]


def placement_table(placement):
    lines = []
    for key, title in (("random", "random"), ("kv_aware", "KV-aware"), ("best_possible", "perfect knowledge")):
        row = placement[key]
        lines.append([title, f"{100 * row['hit_rate']:.1f} %", figure(row["ttft_ms"]["p50"], 1),
                      figure(row["ttft_ms"]["p95"], 1), figure(row["throughput_rps"]), figure(row["errors"])])
    return table(["placement", "hit rate", "TTFT p50 ms", "TTFT p95 ms", "req/s", "errors"], lines)


def millions(value):
    return value / 1e6 if value is not None else None


def target_table(run):
    lines = []
    for work, wanted, unit, measured, bound, more in targets(run):
        digits = 2 if unit in ("ms", "s", "M/s") else 0 if unit in ("/s", "requests") else 1
        if wanted.endswith(("hop", "of bound", "HGETALL")) and bound is not None:
            wanted = f"{wanted} = {bound:.1f} {unit}"
        lines.append([work, wanted, "-" if measured is None else f"{figure(measured, digits)} {unit}",
                      gap(measured, bound, more)])
    return table(["work", "target", "measured", "gap"], lines)


def memory_table(run):
    rows = [row["name"] for row in run.whole["rows"]]
    small = [row for row in rows if row in ("small-1", "small-32", "new")]
    lines = [[target["title"], figure(run.peak(small[:], target["name"]), 0), figure(run.peak(rows, target["name"]), 0)]
             for target in run.whole["targets"] if run.peak(rows, target["name"]) is not None]
    return table(["of", "peak after the small chats, MiB", "peak at the end, MiB"], lines)


def section(whole):
    """The page's section for a run."""
    run = Run(whole)
    machine, versions = whole["machine"], whole["versions"]
    absent = [f"- {target['title']}: **not measured**: {target['problem']}"
              for target in whole["targets"] if target["problem"]]
    pinned = ("proxies on one core, engines and clients on the other" if whole["pin"] == "split"
              else "no process is pinned to a core")
    how = f", median of {whole['rounds']} interleaved round(s), {pinned}" if whole["rows"] else ""
    peers = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "kvasir")
    minutes = f"{whole['minutes']:.0f} minutes" if whole["minutes"] >= 1.5 else "a minute"
    parts = [
        f"## {whole['when']} UTC, commit {versions.get('kvasir', 'unknown')}",
        f"`{whole['command']}`, {minutes}{how}.  \n"
        f"Machine: {machine['cores']} cores, {machine['cpu']}, {machine['memory_gib']} GiB, Linux {machine['kernel']}; "
        f"load before the run {whole['busy']:.1f}." + (f"  \nPeers: {peers}." if whole["rows"] else ""),
    ]
    if whole["rows"]:
        parts.append(NETWORK)
    if absent:
        parts.append("\n".join(absent))
    parts += ["### Targets", target_table(run)]
    for row in whole["rows"]:
        parts += [f"### {row['title'][0].upper()}{row['title'][1:]}", row_table(run, row)]
    if whole["rows"]:
        parts += ["### Memory", memory_table(run)]
    known = [text for text in (
        knowledge_text("Rows with events", whole["counted"].get("kvasir-kv")),
        knowledge_text("Rows with engines that read and forget", whole["counted"].get("kvasir-kv sink"))) if text]
    if known:
        parts += ["### What the KV-aware router knew", *known]
    if whole["tokens"]:
        parts += tokens.section(whole["tokens"])
    decision, index = whole["decision"], whole["index"]
    if decision:
        parts.append("### A decision for a 20k-token chat, by stage")
        if "problem" in decision:
            parts.append(f"**Not measured**: {decision['problem']}")
        else:
            shape = decision["rows"][0] if decision["rows"] else {"bytes": 0, "tokens": 0, "conversations": 0}
            parts.append(
                f"Microseconds, p50 / p99, one thread, no network: {shape['bytes']:,} bytes, {shape['tokens']:,} tokens, "
                f"{decision['owners']} owners with 62,500 resident blocks each, {shape['conversations']} conversations. `whole` is "
                "the router's own gather and decide for other conversations. `same again` repeats a prompt, which the "
                "encoder's memory answers: no measure of tokenizing.")
            parts.append(decision_table(decision))
        fleets = decision.get("fleets", {})
        if fleets:
            parts.append("### A decision by the size of the fleet")
            parts.append(f"**Not measured**: {fleets['problem']}" if "problem" in fleets else (
                "Microseconds, p50 / p99, one thread, the default profile: from 1,250 known block hashes (20,000 tokens) to ranked "
                "picks. Every pod holds three such prompts, one of them with every eighth other; prompts that some pod holds are asked "
                "for. `pairs`: groups of eight pods, two of which prefill; one walk, then a run over all decode pods and one over the "
                "prefill pods of each group among the five best."))
            parts.append("" if "problem" in fleets else fleet_table(fleets))
    if index:
        parts.append("### Index")
        parts.append(f"**Not measured**: {index['problem']}" if "problem" in index else index_text(index))
    if whole["redis"]:
        parts += shared.section(whole["redis"])
    if whole["cluster"]:
        parts += cluster.section(whole["cluster"])
    placement = whole["placement"]
    if placement:
        parts.append("### Placement (`kvasir demo`)")
        parts.append(f"**Not measured**: {placement['problem']}" if "problem" in placement else placement_table(placement))
    return "\n\n".join(parts) + "\n"


def knowledge_text(rows, counted):
    """Figures of a KV-aware router mean little when it did not have the tokens: this says so."""
    if not counted:
        return None

    def named(metric):
        found = {key.removeprefix(metric).strip(): value for key, value in counted.items() if key.startswith(metric)}
        return ", ".join(f"{key} {value:,.0f}" for key, value in sorted(found.items()) if value) or "none"

    predicted = counted.get("kvasir_cached_tokens_predicted_total", 0)
    reported = counted.get("kvasir_cached_tokens_reported_total", 0)
    lines = [
        f"{rows}: requests with token ids, by source: {named('kvasir_tokenized_total')}; without: "
        f"{named('kvasir_untokenized_total')}.",
        f"Prompt counts compared with the engines': {named('kvasir_prompt_tokens_proof_total')}. "
        f"Cached tokens: {predicted:,.0f} predicted, {reported:,.0f} reported. "
        f"Data that was late or failed: {named('kvasir_produce_failed_total')}.",
    ]
    with_ids = sum(value for key, value in counted.items() if key.startswith("kvasir_tokenized_total"))
    without = sum(value for key, value in counted.items() if key.startswith("kvasir_untokenized_total"))
    if without > 0.01 * (with_ids + without) or counted.get("kvasir_prompt_tokens_proof_total differs"):
        lines.append("**The router did not have exact tokens for all of them: its figures there are partly those of "
                     "routing by load.**")
    return "  \n".join(lines)


def index_text(index):
    rows = [
        ("block events a second: prompts of 1,250 blocks evicted and computed, 128 blocks an event", index["change_per_second"]),
        ("block events a second: the same, computed block by block", index["decode_change_per_second"]),
        ("block lookups a second, 4 candidates", index["lookups_per_second_4_owners"]),
        (f"block lookups a second, {index['owners']} candidates", index["lookups_per_second_all_owners"]),
        ("bytes for each block and owner, as counted", index["bytes_per_held"]),
        ("bytes for each block and owner, as resident memory", index["resident_bytes_per_held"]),
    ]
    return (f"{index['held']:,} resident blocks over {index['owners']} owners ({index['distinct']:,} distinct), one thread, "
            "decoding of messages apart.\n\n" + table(["what", "figure"], [[what, figure(value)] for what, value in rows]))


def prepend(path, text):
    """Puts a section above those of earlier runs."""
    page = path.read_text() if path.exists() else ""
    at = page.find("\n## ")
    earlier = page[at:].lstrip("\n") if at >= 0 else ""
    Path(path).write_text(HEAD + "\n" + text + ("\n" + earlier if earlier else ""))
