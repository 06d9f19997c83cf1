#!/usr/bin/env bash
# Copies the licences of the Debian packages whose libraries and linker a wheel contains.
# Usage: bundled_licenses.sh BUILD FOLDER
set -euo pipefail
build=${1:?usage: bundled_licenses.sh BUILD FOLDER} folder=${2:?usage: bundled_licenses.sh BUILD FOLDER}
linker=$(realpath "$(command -v ld.lld-19)")
rm -rf "$folder"
mkdir -p "$folder"
{ echo "$linker"; ldd "$build/bin/espalier" "$build/lib/libespalier_verbs.so" "$linker" | awk '$3 ~ "^/" { print $3 }'; } |
  xargs -n 1 realpath | sort -u | while read -r file; do
  case $file in "$(realpath "$build")"/*) continue ;; esac
  # Packages that are older than the merge of /lib and /usr/lib list their files under the old names.
  package=$({ dpkg -S "$file" || dpkg -S "${file#/usr}"; } 2>/dev/null | head -1 | cut -d: -f1)
  cp -L "/usr/share/doc/$package/copyright" "$folder/$package"
done
