#!/usr/bin/env bash
# license_text.sh FILE: writes English text that every Debian system has (package base-files), so that all machines of a
# release use the same bytes. Skips symbolic links, because their targets are included anyway.
set -euo pipefail
find /usr/share/common-licenses -type f -print0 | LC_ALL=C sort -z | xargs -0 cat > "$1"
[ -s "$1" ] || { echo "error: /usr/share/common-licenses is empty; install the package base-files" >&2; exit 1; }
