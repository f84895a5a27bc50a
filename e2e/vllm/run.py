"""Drives two real vLLM engines and the router, and writes down what was seen.

Each check prints `ok` or `FAILED` with figures; the exit code is the number of failures.
"""

import argparse
import datetime
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import agents
import scheduling

MODEL = "test-model"
BLOCK = 32
ENGINE_START_S = 600
WORDS = (
    "river stone market lantern harbour window copper thread garden signal winter engine paper bridge orchard "
    "valley silver morning carpet island mirror candle forest table letter ocean planet railway kitchen summer"
).split()


class Engine:
    """One `vllm serve` process."""

    def __init__(self, args, number):
        self.args, self.number = args, number
        self.port = 18101 + number
        self.events, self.replay = 15611 + 10 * number, 15711 + 10 * number
        self.process = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self, events=True, buffer_steps=10000):
        root = Path(self.args.root)
        env = dict(
            os.environ,
            PATH=f"{root / 'env-0.32.0' / 'bin'}:{os.environ['PATH']}",
            HF_HUB_OFFLINE="1",
            TRANSFORMERS_OFFLINE="1",
            VLLM_NO_USAGE_STATS="1",
            DO_NOT_TRACK="1",
            VLLM_SERVER_DEV_MODE="1",
            VLLM_CPU_KVCACHE_SPACE="2",
        )
        command = [
            "vllm", "serve", str(root / "tiny-qwen2.5"), "--host", "127.0.0.1", "--port", str(self.port),
            "--served-model-name", MODEL, "--dtype", "float32", "--enforce-eager", "--max-model-len", "32768",
            "--max-num-seqs", "8", "--block-size", str(BLOCK), "--num-gpu-blocks-override", "4096",
            "--enable-prefix-caching", "--enable-prompt-tokens-details",
        ]
        if self.number == 1:
            # Without it the render endpoints answer 403, which the other engine shows.
            command += ["--enable-scale-out"]
        if events:
            command += ["--kv-events-config", json.dumps({
                "enable_kv_cache_events": True, "publisher": "zmq", "endpoint": f"tcp://*:{self.events}",
                "replay_endpoint": f"tcp://*:{self.replay}", "topic": "kv-events", "buffer_steps": buffer_steps,
            })]
        log = open(root / f"engine-{self.number}.log", "w")
        self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)

    def wait(self):
        until = time.time() + ENGINE_START_S
        while time.time() < until:
            if self.process.poll() is not None:
                sys.exit(f"engine {self.number} ended; see {self.args.root}/engine-{self.number}.log")
            try:
                if urllib.request.urlopen(f"{self.url}/health", timeout=2).status == 200:
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        sys.exit(f"engine {self.number} did not start in {ENGINE_START_S} s")

    def stop(self):
        if self.process and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class Router:
    """One `kvasir router` process."""

    def __init__(self, args, engines, *flags, offset=0):
        self.port, self.metrics, self.admin = 18200 + offset, 18300 + offset, 18400 + offset
        self.log = Path(args.root) / f"router-{offset}.log"
        command = [
            args.kvasir, "router", "--listen", f"127.0.0.1:{self.port}", "--metrics-listen", f"127.0.0.1:{self.metrics}",
            "--admin-listen", f"127.0.0.1:{self.admin}", "--endpoint-header", "--drain-settle", "0s",
            "--model", f"{MODEL}=" + ",".join(engine.url for engine in engines), *flags,
        ]
        env = dict(os.environ, ACCESS_LOG_OUTPUT=str(Path(args.root) / f"access-{offset}.log"))
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=open(self.log, "w"), env=env)
        until = time.time() + 60
        while time.time() < until:
            try:
                if urllib.request.urlopen(f"{self.url}/readyz", timeout=2).status == 200:
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None:
                    sys.exit(f"the router ended; see {self.log}")
                time.sleep(0.05)
        sys.exit("the router did not become ready")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def get(self, path):
        return json.load(urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=10))

    def page(self):
        return urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=10).read().decode()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def chat(router, prompt, max_tokens=4):
    """Sends one chat; gives the endpoint that served it, its prompt tokens and its cached tokens."""
    body = {"model": MODEL, "max_tokens": max_tokens, "messages": [{"role": "user", "content": prompt}]}
    request = urllib.request.Request(
        f"{router.url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    answer = urllib.request.urlopen(request, timeout=120)
    usage = json.load(answer)["usage"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return answer.headers["x-kvasir-endpoint"], usage["prompt_tokens"], cached


def text(words, seed):
    source = random.Random(seed)
    return " ".join(source.choice(WORDS) for _ in range(words))


class Report:
    def __init__(self):
        self.lines, self.sections, self.failures = [], [], 0

    def check(self, name, passed, figures):
        word = "ok" if passed else "FAILED"
        self.failures += not passed
        print(f"{word:6} {name}: {figures}", flush=True)
        self.lines.append(f"| {name} | {word} | {figures} |")

    def write(self, path, took):
        head = (
            f"# Against real vLLM\n\nMade by `make e2e-vllm` on {datetime.date.today()}: vllm-cpu 0.32.0, two engines, a tiny random "
            f"Qwen2 model with the real Qwen2.5 tokenizer, blocks of {BLOCK} tokens, 2 cores. Took {took / 60:.0f} minutes.\n\n"
            "| check | result | figures |\n|---|---|---|\n"
        )
        tail = f"\n\n{len(self.lines)} checks, {self.failures} failed.\n"
        Path(path).write_text(head + "\n".join(self.lines) + tail + "".join(self.sections))


def probe(args, router, engines, api, requests, prefix=19400):
    command = [args.kvasir, "probe", "--url", router.url, "--model", MODEL, "--requests", str(requests),
               "--prefix-tokens", str(prefix), "--api", api, "--json", "--expect", "any"]
    for engine in engines:
        command += ["--engine", engine.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    try:
        return json.loads(done.stdout)
    except ValueError:
        sys.exit(f"probe: {done.stdout}\n{done.stderr}")


def probes(args, report, engines, name, flags, expect, requests=4):
    """The probe in chat and completions form through a router with these flags."""
    with Router(args, engines, *flags) as router:
        for api in ("chat", "completions"):
            phase = probe(args, router, engines, api, requests)["sequential"]
            lines = phase["requests"]
            served = [line["engine"] for line in lines]
            cached = [line["cached_tokens"] or 0 for line in lines]
            shared = [line["shared_tokens"] or 1 for line in lines]
            figures = f"engines {served}, cached {cached} of {shared[0]} shared, {phase['verdict']}"
            if expect == "pinned":
                enough = all(hit >= 0.95 * of for hit, of in zip(cached[1:], shared[1:]))
                passed = len(set(served)) == 1 and None not in served and enough
            else:
                passed = len(set(served)) > 1
            report.check(f"{name}, {api}", passed, figures)


def first_requests(args, report, engines, tokenizer):
    """A new router's very first request goes to the engine that holds its prefix."""
    hits, beside = [], []
    for round_number in range(3):
        prompt = text(3000, f"first-{round_number}-{time.time()}")
        with Router(args, engines, *tokenizer) as first:
            holder, _, _ = chat(first, prompt + " one")
            with Router(args, engines, *tokenizer, offset=1) as second:
                there, _, cached = chat(second, prompt + " two")
                beside.append((there == holder, cached))
        with Router(args, engines, *tokenizer) as again:
            there, _, cached = chat(again, prompt + " three")
            hits.append((there == holder, cached))
    report.check("a restarted router's first request", all(hit for hit, _ in hits), f"to the holder, cached tokens: {hits}")
    report.check("a second router's first request", all(hit for hit, _ in beside), f"to the holder, cached tokens: {beside}")


def predictions(args, report, engines, tokenizer):
    """Predicted against reported cached tokens over at least 500 requests."""
    with Router(args, engines, *tokenizer) as router:
        command = [args.kvasir, "probe", "load", "--url", router.url, "--model", MODEL, "--workload", "multi-turn",
                   "--users", "8", "--turns", "8", "--requests", "520", "--concurrency", "8", "--max-tokens", "16", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
        page = router.page()
        load = json.loads(done.stdout)
        buckets = dict(re.findall(r'kvasir_cached_tokens_off_blocks_bucket\{[^}]*le="([^"]+)"\} (\d+)', page))
        total, within = int(buckets.get("+Inf", 0)), int(buckets.get("1", 0))
        share = within / total if total else 0.0
        report.check("predicted cached tokens within one block", total >= 500 and share >= 0.99,
                     f"{within} of {total} ({100 * share:.1f} %), hit rate {load.get('hit_rate')}, errors {load.get('failed')}")
        proof = dict(re.findall(r'kvasir_prompt_tokens_proof_total\{[^}]*result="(\w+)"[^}]*\} (\d+)', page))
        report.check("our prompt token count equals the engine's", int(proof.get("equal", 0)) >= 500 and "differs" not in proof,
                     f"{proof}")


def post(url, path, body):
    """A JSON answer with its status; an engine's refusal is an answer too."""
    request = urllib.request.Request(url + path, body.encode(), {"content-type": "application/json"})
    try:
        answer = urllib.request.urlopen(request, timeout=60)
        return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, None


def rendered(url, path, body):
    """The ids of one prompt by a render endpoint; `None` when it refuses or the request holds several prompts."""
    status, answer = post(url, path + "/render", body)
    if status != 200:
        return None
    answers = answer if isinstance(answer, list) else [answer]
    return answers[0]["token_ids"] if len(answers) == 1 else None


def tokens_agree(args, report, engine):
    """Local ids, those of a supervised render child, and the serving engine's, for 200 requests that the engine takes."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "exactness"))
    from corpus import Corpus  # noqa: PLC0415  (next to the exactness run, which owns it)

    model = Path(args.root) / "tiny-qwen2.5"
    added = [token["content"] for token in json.loads((model / "tokenizer.json").read_text())["added_tokens"]]
    corpus, requests, by_engine = Corpus("qwen2_5", added, 11, stable=False), [], []
    for _ in range(2000):
        if len(requests) == 200:
            break
        path, body = corpus.request()
        ids = rendered(engine.url, path, body)
        if ids is not None:
            requests.append((path, body))
            by_engine.append(ids)
    lines = "".join(f'{{"path":{json.dumps(path)},"body":{body}}}\n' for path, body in requests)
    encode = [args.kvasir, "tokens", "encode", "--tokenizer", str(model), "--requests", "-", "--encoder", "fast"]
    done = subprocess.run(encode, input=lines, capture_output=True, text=True, timeout=300)
    local = [json.loads(line)["fast"].get("ids") for line in done.stdout.splitlines()]
    env = dict(os.environ, PATH=f"{Path(args.root) / 'env-0.32.0' / 'bin'}:{os.environ['PATH']}", HF_HUB_OFFLINE="1",
               VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")
    service = subprocess.Popen(
        [args.kvasir, "tokenizer", "--host", "127.0.0.1", "--port", "18500", "--renderer-base-port", "18510", "--engine", "render",
         "--models", json.dumps({MODEL: str(model)})],
        env=env, stdout=subprocess.DEVNULL, stderr=open(Path(args.root) / "tokenizer.log", "w"))
    try:
        until = time.time() + 300
        while True:
            try:
                state = json.load(urllib.request.urlopen("http://127.0.0.1:18500/models", timeout=5))["models"][0]
            except (urllib.error.URLError, OSError, IndexError):
                state = {"status": "starting"}
            if state["status"] == "ready":
                break
            if time.time() > until or state["status"] == "failed":
                sys.exit(f"the render child did not start: {state}")
            time.sleep(1)
        child = [rendered(f"http://127.0.0.1:{state['port']}", path, body) for path, body in requests]
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(timeout=60)
    equal = sum(a == b == c for a, b, c in zip(by_engine, local, child, strict=True))
    tokens = sum(map(len, by_engine))
    report.check("local tokens, a render child and the engine agree", equal == 200, f"{equal} of 200 requests, {tokens} tokens")


def wrong_tokenizer(args, report, engines):
    """A wrong tokenizer is found out by the engine's own counts and not asked any more."""
    wrong = Path(args.tokenizer).parent / "llama3_1"
    with Router(args, engines, "--tokenizer", f"{MODEL}={wrong}") as router:
        sources = []
        # A small prompt gives the engine's own tokenizer 10 ms, which a busy machine may not have every time.
        for number in range(12):
            chat(router, text(400, f"wrong-{number}-{time.time()}"))
            time.sleep(0.3)
            sources.append(router.get("/explain")[0]["tokens"]["source"])
        states = {source["source"]: source for source in router.get("/debug/tokens")[0]["sources"]}
        local = states["local"]
        report.check("a wrong tokenizer is demoted within the first requests", local["demoted"] and "local" not in sources[3:] and "engine" in sources[3:],
                     f"sources {sources}, contradictions {local['contradictions']}")


def engine_restart(args, report, engines, tokenizer):
    """A restarted engine gets no credit for what it lost."""
    prompt = text(3000, f"restart-{time.time()}")
    with Router(args, engines, *tokenizer) as router:
        holder, _, _ = chat(router, prompt + " one")
        victim = next(engine for engine in engines if str(engine.port) in holder)
        victim.stop()
        victim.start()
        victim.wait()
        time.sleep(3)  # events of the new life are followed within a probe interval
        body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": prompt + " two"}]}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{router.admin}/explain", body, {"content-type": "application/json"})
        record = json.load(urllib.request.urlopen(request, timeout=10))
        credit = {c["endpoint"]: c["reusable_tokens"] for c in record["candidates"]}
        basis = {c["endpoint"]: (c["predicted_tokens"], c["completeness"]) for c in record["candidates"]}
        _, _, cached = chat(router, prompt + " three")
        report.check("a restarted engine has no credit", credit.get(holder, 0) == 0,
                     f"holder {holder}, credit {credit} (predicted, completeness: {basis}), cached afterwards {cached}")


def small_buffer(args, report, engines, tokenizer):
    """Replay buffer of 50 batches, more since the start: a restarted router is partial, says so, and is not wrong."""
    engine = engines[0]
    engine.stop()
    engine.start(buffer_steps=50)
    engine.wait()
    early = text(2000, f"early-{time.time()}")
    with Router(args, [engine], *tokenizer) as router:
        chat(router, early + " one")
        for number in range(80):
            chat(router, text(200, f"filler-{number}-{time.time()}"), max_tokens=2)
    with Router(args, [engine], *tokenizer) as router:
        owner = router.get("/debug/index")[0]
        said = "partial" in router.log.read_text()
        off = []
        for prompt in (early + " two", text(200, "after"), early + " three"):
            chat(router, prompt)
            record = router.get("/explain")[0]
            off.append((record["predicted_cached_tokens"], record["outcome"]["usage"]["cached_tokens"]))
        wrong = [pair for pair in off if pair[0] > pair[1] + BLOCK]
        report.check("a router beyond the replay buffer is partial", owner["completeness"] == "partial" and said,
                     f"completeness {owner['completeness']}, said at start: {said}")
        report.check("and it does not claim what it cannot know", not wrong, f"(predicted, reported): {off}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("kvasir", "root", "tokenizer", "report"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--only", choices=["scheduling"], help="this leg alone")
    args = parser.parse_args()
    began, report = time.time(), Report()
    engines = [Engine(args, 0), Engine(args, 1)]
    local = ["--tokenizer", f"{MODEL}={args.tokenizer}"]
    try:
        for engine in engines:
            engine.start()
        for engine in engines:
            engine.wait()
        if args.only:
            scheduling.run(args, report, engines, local, (MODEL, Router))
            return finish(report)
        probes(args, report, engines, "KV-aware, local tokens", local, "pinned")
        probes(args, report, engines, "KV-aware, engine tokens", [], "pinned")
        probes(args, report, engines, "random", ["--routing", "random"], "scattered", requests=8)
        first_requests(args, report, engines, local)
        predictions(args, report, engines, local)
        scheduling.run(args, report, engines, local, (MODEL, Router))
        tokens_agree(args, report, engines[1])
        wrong_tokenizer(args, report, engines)
        engine_restart(args, report, engines, local)
        agents.run(args, report, engines, local, (MODEL, Router, chat, text))
        small_buffer(args, report, engines, local)
        for engine in engines:
            engine.stop()
        for engine in engines:
            engine.start(events=False)
        for engine in engines:
            engine.wait()
        probes(args, report, engines, "without events (approximate)", local, "pinned")
    finally:
        for engine in engines:
            engine.stop()
        if not args.only:
            report.write(args.report, time.time() - began)
    finish(report)


def finish(report):
    print("".join(report.sections))
    print(f"{len(report.lines) - report.failures} passed, {report.failures} failed")
    sys.exit(min(report.failures, 100))


if __name__ == "__main__":
    main()
