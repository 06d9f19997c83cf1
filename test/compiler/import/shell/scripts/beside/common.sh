COMMON=(--from "a file")
from_common() { FROM="$1"; }
[ -n "$COMMON" ] && return
FROM=wrong
