"""The factor by which scripts extend their timeouts. test/lit.cfg.py sets it for sanitizer builds."""
import os

slowdown = int(os.environ.get("ESPALIER_SLOWDOWN", "1"))
is_sanitized = slowdown > 1
