"""Writes the tokenizer.json that the models of Llama 2's time have: a SentencePiece model as transformers 4 converted it.

    python3 e2e/tokenizers/llama_json.py tokenizer.model > tokenizer.json

Such a file marks spaces with a normaliser. Transformers 5 takes the vocabulary and the merges out of it and marks them in its own way.
"""

import json
import struct
import sys


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Numbers and values of a message of protocol buffers."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        match key & 7:
            case 0:
                value, at = varint(data, at)
            case 1:
                value, at = data[at:at + 8], at + 8
            case 2:
                size, at = varint(data, at)
                value, at = data[at:at + size], at + size
            case 5:
                value, at = struct.unpack("<f", data[at:at + 4])[0], at + 4
            case kind:
                sys.exit(f"wire type {kind}")
        yield key >> 3, value


def main():
    pieces = []
    with open(sys.argv[1], "rb") as file:
        for number, value in fields(file.read()):
            if number == 1:
                piece = dict(fields(value))
                pieces.append((piece[1].decode(), piece.get(2, 0.0)))
    vocabulary = {piece: number for number, (piece, _) in enumerate(pieces)}
    merges = []
    for piece, score in pieces:
        halves = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        known = [(left, right) for left, right in halves if left in vocabulary and right in vocabulary]
        known.sort(key=lambda half: (vocabulary[half[0]], vocabulary[half[1]]))
        merges += [(left, right, score) for left, right in known]
    merges.sort(key=lambda merge: (merge[2], len(merge[0]), len(merge[1])), reverse=True)
    named = [{"id": number, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
             for number, name in enumerate(("<unk>", "<s>", "</s>"))]
    begin, text = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    other = [{"SpecialToken": {"id": "<s>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    json.dump({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": named,
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None,
        "post_processor": {"type": "TemplateProcessing", "single": [begin, text], "pair": [begin, text, *other],
                           "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": True, "byte_fallback": True, "vocab": vocabulary, "merges": [f"{left} {right}" for left, right, _ in merges]},
    }, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    main()
