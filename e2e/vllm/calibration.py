"""Measures requests at one real vLLM engine on the CPU, for the simulator to be fitted to.

Writes a JSON file of phases, each begun with an idle engine: what every request was (prompt tokens, cached tokens, answer
tokens, when it was sent) and how long it took (until the first token, until the last). `kvasir simulate --calibrate FILE`
fits the engine model to it. A few minutes.

    python3 e2e/vllm/calibration.py --root ~/.cache/kvasir/vllm --out e2e/simulator/data/vllm-cpu.json
"""

import argparse
import http.client
import json
import os
import random
import threading
import time
from pathlib import Path

from run import BLOCK, MODEL, Engine, text

# As the engine is started in run.py: --num-gpu-blocks-override, --max-num-seqs, and vLLM's default token budget.
KV_BLOCKS, MOST_RUNNING, STEP_TOKENS = 4096, 8, 2048

# A random model repeats pieces of characters, which the engine holds back until its answer ends; letters it sends at once.
# These are the ids of A to Z in Qwen2.5's tokenizer.
LETTERS = list(range(32, 58))

# Words of about 1.3 tokens: what is wanted is a spread of lengths, the tokens are counted by the engine.
TOKENS_PER_WORD = 1.3


def ask(engine, begin, prompt, answer, into, lock):
    """One streamed completion; its figures go into the list."""
    body = json.dumps({
        "model": MODEL, "prompt": prompt, "max_tokens": answer, "min_tokens": answer, "ignore_eos": True,
        "temperature": 0.0, "stream": True, "stream_options": {"include_usage": True},
        "allowed_token_ids": LETTERS,
    })
    connection = http.client.HTTPConnection("127.0.0.1", engine.port, timeout=600)
    # The connection is not what is measured.
    connection.connect()
    sent = time.perf_counter()
    connection.request("POST", "/v1/completions", body, {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"the engine said {response.status}: {response.read()[:200]}")
    first = last = usage = None
    while line := response.readline():
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        chunk = json.loads(line[6:])
        if chunk.get("choices"):
            last = time.perf_counter()
            first = first or last
        usage = chunk.get("usage") or usage
    connection.close()
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    with lock:
        into.append({
            "sent": round(sent - begin, 6), "prompt": usage["prompt_tokens"], "cached": cached,
            "answer": usage["completion_tokens"], "ttft": round(first - sent, 6), "total": round(last - sent, 6),
        })


def phase(engine, concurrency, prompts):
    """All prompts, `concurrency` at once, in order."""
    requests, lock, queue = [], threading.Lock(), list(reversed(prompts))
    begin = time.perf_counter()

    def work():
        while True:
            with lock:
                if not queue:
                    return
                prompt, answer = queue.pop()
            ask(engine, begin, prompt, answer, requests, lock)

    threads = [threading.Thread(target=work) for _ in range(concurrency)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    requests.sort(key=lambda request: request["sent"])
    print(f"{concurrency:3} at once: {len(requests)} requests in {time.perf_counter() - begin:.1f} s", flush=True)
    return {"concurrency": concurrency, "requests": requests}


def prompts(source, count, name):
    """Prompts of mixed lengths; half of them continue one of a few shared beginnings."""
    shared = [text(source.choice([300, 1200, 3000]), f"{name}-shared-{number}") for number in range(4)]
    made = []
    for number in range(count):
        own = int(min(6000, max(8, source.lognormvariate(5.3, 1.2))) / TOKENS_PER_WORD)
        words = text(own, f"{name}-own-{number}")
        made.append((f"{source.choice(shared)} {words}" if number % 2 else words, source.choice([1, 8, 32, 64])))
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", required=True, help="what e2e/vllm/setup.sh made")
    parser.add_argument("--out", required=True)
    parser.add_argument("--requests", type=int, default=40, help="of each phase")
    args = parser.parse_args()
    # Threads that compute wait in a loop. One core stays for the engine's front end and for the client, or the tokens of an
    # answer arrive in one piece.
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "0"
    engine = Engine(args, 0)
    engine.start(events=False)
    try:
        engine.wait()
        source = random.Random(1)
        # The first requests compile and allocate; they are not kept.
        phase(engine, 4, prompts(source, 12, "warm-up"))
        phases = [phase(engine, at_once, prompts(source, args.requests, f"phase-{at_once}")) for at_once in (1, 2, 4, 8, 16)]
    finally:
        engine.stop()
    answers = [request for phase in phases for request in phase["requests"] if request["answer"] > 1]
    gaps = sorted((request["total"] - request["ttft"]) / (request["answer"] - 1) for request in answers)
    lumps = sum(gap < gaps[len(gaps) // 2] / 5 for gap in gaps)
    print(f"{lumps} of {len(answers)} answers came in lumps" + ("; the machine is too busy" if 10 * lumps > len(answers) else ""))
    capture = {
        "engine": f"vllm-cpu 0.32.0, a tiny random Qwen2 model, one core", "kv_blocks": KV_BLOCKS,
        "block_size": BLOCK, "step_tokens": STEP_TOKENS, "most_running": MOST_RUNNING, "phases": phases,
    }
    Path(args.out).write_text(json.dumps(capture, indent=1) + "\n")


if __name__ == "__main__":
    main()
