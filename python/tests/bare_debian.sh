#!/usr/bin/env bash
# Installs a wheel into a minimal Debian 12 (debootstrap, without LLVM and protobuf). Plans, compiles and trains there,
# with the command and from Python. Usage: bare_debian.sh WHEEL
# Skips the test (status 0) without root or debootstrap. DEBIAN_MIRROR names another mirror.
set -euo pipefail
wheel=${1:?usage: bare_debian.sh WHEEL}
here=$(dirname "$0")
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
  echo "skipped: a bare Debian needs root and debootstrap"
  exit 0
fi
root=$(mktemp -d)
trap 'rm -rf --one-file-system "$root"' EXIT
chmod 755 "$root"

debootstrap --variant=minbase --include=python3,python3-venv,python3-numpy bookworm "$root" \
  ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$root.log" || { cat "$root.log"; exit 1; }
rm -f "$root.log"
mkdir "$root/work"
cp "$wheel" "$here/bare_debian.py" "$root/work/"
if ls "$root"/usr/lib/*/libLLVM* "$root"/usr/lib/*/libprotobuf* 2>/dev/null; then
  echo "the system is not bare" >&2
  exit 1
fi

begin=$(date +%s)
# Mounts /proc for this command only.
unshare --mount bash -c 'mount -t proc proc "$0/proc" && exec chroot "$0" /bin/bash -euc "$1"' "$root" '
  cd /work
  python3 -m venv --system-site-packages venv
  venv/bin/pip install --quiet --no-index --no-deps espalier-*.whl
  export PATH=/work/venv/bin:/usr/bin:/bin
  cat /usr/share/common-licenses/GPL-* >text.txt
  configs=$(python3 -c "import espalier, os; print(os.path.dirname(espalier.__file__) + \"/share/espalier/configs\")")
  espalier plan "$configs/gpt2_13b.yaml" >plan.txt
  espalier compile "$configs/tiny_gpt.yaml" -o tiny.plan
  espalier run tiny.plan --data text.txt --steps 40 --metrics metrics.jsonl | tail -3
  python3 bare_debian.py "$configs/tiny_gpt.yaml"
  espalier demo --compared-steps 20 --steps 20 | tail -4
'
echo "installed, planned, compiled and trained on a bare Debian in $(($(date +%s) - begin)) s"
