#!/usr/bin/env bash
# license_text.sh FILE: English text that every Debian has (package base-files), the same bytes on every machine of a
# release. Symbolic links are other names of files that are there already.
set -euo pipefail
find /usr/share/common-licenses -type f -print0 | LC_ALL=C sort -z | xargs -0 cat > "$1"
[ -s "$1" ] || { echo "error: /usr/share/common-licenses is empty; install the package base-files" >&2; exit 1; }
