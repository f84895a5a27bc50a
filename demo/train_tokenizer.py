#!/usr/bin/env python3
"""Trains the demo's tokenizer: a small byte-level BPE with a ChatML-like template.

    python3 -m venv venv && venv/bin/pip install tokenizers==0.23.3
    venv/bin/python demo/train_tokenizer.py            # writes demo/tokenizer/

The corpus is this repository's own code and documents, and sentences made from the word lists below. Nothing is
random: the same tree gives the same file. The vocabulary is small on purpose; the demo needs real prompts cut into
real tokens, not good compression.
"""

import itertools
import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = HERE / "tokenizer"

VOCABULARY = 4096
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]

# Letters with one leading sign, single digits, signs with one leading space, line ends, white space.
PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SUBJECTS = (
    "the engineer|my neighbour|a young doctor|the old library|our team|the first train|every student|the small shop"
    "|a careful reader|the river|this city|her brother|the night shift|a good teacher|the weather|his garden"
).split("|")
VERBS = (
    "explains|remembers|carries|repairs|describes|follows|prepares|compares|answers|opens|writes about|looks after"
    "|asks about|works on|talks about|waits for"
).split("|")
OBJECTS = (
    "the morning report|a long letter|several questions|the winter market|an important meeting|fresh bread and tea"
    "|the history of the harbour|a list of numbers|the broken window|new ideas for the summer|the shortest way home"
    "|a simple recipe|the results of the experiment|three different stories|the price of water|a map of the mountains"
).split("|")
ENDINGS = (
    "because nobody else has the time.|before the sun goes down.|and then it starts again from the beginning."
    "|although it was not easy.|with a little help from a friend.|so that everyone can understand it."
    "|while the others are still asleep.|without saying a word.|and that is why we should try.|as soon as possible."
    "|at least once a week.|when there is enough light.|if the answer is correct.|after a short break."
    "|for the people who live there.|which is more than we expected."
).split("|")
QUESTIONS = (
    "What is|Where can I find|Please explain|How would you describe|Could you summarize|Can you translate"
    "|Write a short text about|Give me an example of|What do you think about|Compare"
).split("|")
ANSWERS = (
    "Of course. Here is what I know:|That is a good question.|In short, yes.|No, but there is another way.|First,"
    " let us look at the facts.|There are three reasons for this.|Thank you for asking.|I would begin with the basics."
).split("|")


def sentences():
    for number, (subject, verb, thing) in enumerate(itertools.product(SUBJECTS, VERBS, OBJECTS)):
        ending = ENDINGS[(number * 7) % len(ENDINGS)]
        question = QUESTIONS[(number * 3) % len(QUESTIONS)]
        answer = ANSWERS[(number * 5) % len(ANSWERS)]
        yield f"{subject.capitalize()} {verb} {thing} {ending}"
        if number % 4 == 0:
            yield f"{question} {thing}? {answer} {subject.capitalize()} {verb} it {ending}"
        if number % 16 == 0:
            yield json.dumps({"name": verb.split()[0], "arguments": {"city": subject, "count": number, "ok": True}})


def files():
    for suffix in (".rs", ".md", ".toml", ".py", ".sh", ".yaml"):
        for path in sorted(ROOT.rglob(f"*{suffix}")):
            parts = path.relative_to(ROOT).parts
            if not {"target", "venv", "data", ".git"} & set(parts) and OUT not in path.parents:
                yield path.read_text(encoding="utf-8", errors="ignore")


TEMPLATE = HERE / "chat_template.jinja"


def main() -> int:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(MARKERS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(itertools.chain(sentences(), files()), trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken(marker, normalized=False) for marker in MARKERS])

    OUT.mkdir(exist_ok=True)
    tokenizer.save(str(OUT / "tokenizer.json"), pretty=False)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 131072,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": TEMPLATE.read_text(encoding="utf-8").rstrip("\n"),
    }
    (OUT / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    print(f"{tokenizer.get_vocab_size()} ids, {(OUT / 'tokenizer.json').stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
