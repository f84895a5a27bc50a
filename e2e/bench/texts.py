"""The texts that chats are made of: prose, code and JSON from the crates of this build, in two halves that share no file."""

import json
import os
import re
import subprocess
import zlib
from pathlib import Path

# Bytes of each file that is written. Of the unseen text every line is used once.
MOST = {"known": 12_000_000, "unseen": 8_000_000}

# Generated tables are no code that anybody pastes.
LARGEST_FILE = 100_000


def write(folder, root):
    """Writes `known-KIND.txt` and `unseen-KIND.txt` for prose, code and data."""
    parts = {(side, kind): [] for side in MOST for kind in ("prose", "code", "data")}
    for name, crate in crates(root):
        side = side_of(name)
        for file in sorted(crate.rglob("*")):
            if not file.is_file() or file.stat().st_size > LARGEST_FILE or file.suffix not in (".md", ".rs"):
                continue
            text = file.read_text(errors="replace")
            if file.suffix == ".md":
                parts[side, "prose"].append(text)
            else:
                documentation, code = taken_apart(text)
                parts[side, "prose"].append(documentation)
                parts[side, "code"].append(code)
    for package in packages(root):
        parts[side_of(package["name"]), "data"].append(json.dumps(package, indent=2) + "\n")
    folder.mkdir()
    for (side, kind), texts in parts.items():
        (folder / f"{side}-{kind}.txt").write_text(whole(texts, MOST[side]))


def crates(root):
    """The sources of the crates that this build is pinned to."""
    locked = re.findall(r'name = "(.+?)"\nversion = "(.+?)"', (root / "Cargo.lock").read_text())
    registry = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "registry" / "src"
    found = [(name, path) for name, version in locked for path in registry.glob(f"*/{name}-{version}")]
    # In an order that knows no alphabet: neighbours in it are often parts of one project.
    return sorted(found, key=lambda crate: zlib.crc32(crate[1].name.encode()))


def packages(root):
    host = re.search("host: (.+)", subprocess.run(["rustc", "-vV"], capture_output=True, text=True).stdout)
    command = ["cargo", "metadata", "--format-version=1", "--offline", f"--filter-platform={host.group(1)}"]
    told = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return json.loads(told)["packages"]


def side_of(name):
    """By a crate's name, so that its versions stay together."""
    return "unseen" if zlib.crc32(name.encode()) % 5 < 2 else "known"


def taken_apart(text):
    """A file's documentation without its marks, and its code without documentation."""
    documentation, code = [], []
    for line in text.splitlines(keepends=True):
        mark = re.match(r"\s*//[/!] ?", line)
        if mark:
            documentation.append(line[mark.end():])
        else:
            code.append(line)
    return "".join(documentation), "".join(code)


def whole(texts, most):
    """The texts in turn, each passage once: many crates carry the same templates and licences."""
    seen, out, size = set(), [], 0
    for text in texts:
        for passage in re.split(r"(?<=\n)\n+", text):
            if len(passage) > 60 and passage in seen:
                continue
            seen.add(passage)
            out.append(passage + "\n")
            size += len(passage)
        if size > most:
            break
    return "".join(out)
