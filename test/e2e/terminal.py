#!/usr/bin/env python3
"""terminal.py COLUMNS[:LATER] COMMAND...: runs the command on a pseudo-terminal of so many columns.

The terminal has LATER columns once three progress lines are there. Prints the longest progress line, and the widths that
the lines must fit. Fails if a line is longer than the terminal was wide.
"""
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios


def resize(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


widths = [int(width) for width in sys.argv[1].split(":")]
process, terminal = pty.fork()
if process == 0:
    resize(0, widths[0])
    os.execvp(sys.argv[2], sys.argv[2:])
text, width, limits = "", widths[0], []


def read(seconds=None):
    """Adds what the command has written to the text. Returns whether there was anything within so many seconds."""
    global text, limits
    if not select.select([terminal], [], [], seconds)[0]:
        return False
    try:
        text += os.read(terminal, 65536).decode()
    except OSError:  # the command has ended
        return False
    limits += [width] * (text.count("\r\x1b[K") - len(limits))
    return True


while read():
    if len(limits) >= 3 and width != widths[-1]:
        os.kill(process, signal.SIGSTOP)
        while read(0.2):
            pass
        limits.append(width)  # a line may have been made for the old width, but not written
        width = widths[-1]
        resize(terminal, width)
        os.kill(process, signal.SIGCONT)
status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
lines = [line.split("\r\n")[0] for line in text.split("\r\x1b[K")[1:]]
for line, limit in zip(lines, limits):
    if len(line) >= limit:
        sys.exit(f"{len(line)} columns on a terminal of {limit}: {line}")
print(f"exit {status}, {len(lines)} lines fit")
print(max(lines[3:], key=len) if len(widths) == 1 else lines[-1])
