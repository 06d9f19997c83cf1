"""The factor by which scripts extend their timeouts: of a sanitizer build, which test/lit.cfg.py sets, or of a machine whose
cores are shared by more processes than there are cores."""
import math
import os

_given = int(os.environ.get("ESPALIER_SLOWDOWN", "1"))
is_sanitized = _given > 1
slowdown = max(_given, math.ceil(os.getloadavg()[0] / (os.cpu_count() or 1)))
