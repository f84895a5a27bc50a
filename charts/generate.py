#!/usr/bin/env python3
"""Makes the chart's README.md and values.schema.json from the comments of its values.yaml.

Usage: generate.py [--check]   With --check nothing is written: exit 1 says which file is out of date.

A comment `# -- TEXT` describes the key below it. `# @` lines narrow its values: `@enum A|B`, `@min N`, `@max N`, `@port`,
`@number` for fractions, `@items TYPE` for lists, `@map TYPE` for maps of free keys (`any` for whatever Kubernetes takes).
"""
import json
import pathlib
import re
import sys

CHART = pathlib.Path(__file__).parent / "kvasir"
KEY = re.compile(r"^( *)([A-Za-z][\w]*):(?: (.*))?$")


def entries(text):
    """Yields (path, description, annotations, default) for every described key, groups apart."""
    lines = text.splitlines()
    path, described, narrowed = [], None, {}
    for number, line in enumerate(lines):
        stripped = line.strip()
        if stripped.startswith("# -- "):
            described = stripped[5:]
            continue
        if stripped.startswith("# @"):
            word, _, rest = stripped[3:].partition(" ")
            narrowed[word] = rest
            continue
        found = KEY.match(line)
        if not found:
            if stripped and not stripped.startswith("#"):
                raise SystemExit(f"values.yaml:{number + 1}: not understood: {line}")
            continue
        depth = len(found[1]) // 2
        del path[depth:]
        path.append(found[2])
        if described is None:
            if narrowed:
                raise SystemExit(f"values.yaml:{number + 1}: narrowed and not described")
            if found[3] and not inside_described(path, seen):
                raise SystemExit(f"values.yaml:{number + 1}: {'.'.join(path)} has no description")
            continue
        default = found[3] if found[3] is not None else block(lines[number + 1 :], depth)
        seen.add(tuple(path))
        yield tuple(path), described, narrowed, default
        described, narrowed = None, {}


seen = set()


def inside_described(path, known):
    return any(tuple(path[:length]) in known for length in range(1, len(path)))


def block(lines, depth):
    """The nested lines of a key, in one line."""
    inner = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) <= depth * 2:
            break
        if line.strip():
            inner.append(line.strip())
    return "{" + ", ".join(inner) + "}"


PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
ITEMS = {
    "object": {"type": "object"},
    "string": {"type": "string"},
    "named-port": {
        "type": "object",
        "required": ["name", "port"],
        "additionalProperties": False,
        # What Kubernetes takes as the name of a port.
        "properties": {"name": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?$"}, "port": PORT},
    },
}


def schema_of(narrowed, default):
    if "port" in narrowed:
        return PORT
    if "enum" in narrowed:
        return {"type": "string", "enum": narrowed["enum"].split("|")}
    if "items" in narrowed:
        return {"type": "array", "items": ITEMS[narrowed["items"]]}
    if "map" in narrowed:
        kind = narrowed["map"]
        return {"type": "object"} if kind == "any" else {"type": "object", "additionalProperties": {"type": kind}}
    if default in ("true", "false"):
        return {"type": "boolean"}
    if re.fullmatch(r"-?\d+", default):
        schema = {"type": "number" if "number" in narrowed else "integer"}
        if "min" in narrowed:
            schema["minimum"] = int(narrowed["min"])
        if "max" in narrowed:
            schema["maximum"] = int(narrowed["max"])
        return schema
    return {"type": "string"}


def schema(rows):
    root = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the kvasir chart"}
    root.update({"type": "object", "additionalProperties": False, "properties": {}})
    for path, text, narrowed, default in rows:
        node = root
        for part in path[:-1]:
            fresh = {"type": "object", "additionalProperties": False, "properties": {}}
            node = node["properties"].setdefault(part, fresh)
        node["properties"][path[-1]] = {"description": plain(text), **schema_of(narrowed, default)}
    # A chart around this one hands its own global values down.
    root["properties"]["global"]["additionalProperties"] = True
    return json.dumps(root, indent=2) + "\n"


def plain(text):
    return text.replace("`", "")


def page(rows):
    lines = (CHART / "README.md.tmpl").read_text().splitlines()
    table = ["| value | default | meaning |", "|---|---|---|"]
    for path, text, narrowed, default in rows:
        if "enum" in narrowed:
            words = ", ".join(f"`{word}`" for word in narrowed["enum"].split("|"))
            text = text if all(word in text for word in narrowed["enum"].split("|")) else f"{text}: {words}"
        shown = default if default not in ('""', "") else " "
        cell = f"`{shown}`" if shown.strip() else ""
        table.append(f"| `{'.'.join(path)}` | {cell} | {text.replace('|', chr(92) + '|')} |")
    return "\n".join(line if line != "{{VALUES}}" else "\n".join(table) for line in lines) + "\n"


def main():
    rows = list(entries((CHART / "values.yaml").read_text()))
    made = {CHART / "values.schema.json": schema(rows), CHART / "README.md": page(rows)}
    stale = [str(path.name) for path, text in made.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        if stale:
            raise SystemExit(f"out of date, run `make docs`: {', '.join(stale)}")
        return
    for path, text in made.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
