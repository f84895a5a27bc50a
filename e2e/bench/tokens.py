"""Tokens in the bench: runs `kvasir-bench-tokens`, and makes tables and targets of its figures."""

import os
import shutil
from statistics import median

import texts
from tables import figure, gap, table

# The order of the tables, and how the tokenizers are called there.
NAMES = {"qwen2_5": "Qwen2.5", "qwen3": "Qwen3", "llama3": "Llama 3", "llama3_1": "Llama 3.1", "llama3_2": "Llama 3.2",
         "deepseek_v3": "DeepSeek V3", "gemma3": "Gemma 3", "mistral_tekken": "Mistral (tekken)"}

# What is aimed at: milliseconds, and times as fast as plain Hugging Face `tokenizers`.
FIRST_MS, NEXT_MS, ADDED_MS, RATIO = 1.5, 0.3, 5, 15


def measure(setup, folder, root, quick, run_json):
    """Chats on one thread, then short chats beside long ones, for each tokenizer that is there."""
    directory = setup.tokenizer.parent
    found = [name for name in NAMES if any((directory / name / file).exists() for file in ("tokenizer.json", "tekken.json"))]
    absent = [name for name in NAMES if name not in found]
    if not found:
        return {"problem": f"no tokenizer in {directory}", "absent": absent}
    words = folder / "words"
    texts.write(words, root)
    # As the router sets them for itself: the encoder's own threads would only fight for the cores.
    env = {**os.environ, "FASTOKENS_BPE_THREADS": "1", "FASTOKENS_SPIN_US": "0"}
    program = str(setup.binaries / "kvasir-bench-tokens")
    flags = [f"--texts={words}", *(f"--tokenizer={name}={directory / name}" for name in found)]
    before = os.getloadavg()[0]
    chats = run_json([program, "chats", *flags, f"--rounds={3 if quick else 5}"], env)
    between = os.getloadavg()[0]
    lanes = run_json([program, "lanes", *flags, f"--rounds={4 if quick else 8}", "--bursts=40"], env)
    shutil.rmtree(words)
    return {"chats": chats, "lanes": lanes, "absent": absent, "busy": (before, between, os.getloadavg()[0])}


class Chat:
    """One tokenizer's figures for chats, in milliseconds."""

    def __init__(self, row):
        self.row, self.title = row, f"{NAMES[row['tokenizer']]} ({row['encoder']})"
        self.rounds = {case["name"]: case["rounds_us"] for group in ("cases", "stages") for case in row[group]}

    def p50(self, name):
        """Of the quietest round: whatever else the machine does makes a round slower, never faster."""
        return min(spread["p50"] for spread in self.rounds[name]) / 1e3

    def p99(self, name):
        """The median of the rounds' p99."""
        return median(spread["p99"] for spread in self.rounds[name]) / 1e3

    def fastest(self, name):
        return min(spread["min"] for spread in self.rounds[name])

    def times_plain(self, name):
        """Each at its fastest: on a busy machine the long runs of the plain one are interrupted, the short ones are not."""
        return self.fastest("plain") / self.fastest(name)


class Lane:
    """One tokenizer's figures for short chats beside long ones, in milliseconds."""

    def __init__(self, row):
        self.row, self.title = row, NAMES[row["tokenizer"]]

    def each(self, name, quantile):
        return [found[name][quantile] / 1e3 for found in self.row["rounds"]]

    def quietest(self, name, quantile):
        return min(self.each(name, quantile))

    def added(self, quantile):
        """Beside long ones beyond alone, each in its quietest round."""
        return self.quietest("beside_us", quantile) - self.quietest("alone_us", quantile)

    def added_median(self, quantile):
        """The same within each round, the median of them: with what else the machine did."""
        return median(beside - alone for beside, alone in zip(self.each("beside_us", quantile), self.each("alone_us", quantile)))


def chats(figures):
    return [Chat(row) for row in figures.get("chats", {}).get("rows", [])]


def lanes(figures):
    return [Lane(row) for row in figures.get("lanes", {}).get("rows", [])]


def targets(figures):
    """One row for what users meet most, one for the tokenizer that does worst; the tables have them all."""
    found = chats(figures)
    rows = []
    for work, wanted, unit, value, bound, more in (
            ("first sight: p50", f"{FIRST_MS} ms", "ms", lambda chat: chat.p50("first sight"), FIRST_MS, False),
            ("first sight: times plain HF", f"{RATIO} x", "x", lambda chat: chat.times_plain("first sight"), RATIO, True),
            ("next turn: p50", f"{NEXT_MS} ms", "ms", lambda chat: chat.p50("next turn"), NEXT_MS, False)):
        qwen = next((chat for chat in found if chat.row["tokenizer"] == "qwen2_5"), None)
        rows.append((f"tokens of a 20k-token chat, {work}, Qwen2.5", wanted, unit, value(qwen) if qwen else None, bound, more))
        # Where the fast encoder was not exact there is nothing to be faster with.
        worst = (min if more else max)((chat for chat in found if chat.row["encoder"] != "tokenizers"), key=value, default=None)
        name = NAMES[worst.row["tokenizer"]] if worst else "unknown"
        rows.append((f"tokens of a 20k-token chat, {work}, worst of {len(found)}: {name}", wanted, unit,
                     value(worst) if worst else None, bound, more))
    every = lanes(figures)
    shape = f"{figures.get('lanes', {}).get('short', 64)} short chats beside 4 of 300 KB: added p99"
    qwen = next((lane for lane in every if lane.row["tokenizer"] == "qwen2_5"), None)
    worst = max(every, key=lambda lane: lane.added("p99"), default=None)
    rows.append((f"{shape}, Qwen2.5", f"{ADDED_MS} ms", "ms", qwen.added("p99") if qwen else None, ADDED_MS, False))
    rows.append((f"{shape}, worst of {len(every)}: {worst.title if worst else 'unknown'}", f"{ADDED_MS} ms", "ms",
                 worst.added("p99") if worst else None, ADDED_MS, False))
    return rows


def section(figures):
    """The page's part on tokens."""
    parts = ["### Tokens of a 20k-token chat, one thread"]
    if figures.get("problem"):
        return [*parts, f"**Not measured**: {figures['problem']}"]
    if figures["absent"]:
        parts.append("Not there: " + ", ".join(NAMES[name] for name in figures["absent"]) + ".")
    before, between, after = figures["busy"]
    problem = figures["chats"].get("problem")
    parts += [f"**Not measured**: {problem}"] if problem else chat_parts(figures, before, between)
    parts.append("### Short chats beside long ones")
    problem = figures["lanes"].get("problem")
    parts += [f"**Not measured**: {problem}"] if problem else lane_parts(figures, between, after)
    return parts


def chat_parts(figures, before, after):
    found = chats(figures)
    rounds = len(found[0].rounds["plain"])
    return [
        "From a body's bytes to its ids and block hashes (JSON, chat template, ids, hashes of 16-token blocks) through the "
        f"router's own `LocalTokenizer`. Milliseconds; p50 of the quietest of {rounds} rounds, p99 the median of theirs; "
        f"load {before:.1f} before, {after:.1f} after. The text is prose, code and JSON of the crates of this build, and no line of "
        "it was seen before; the encoder has seen 16 MB of other crates' text, as one that has served for a while. `next turn` "
        "is the same conversation with an answer and a question more, `same again` the same request once more. `plain HF` is "
        "Hugging Face `tokenizers` in the same run: the same template, no memory of segments; `x plain` compares the fastest run "
        "of each. `equal` counts conversations whose ids were the same both ways.",
        table(
            ["tokenizer (encoder)", "tokens", "bytes", "first sight p50 / p99", "next turn p50 / p99", "tokens added",
             "same again p50 / p99", "plain HF p50", "x plain, first", "x plain, next", "equal"],
            [[chat.title, figure(chat.row["tokens"]), figure(chat.row["bytes"]),
              *spread_cells(chat, "first sight", "next turn"), figure(chat.row["turn_tokens"]),
              *spread_cells(chat, "same again"), figure(chat.p50("plain"), 2),
              figure(chat.times_plain("first sight")), figure(chat.times_plain("next turn")),
              f"{chat.row['equal']} of {chat.row['conversations']}"] for chat in found]),
        "Gaps to the targets:",
        table(
            ["tokenizer", f"first sight, {FIRST_MS} ms", f"{RATIO} x plain HF", f"next turn, {NEXT_MS} ms"],
            [[NAMES[chat.row["tokenizer"]], gap(chat.p50("first sight"), FIRST_MS, False),
              gap(chat.times_plain("first sight"), RATIO, True) if chat.row["encoder"] != "tokenizers" else "not exact",
              gap(chat.p50("next turn"), NEXT_MS, False)] for chat in found]),
        "Where the time goes, p50 in microseconds. `body` is JSON to messages, `template` what rendering adds, `ids` what "
        "encoding (or recalling) adds:",
        table(
            ["tokenizer", "body", "template", "ids, first sight", "ids, next turn", "hashes"],
            [[NAMES[chat.row["tokenizer"]], *(figure(1e3 * max(0, value)) for value in (
                chat.p50("read"), chat.p50("template") - chat.p50("read"), chat.p50("tokens") - chat.p50("template"),
                chat.p50("tokens, next turn") - chat.p50("template"), chat.p50("hashes")))] for chat in found]),
    ]


def spread_cells(chat, *names):
    return [f"{chat.p50(name):.2f} / {chat.p99(name):.2f}" for name in names]


def lane_parts(figures, before, after):
    every, short, long = lanes(figures), figures["lanes"]["short"], figures["lanes"]["long"]
    return [
        f"{short} chats of 1 KB at once, again and again, through the router's chain and its pool of threads ({os.cpu_count()} cores), "
        f"alone and with {long} chats of 300 KB in flight all the time; none was seen before. Milliseconds from the call to the ids, "
        f"of the quietest of {len(every[0].row['rounds'])} rounds; `median` is the rounds' median of what long ones added, with what "
        f"else this machine did then (load {before:.1f} before, {after:.1f} after).",
        table(
            ["tokenizer", "alone p50 / p99", "beside p50 / p99", "added p50", "added p99", "median", f"target {ADDED_MS} ms",
             "long ones p50", "long ones/s"],
            [[lane.title, *(f"{lane.quietest(name, 'p50'):.2f} / {lane.quietest(name, 'p99'):.2f}" for name in ("alone_us", "beside_us")),
              figure(lane.added("p50"), 2), figure(lane.added("p99"), 2), figure(lane.added_median("p99"), 2),
              gap(lane.added("p99"), ADDED_MS, False), figure(lane.quietest("long_us", "p50"), 1),
              figure(max(found["long_per_second"] for found in lane.row["rounds"]))] for lane in every]),
    ]
