"""Two real engines with an agent each, one real Redis, two routers that know the engines' caches from Redis alone.

What an engine really held is read from its own answers (`cached_tokens`), never from the events.
"""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

REDIS_PORT = 18600
WAIT_S = 30


class Redis:
    """A `redis-server` of our own, without a disk."""

    def __init__(self, args):
        log = open(Path(args.root) / "redis.log", "w")
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(REDIS_PORT), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
            stdout=log, stderr=log, cwd=args.root)
        self.url = f"redis://127.0.0.1:{REDIS_PORT}"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)


class Agent:
    """One `kvasir agent` beside one engine."""

    def __init__(self, args, engine, redis):
        self.port = 18700 + engine.number
        log = open(Path(args.root) / f"agent-{engine.number}.log", "a")
        self.process = subprocess.Popen(
            [args.kvasir, "agent", "--engine", "vllm", "--engine-base-url", engine.url, "--pod", "127.0.0.1.default",
             "--kv-events", f"tcp://127.0.0.1:{engine.events},replay=tcp://127.0.0.1:{engine.replay}",
             "--redis", redis.url, "--host", "127.0.0.1", "--port", str(self.port), "--layout", "native"],
            stdout=log, stderr=log)
        until = time.time() + WAIT_S
        while time.time() < until:
            try:
                if urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=2).status == 200:
                    return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None:
                    sys.exit(f"the agent ended; see {args.root}/agent-{engine.number}.log")
            time.sleep(0.05)
        sys.exit("the agent did not become ready")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=30)


def eventually(holds):
    """Whether it came true in time, and after how many seconds."""
    began = time.time()
    while time.time() - began < WAIT_S:
        if holds():
            return time.time() - began
        time.sleep(0.02)
    return None


def credit(router, model, prompt):
    """What a router thinks each engine holds of a chat, by a dry run."""
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{router.admin}/explain", body, {"content-type": "application/json"})
    record = json.load(urllib.request.urlopen(request, timeout=10))
    return {candidate["endpoint"]: candidate["reusable_tokens"] for candidate in record["candidates"]}


def run(args, report, engines, tokenizer, parts):
    """All checks; `parts` has the run's own pieces: the model's name, Router, chat, text."""
    model, Router, chat, text = parts
    redis = Redis(args)
    agents = [Agent(args, engine, redis) for engine in engines]
    flags = [*tokenizer, "--redis", redis.url]
    try:
        with Router(args, engines, *flags) as first:
            with Router(args, engines, *flags, offset=1) as second:
                sources = {owner["source"] for router in (first, second) for owner in router.get("/debug/index")}
                report.check("both routers know the caches from Redis", all("redis" in source.lower() for source in sources), f"{sources}")
                pins = []
                for number in range(6):
                    one, other = (first, second) if number % 2 else (second, first)
                    prompt = text(3000, f"agents-{number}-{time.time()}")
                    holder, _, _ = chat(one, prompt + " one")
                    seen = eventually(lambda: credit(other, model, prompt + " two").get(holder, 0) > 2500)
                    there, _, cached = chat(other, prompt + " two")
                    pins.append((there == holder and cached > 2500, cached, None if seen is None else round(1000 * seen)))
                report.check("a prompt sent through one router is pinned by the other", all(pin for pin, _, _ in pins),
                             f"(pinned, cached tokens, ms until the other knew): {pins}")
            prompt = text(3000, f"agents-restart-{time.time()}")
            holder, _, _ = chat(first, prompt + " one")
        with Router(args, engines, *flags) as again:
            there, _, cached = chat(again, prompt + " two")
            report.check("a restarted router is warm from its first request, by Redis", there == holder and cached > 2500,
                         f"to the holder: {there == holder}, cached tokens {cached}")
            victim = next(number for number, engine in enumerate(engines) if str(engine.port) in holder)
            agents[victim].kill()
            kept = credit(again, model, prompt + " three").get(holder, 0)
            agents[victim] = Agent(args, engines[victim], redis)
            lost = eventually(lambda: credit(again, model, prompt + " three").get(holder, 0) == 0)
            report.check("an agent killed and started again loses nothing", kept > 2500 and lost is None,
                         f"credit {kept} tokens while it was away, never 0 in {WAIT_S} s after")
            engines[victim].stop()
            gone = eventually(lambda: credit(again, model, prompt + " four").get(holder, 0) > 0)
            engines[victim].start()
            engines[victim].wait()
            cleared = eventually(lambda: credit(again, model, prompt + " five").get(holder, 0) == 0)
            _, _, cached = chat(again, prompt + " five")
            report.check("a restarted engine has no credit behind a living agent", cleared is not None,
                         f"held until the restart: {gone is not None}; credit gone "
                         f"{None if cleared is None else round(1000 * cleared)} ms after the engine was well again; cached afterwards {cached}")
    finally:
        for agent in agents:
            agent.stop()
        redis.stop()
