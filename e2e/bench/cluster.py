"""A large cluster in the bench: runs `kvasir-bench-cluster`, and makes tables and targets of its figures."""

import os
import subprocess
from statistics import median

from tables import figure, table

# What is aimed at. A change must arrive within the time that a router may take to see it, and cost requests nothing.
READY_SECONDS, CHANGE_MS, P99_ADDED_MS = 5, 100, 10

KINDS = {"routes": "routes pointed elsewhere", "flips": "pods that stopped or began to be ready", "added": "pods made",
         "removed": "pods deleted"}


def measure(setup, quick, root, run_json):
    """Needs the API server of the cluster tests; where it is not there yet it is built first."""
    before = os.getloadavg()[0]
    built = subprocess.run([str(root / "e2e/kube/setup.sh"), "etcd", "kube-apiserver"], capture_output=True, text=True)
    if built.returncode != 0:
        return {"problem": f"no API server: {(built.stderr or built.stdout).strip()[-300:]}"}
    program = str(setup.binaries / "kvasir-bench-cluster")
    flags = ["--seconds=5", "--single=20", "--starts=1"] if quick else []
    figures = run_json([program, f"--router={setup.binaries / 'kvasir'}", *flags], os.environ)
    figures["busy"] = (before, os.getloadavg()[0])
    return figures


def targets(figures):
    """What is aimed at: work, target as text, unit, measured, bound, whether more is better."""
    measured = "problem" not in figures
    busy, quiet = (figures["changing"], quiet_of(figures)) if measured else ({}, {})
    objects = figures["objects"] if measured else {"pods": 2000, "routes": 1000}
    what = f"cluster, {objects['pods']:,} pods, {objects['routes']:,} routes"
    single = figures.get("single", {})

    def change(name):
        return single[name]["p99"] / 1e3 if measured else None

    return [
        (f"{what}: time to ready", f"{READY_SECONDS} s", "s",
         median(start["ready_seconds"] for start in figures["starts"]) if measured else None, READY_SECONDS, False),
        ("cluster: a route's change to the first request that goes by it: p99", f"{CHANGE_MS} ms", "ms", change("route_us"),
         CHANGE_MS, False),
        ("cluster: a pod not ready to the first request without it: p99", f"{CHANGE_MS} ms", "ms", change("unready_us"),
         CHANGE_MS, False),
        ("cluster: requests failed during changes", "0 requests", "requests", busy.get("failed"), 0, False),
        ("cluster: requests that saw half a change, or an old state for longer than 1 s", "0 requests", "requests",
         busy.get("wrong"), 0, False),
        ("cluster: what changes add to a request's time: p99", f"{P99_ADDED_MS} ms", "ms",
         (busy["routed_us"]["p99"] - quiet["routed_us"]["p99"]) / 1e3 if measured else None, P99_ADDED_MS, False),
    ]


def quiet_of(figures):
    """Of the quiet phases before and after the changes the one with the longer times: nothing is made of noise."""
    return max(figures["quiet"], key=lambda quiet: quiet["routed_us"]["p99"])


def section(figures):
    """The page's part on large clusters."""
    title = "### A large cluster"
    if "problem" in figures:
        return [title, f"**Not measured**: {figures['problem']}"]
    objects, (before, after) = figures["objects"], figures["busy"]
    return [
        title,
        f"A real etcd and kube-apiserver, {objects['pods']:,} pods of {objects['servers']} ModelServers (each as long as one that a "
        f"Deployment makes), {objects['routes']:,} ModelRoutes, one `kvasir router --kubernetes=on` as a process with the usual "
        "settings (every pod's metrics are read each second, statuses are written, access log to a file). All of the pods' "
        f"addresses are served by one listener, whose metrics page has {objects['page_bytes'] / 1e3:.0f} kB. The API server, "
        "etcd, clients and pods share the cores with the router, so times have theirs in them; what each took is shown. "
        f"Load {before:.1f} before, {after:.1f} after.",
        table(["what", "figure"], [list(row) for row in start_rows(figures)]),
        single_text(figures),
        table(["from the API's answer to the first request by it, ms", "p50", "p90", "p99", "longest"], single_lines(figures["single"])),
        request_text(figures),
        request_table(figures),
        table(["processor, cores", "router", "API server", "etcd", "clients and pods", "plans/s", "scrapes/s"], core_lines(figures)),
    ]


def start_rows(figures):
    starts, idle = figures["starts"], figures["idle"]
    first = starts[0]
    ready = " / ".join(f"{start['ready_seconds']:.2f}" for start in starts)
    return [
        ("from the start of the process to `/readyz`, s, cold, each start", ready),
        ("processor time until then, s", " / ".join(f"{start['cpu_seconds']:.2f}" for start in starts)),
        ("resident memory then, MiB / peak until then", " / ".join(
            figure(max(start[name] for start in starts)) for name in ("resident_mib", "peak_mib"))),
        ("every object's first status written after, s (at most 50 a second)", f"{first['statuses_seconds']:.1f}"),
        ("resident memory of the router at rest / at the end / peak, MiB", " / ".join(
            figure(value) for value in (idle["resident_mib"], figures["end"]["resident_mib"], figures["end"]["peak_mib"]))),
        ("processor of the router at rest, cores", f"{idle['cores']['router']:.2f}"),
        ("its metrics page, ms / kB", f"{idle['metrics_page_ms']:.0f} / {idle['metrics_page_bytes'] / 1e3:,.0f}"),
    ]


def cpu_of_a_change(figures, phase, rest):
    """Milliseconds of the router's processor beyond what it takes without changes."""
    beyond = phase["cores"]["router"] - rest["cores"]["router"]
    return 1e3 * beyond * phase["seconds"] / phase["changes"]


def single_text(figures):
    single, alone, busy = figures["single"], figures["alone"], figures["changing"]
    quiet = median(phase["cores"]["router"] for phase in figures["quiet"])
    one = cpu_of_a_change(figures, alone, figures["idle"])
    many = cpu_of_a_change(figures, busy, {"cores": {"router": quiet}})
    return (f"One change at a time, {single['route_us']['count']} of each kind, 250 ms apart. A plan "
            f"(all objects made into routes and endpoints, and taken into use) took {single['plan_us']['p50'] / 1e3:.1f} ms p50, "
            f"{single['plan_us']['p99'] / 1e3:.1f} ms p99. A change cost the router {one:.1f} ms of processor when it came alone "
            f"({alone['changes']} changes, {alone['plans']:.0f} plans), and {many:.1f} ms among {busy['changes_per_second']:.0f} a second "
            f"({busy['changes']} changes, {busy['plans']:.0f} plans), its statuses included.")


def single_lines(single):
    kinds = (("a route points elsewhere", "route_us"), ("a pod becomes ready", "ready_us"), ("a pod is not ready any more", "unready_us"))
    return [[what, *(f"{single[name][at] / 1e3:.1f}" for at in ("p50", "p90", "p99", "max"))] for what, name in kinds]


def request_text(figures):
    busy = figures["changing"]
    kinds = ", ".join(f"{busy['kinds'][kind]} {what}" for kind, what in KINDS.items())
    plans = busy["plan_us"]
    return (f"Requests by ten clients that keep their connections, {busy['routed_us']['count'] / busy['seconds']:.0f} a second "
            "through the router for models whose routes and pods change, and as many to pods directly, in turns. In the middle "
            f"phase {busy['changes_per_second']:.0f} changes a second for {busy['seconds']:.0f} s: {kinds}. A plan took "
            f"{plans['p50'] / 1e3:.1f} ms p50, {plans['max'] / 1e3:.1f} ms at most, as looked at every two seconds. `wrong` are answers of "
            "a pod that the route did not lead to at any moment of the last second, or under another server's model name.")


def phases(figures):
    first, last = figures["quiet"]
    return [("quiet", first), (f"{figures['changing']['changes_per_second']:.0f} changes a second", figures["changing"]),
            ("quiet again", last)]


def request_table(figures):
    lines = []
    for name, phase in phases(figures):
        for side, spread in (("router", phase["routed_us"]), ("direct", phase["direct_us"])):
            ours = side == "router"
            lines.append([f"{name}: {'through the router' if ours else 'direct call'}", figure(spread["count"]),
                          *(figure(spread[at]) for at in ("p50", "p90", "p99", "max")),
                          *((figure(phase["failed"]), figure(phase["wrong"])) if ours else ("-", "-"))])
    return table(["requests", "answered", "p50 us", "p90 us", "p99 us", "longest us", "failed", "wrong"], lines)


def core_lines(figures):
    lines = []
    for name, phase in (("at rest", figures["idle"]), ("4 changes a second, no requests", figures["alone"]), *phases(figures)):
        cores = phase["cores"]
        lines.append([name, *(f"{cores[who]:.2f}" for who in ("router", "api_server", "etcd", "clients_and_pods")),
                      f"{phase['plans'] / phase['seconds']:.1f}", figure(phase["scrapes_per_second"])])
    return lines
