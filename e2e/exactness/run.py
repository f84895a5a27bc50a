"""The differential test: a generated corpus through a real engine's renderer and through ours, id for id.

Every line of the corpus is asked of `vllm launch render`, of `/tokenize` where the renderer refuses for a reason that has
nothing to do with tokens, and of `kvasir tokens encode` with both encoders. A difference in ids is a failure.
"""

import argparse
import collections
import datetime
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corpus import Corpus
from engine import CONFIGS, DIRECTORIES, MISTRAL_CONTROLS, MISTRAL_MODELS, MISTRAL_VERSIONS, MODEL, TEMPLATES, Render

HERE = Path(__file__).resolve().parent
ENGINE = "0.32.0"
# The only parser of tool calls that every vocabulary satisfies; with it the renderer takes tool_choice auto.
FLAGS = ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
CONFIGURED = HERE.parents[1] / "router" / "tokenize" / "tests" / "data" / "directories"
# Tokens that are named nowhere but in the model's code.
OWN = {"llama_spm": ["<s>", "</s>", "<unk>"], "llama_spm_legacy": ["<pad>", "<|extra|>"], "qwen1": ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|extra_0|>",
       "<|extra_204|>", "<|extra_205|>"], "kimi_k2": ["<|reserved_token_163589|>", "<|reserved_token_163841|>"], "cl100k": ["<|endofprompt|>", "<|fim_middle|>"],
       "pat_str": ["<|im_start|>"], "llama_json": [], "extra_listed": ["<|picture|>", "<|boi|>", "<|eoi|>", "<|ignored|>", "<|vision_pad|>", "</tool_call>"],
       "extra_old": ["<|picture|>", "<|boi|>", "<|late|>", "<|more|>", "<|call|>", "word", "<|im_start|>", "<|im_end|>", "<|pad|>", "<|fim_pad|>"]}
# Least part of the requests that must be equal, and most that may be declined: a run that compares nothing has shown nothing. Templates
# that change the case of letters are declined where Unicode versions differ.
LEAST_EQUAL, MOST_DECLINED = 0.65, 0.01
BOUNDS = {"strings": (0.55, 0.4)}
FROZEN = 200
FROZEN_BODY = 2_500  # bytes
FROZEN_IDS = 900
# What `/tokenize` reads of a chat request.
TOKENIZE_CHAT = ("messages", "tools", "add_generation_prompt", "continue_final_message", "add_special_tokens", "chat_template_kwargs")


def prepare(tokenizers, work, name):
    """A model directory without weights: the tokenizer's files and a configuration."""
    name = TEMPLATES.get(name, name)
    directory = work / name
    directory.mkdir(parents=True, exist_ok=True)
    if name in MISTRAL_VERSIONS:
        file = json.loads((tokenizers / "mistral_tekken" / "tekken.json").read_text())
        file["config"]["version"] = version = MISTRAL_VERSIONS[name]
        file.pop("image", None)
        if version != "v3":
            file["special_tokens"] = [{"rank": n, "token_str": text, "is_control": True} for n, text in enumerate(MISTRAL_CONTROLS)]
        (directory / "tekken.json").write_text(json.dumps(file))
    else:
        source, _ = DIRECTORIES.get(name, (name, False))
        for file in [*(tokenizers / source).iterdir(), *((CONFIGURED / name).iterdir() if name in DIRECTORIES else ())]:
            # Transformers takes no model with a version in its name.
            link = directory / ("tokenizer.model" if name.startswith("llama_spm") and ".model." in file.name else file.name)
            link.unlink(missing_ok=True)
            link.symlink_to(file)
    (directory / "config.json").unlink(missing_ok=True)  # it may be a link to what must not change
    (directory / "config.json").write_text(json.dumps(CONFIGS[name]))
    return directory


def engine_flags(name):
    """How the engine is started for a model."""
    if name in MISTRAL_VERSIONS or name in MISTRAL_MODELS:
        # Its own parser of tool calls fails from v11 on with the mistral-common of this release, and is not needed.
        return ["--tokenizer-mode", "mistral"]
    return FLAGS + template_flags(name) + (["--trust-remote-code"] if DIRECTORIES.get(name, (name, False))[1] else [])


def template_flags(name):
    """The flags that name another chat template; the engine's and ours are the same."""
    return ["--chat-template", str(HERE / "templates" / f"{name}.jinja")] if name in TEMPLATES else []


def own_tokens(directory):
    """The added tokens that a text may hold, a handful of the numbered ones included."""
    if (directory / "tekken.json").exists() or directory.name in MISTRAL_MODELS:
        return MISTRAL_CONTROLS + ["[REF]", "[/REF]", "[REFERENCE_DOC_3]", "[control_17]"] * (directory.name in MISTRAL_MODELS)
    if directory.name in DIRECTORIES:
        listed = json.loads((directory / "tokenizer_config.json").read_text()).get("added_tokens_decoder", {})
        return [token["content"] for token in listed.values()] + OWN[directory.name]
    tokens = [token["content"] for token in json.loads((directory / "tokenizer.json").read_text())["added_tokens"]]
    plain = [token for token in tokens if not any(word in token for word in ("reserved", "unused", "place▁holder"))]
    numbered = [token for token in tokens if token not in set(plain)]
    return plain[:300] + numbered[:: max(1, len(numbered) // 12)]


def ask(render, path, body):
    """The engine's ids for one request, or the status of its refusal."""
    status, answer = render.call("POST", path + "/render", body.encode())
    if status == 200:
        answer = json.loads(answer)
        if isinstance(answer, list):
            return {"ids": answer[0]["token_ids"], "by": "render"} if len(answer) == 1 else {"refused": "several prompts"}
        return {"ids": answer["token_ids"], "by": "render"}
    reason = json.loads(answer).get("error", {}).get("message", "")[:200] if status < 500 else "status 500"
    refusal = {"refused": reason or f"status {status}", "status": status}
    # Its tool parser or its sampling options are at fault, not the prompt: the other endpoint knows neither.
    parsed = json.loads(body)
    if path == "/v1/chat/completions" and "tool" in reason.lower() and "parser" in reason and not {"reasoning_effort", "documents"} & parsed.keys() \
            and "reasoning_content" not in body:
        smaller = {key: parsed[key] for key in TOKENIZE_CHAT if key in parsed} | {"model": MODEL}
        # Numbers as the client wrote them would be lost here, so such bodies are left refused.
        if json.loads(json.dumps(parsed)) == parsed and "@raw" not in body:
            status, answer = render.call("POST", "/tokenize", json.dumps(smaller).encode())
            if status == 200:
                return {"ids": json.loads(answer)["tokens"], "by": "tokenize"}
    return refusal


def gather(args, name, directory, requests_file, answers_file):
    """Draws the corpus and asks the engine."""
    corpus = Corpus(name, own_tokens(directory), args.seed, stable=False)
    requests = [corpus.request() for _ in range(args.count)]
    with open(requests_file, "w") as out:
        for path, body in requests:
            out.write(f'{{"path":{json.dumps(path)},"body":{body}}}\n')
    with Render(args.root / f"env-{ENGINE}", directory, args.work / f"{name}.log", engine_flags(name)) as render, open(answers_file, "w") as out:
        print(f"{name}: renderer ready after {render.start_seconds:.0f} s", flush=True)
        out.write(json.dumps({"version": render.version(), "date": datetime.date.today().isoformat()}) + "\n")
        for path, body in requests:
            out.write(json.dumps(ask(render, path, body)) + "\n")


def encode(args, name, directory, requests_file):
    """Our ids through both encoders, and the same again with a warm memory."""
    began = time.time()
    command = [args.kvasir, "tokens", "encode", "--tokenizer", str(directory), "--requests", str(requests_file), "--encoder", "both", *template_flags(name)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()], time.time() - began


def first_difference(expected, ours):
    at = next((n for n, (a, b) in enumerate(zip(expected, ours)) if a != b), min(len(expected), len(ours)))
    return f"position {at} of {len(expected)} (ours {len(ours)}): engine {expected[at:at + 4]}, ours {ours[at:at + 4]}"


def compare(name, requests, answers, ours):
    """Counts what agrees; returns the counts, the failures, and the lines that agree with ids."""
    counts, failures, equal, declined = collections.Counter(), [], [], collections.Counter()
    kinds = collections.Counter()
    for number, ((path, body), answer, mine) in enumerate(zip(requests, answers, ours, strict=True)):
        results = [mine["fast"], mine["reference"]]
        if "ids" in answer:
            kinds[path] += 1
            counts[f"engine ids by {answer['by']}"] += 1
            given = [result for result in results if "ids" in result]
            wrong = [result for result in given if result["ids"] != answer["ids"]]
            if wrong:
                counts["different"] += 1
                failures.append((number, path, first_difference(answer["ids"], wrong[0]["ids"])))
            elif len(given) == 2:
                counts["equal"] += 1
                equal.append(number)
            else:
                reason = next(result["error"] for result in results if "error" in result)
                if reason.startswith(("not exact", "requests of this kind")):
                    counts["declined by us"] += 1
                    declined[reason] += 1
                else:
                    counts["refused by us alone"] += 1
                    failures.append((number, path, "refused by us alone: " + reason))
        elif all("error" in result for result in results):
            counts["refused by both"] += 1
        else:
            counts["refused by the engine alone"] += 1
            declined["engine: " + answer["refused"].splitlines()[0][:60]] += 1
    return counts, failures, equal, declined, kinds


def out_of_bounds(name, counts, requests):
    """What says that too little was compared."""
    least, most = BOUNDS.get(name, (LEAST_EQUAL, MOST_DECLINED))
    wrong = []
    if counts["equal"] < least * requests:
        wrong.append(f"only {counts['equal']} of {requests} are equal, {least:.0%} are the least")
    if counts["declined by us"] > most * requests + 1:
        wrong.append(f"{counts['declined by us']} of {requests} are declined, {most:.0%} are the most")
    for what in wrong:
        print(f"{name}: {what}")
    return wrong


def freeze(name, requests, answers, equal, target):
    """A sample of small requests that render the same on any day, with the engine's ids."""
    def stable(path, body):
        return name != "llama3_2" or path == "/v1/completions" or "date_string" in body

    fitting = [n for n in equal if len(requests[n][1]) < FROZEN_BODY and len(answers[n]["ids"]) < FROZEN_IDS
               and answers[n]["by"] == "render" and stable(*requests[n])]
    chosen = sorted(random.Random(name).sample(fitting, min(FROZEN, len(fitting))))
    target.mkdir(parents=True, exist_ok=True)
    text = "".join('{"path":%s,"body":%s,"ids":%s}\n' % (json.dumps(requests[n][0]), json.dumps(requests[n][1], ensure_ascii=False),
                   json.dumps(answers[n]["ids"], separators=(",", ":"))) for n in chosen)
    with open(target / f"{name}.jsonl.gz", "wb") as out, gzip.GzipFile(fileobj=out, mode="wb", mtime=0, filename="", compresslevel=9) as packed:
        packed.write(text.encode())
    print(f"{name}: {len(chosen)} requests frozen")


def one(args, name):
    directory = prepare(args.tokenizers, args.work, name)
    requests_file, answers_file = args.work / f"{name}-requests.jsonl", args.work / f"{name}-answers.jsonl"
    if not (args.reuse and answers_file.exists()):
        gather(args, name, directory, requests_file, answers_file)
    head, *answers = (json.loads(line) for line in open(answers_file))
    corpus = Corpus(name, own_tokens(directory), args.seed, stable=False)
    requests = [corpus.request() for _ in range(len(answers))]
    ours, seconds = encode(args, name, directory, requests_file)
    counts, failures, equal, declined, kinds = compare(name, requests, answers, ours)
    for number, path, what in failures[: args.show]:
        print(f"{name}: request {number} {path}: {what}")
    print(f"{name}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) + f" ({seconds:.1f} s for ours)", flush=True)
    for reason, count in declined.most_common(12):
        print(f"    {count:5} {reason}")
    made = name in TEMPLATES or MISTRAL_VERSIONS.get(name, "v3") != "v3"  # not a tokenizer that tests have at hand
    if args.freeze and not failures and not made:
        freeze(name, requests, answers, equal, args.freeze)
    failures += [(None, "all", what) for what in out_of_bounds(name, counts, len(requests))]
    return {"name": name, "counts": counts, "kinds": kinds, "declined": declined, "failures": len(failures), "version": head["version"],
            "requests": len(requests)}


def report(rows, args, path):
    total = collections.Counter()
    for row in rows:
        total.update(row["counts"])
    lines = ["# Exactness", "",
             f"Written by `make exactness` on {datetime.date.today().isoformat()}: seed {args.seed}, vLLM {rows[0]['version']}, {len(rows)} tokenizers, "
             f"{sum(row['requests'] for row in rows):,} generated requests.", "",
             "Each request goes to a real `vllm launch render` of that tokenizer and to `kvasir tokens encode` with both encoders. *Equal*: both "
             "encoders gave the engine's ids. *Declined*: the engine gave ids and we said that ours would not be exact (or that the request holds "
             "several prompts), so the request is routed by load. *Refused*: no ids; requests that the engine answers with 400 are not judged here.", "",
             "`mistral_v3` is `tekken_240911.json` of mistral-common; v7, v11 and v13 are the same vocabulary with the version and the control tokens "
             "that these rules need. `messages`, `parts` and `strings` are qwen3 with templates that print everything a template is given, or do to every "
             "text what chat templates do: a difference in anything that any template could print is a difference in ids. `strings` changes the case of "
             "random letters of all scripts, and declines where Unicode versions disagree about them.", "",
             "`mistral_spm_v1` to `v7` are mistral-common's SentencePiece models. `llama_spm` and `llama_spm_legacy` are the first of them as a Llama "
             "directory without `tokenizer.json`; `llama_json` is it with a `tokenizer.json` of Llama 2's kind, which transformers 5 takes to pieces. "
             "`extra_listed` and `extra_old` are qwen2_5's file with tokens, flags and names beside it, in today's files and in those of old. `qwen1`, `kimi_k2` and `cl100k` are the rank files of Qwen's first models, of Kimi K2 and of "
             "`cl100k_base`, `pat_str` is a rank file with a pattern in its configuration; there the engine runs (`--trust-remote-code`) a tokenizer class "
             "in `router/tokenize/tests/data/directories`, which gives the text to tiktoken by the rules of the model's own class.", "",
             "| tokenizer | requests | engine gave ids | equal | different | declined | refused by both | refused by the engine alone | refused by us alone |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    columns = ("equal", "different", "declined by us", "refused by both", "refused by the engine alone", "refused by us alone")
    for row in rows:
        given = sum(count for what, count in row["counts"].items() if what.startswith("engine ids"))
        lines.append(f"| {row['name']} | {row['requests']} | {given} | " + " | ".join(str(row["counts"][column]) for column in columns) + " |")
    given = sum(count for what, count in total.items() if what.startswith("engine ids"))
    lines.append(f"| all | {sum(row['requests'] for row in rows)} | {given} | " + " | ".join(str(total[column]) for column in columns) + " |")
    kinds = collections.Counter()
    for row in rows:
        kinds.update(row["kinds"])
    lines += ["", "Requests with the engine's ids, by API: " + ", ".join(f"`{kind}` {count:,}" for kind, count in sorted(kinds.items())) + ".", ""]
    ours = collections.Counter()
    for row in rows:
        ours.update({reason: count for reason, count in row["declined"].items() if not reason.startswith("engine: ")})
    if ours:
        lines += ["Declined by us, by reason:", "", *(f"- {reason}: {count}" for reason, count in ours.most_common()), ""]
    path.write_text("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kvasir", required=True)
    parser.add_argument("--root", type=Path, required=True, help="where setup.sh put the engine's environment")
    parser.add_argument("--tokenizers", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", help="comma-separated names")
    parser.add_argument("--count", type=int, default=2700)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--reuse", action="store_true", help="compare with the engine's answers of the last run")
    parser.add_argument("--show", type=int, default=10)
    parser.add_argument("--freeze", type=Path, help="write a sample with the engine's ids into this folder")
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    names = args.only.split(",") if args.only else [*CONFIGS, *TEMPLATES]
    rows = [one(args, name) for name in names]
    failures = sum(row["failures"] for row in rows)
    equal = sum(row["counts"]["equal"] for row in rows)
    if args.report and not args.only:
        report(rows, args, args.report)
    print(f"{equal} equal, {failures} failed, {len(rows)} tokenizers")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
