"""So many times longer scripts wait before they say that something hangs: test/lit.cfg.py says it to sanitizer builds."""
import os

slowdown = int(os.environ.get("ESPALIER_SLOWDOWN", "1"))
is_sanitized = slowdown > 1
