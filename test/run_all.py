#!/usr/bin/env python3
"""Runs the tests of a build folder: GoogleTest programs, then lit.

Usage: run_all.py BUILD [FILTER]      FILTER: a program (`executor` or `executor_test`), a lit file or folder
                                      (`e2e/tour.test`, `test/dialects/model`), or `lit` for all lit tests
       run_all.py BUILD --share N     of each program that takes a minute or more, one of N parts of its tests, and of the
                                      lit tests that take 20 seconds or more, one of N parts: commit K of the history
                                      runs part K mod N
       run_all.py --target FILTER     prints the build target that FILTER needs

Prints each failure with its output, and the names of all failures at the end. The last line is
`N passed, M failed, K skipped`. A sanitizer report counts as a failure, even in a process that its test expects to fail.

The longest tests start first, by the seconds of the last run in BUILD/test/.lit_test_times.txt. A build folder without
this file uses test/.lit_test_times.txt, which lists programs and lit tests of 10 seconds and more. lit reads the same files.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

SOURCES = pathlib.Path(__file__).resolve().parent


def reporting_to(log):
    """Returns an environment in which sanitizers write to LOG.PID instead of standard error."""
    environment = dict(os.environ)
    for name in ("ASAN_OPTIONS", "TSAN_OPTIONS"):  # the ASAN_OPTIONS also apply to undefined behaviour and leaks
        environment[name] = ":".join(filter(None, [environment.get(name), f"log_path={log}"]))
    return environment


def with_reports(log, counts):
    """Adds the sanitizer reports in LOG.PID to the counts of tests and to their failures."""
    reports = [("sanitizer report " + path.name, path.read_text(errors="replace")[:8000])
               for path in sorted(log.parent.glob(log.name + ".*"))]
    return counts[0], counts[1] + len(reports), counts[2], counts[3] + reports


def timed(run):
    """Returns what run() returns, and its seconds."""
    begin = time.monotonic()
    return run(), time.monotonic() - begin


def read_times(folder):
    """Returns the seconds of the programs and lit tests in lit's file of test times."""
    lines = (folder / ".lit_test_times.txt").read_text().splitlines()
    return {name: float(seconds) for seconds, name in (line.split(maxsplit=1) for line in lines)}


def recorded_times(build):
    """Returns the seconds of the last run in a build folder; of those in the sources if there was none."""
    return read_times(build / "test" if (build / "test/.lit_test_times.txt").exists() else SOURCES)


def record_times(build, times):
    """Writes the seconds of programs to lit's file of test times. lit keeps them when it adds its own."""
    lines = [f"{seconds:e} {name}\n" for name, seconds in {**recorded_times(build), **times}.items()]
    (build / "test/.lit_test_times.txt").write_text("".join(lines))


def part_of_commit(parts):
    """Returns the part, below `parts`, that the commit of the sources runs."""
    commits = subprocess.run(["git", "-C", str(SOURCES), "rev-list", "--count", "HEAD"], text=True,
                             stdout=subprocess.PIPE, check=False).stdout
    return int(commits or 0) % parts


def run_program(program, scratch, parts):
    """Returns (passed, failed, skipped, [(name, text) of a failure]) of one of the parts of a GoogleTest program."""
    log = pathlib.Path(scratch, "reports", program.name)
    environment = reporting_to(log)
    if parts > 1:
        environment |= {"GTEST_TOTAL_SHARDS": str(parts), "GTEST_SHARD_INDEX": str(part_of_commit(parts))}
    return with_reports(log, count_program(program, scratch, environment))


def count_program(program, scratch, environment):
    report = pathlib.Path(scratch, program.name + ".json")
    environment["GTEST_OUTPUT"] = f"json:{report}"
    result = subprocess.run([str(program)], env=environment, text=True, errors="replace",
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    try:
        tests = [t for suite in json.loads(report.read_text())["testsuites"] for t in suite["testsuite"]]
    except (OSError, ValueError):
        return 0, 1, 0, [(program.name, f"ended with {result.returncode} before its report:\n{result.stdout[-4000:]}")]
    failed = [t for t in tests if t.get("failures")]
    skipped = [t for t in tests if t.get("result") == "SKIPPED"]
    crashed = 1 if result.returncode and not failed else 0
    failures = [(program.name, result.stdout[-8000:])] if crashed else [
        (f"{program.name} --gtest_filter={test['classname']}.{test['name']}",
         "\n".join(failure["failure"] for failure in test["failures"])) for test in failed]
    return len(tests) - len(failed) - len(skipped), len(failed) + crashed, len(skipped), failures


def left_out(parts):
    """Returns options of lit that leave out the long lit tests of the other parts."""
    long_tests = sorted(name for name, seconds in read_times(SOURCES).items() if seconds >= 20 and "." in name)
    others = [re.escape(name) for i, name in enumerate(long_tests) if i % parts != part_of_commit(parts)]
    return ["--filter-out", f"({'|'.join(others)})$"] if others else []


def run_lit(build, path, scratch, parts):
    """Returns (passed, failed, skipped, [(name, text) of a failure]) of one of the parts of the lit tests below a path in
    the folder test/."""
    log = pathlib.Path(scratch, "reports", "lit")
    prefix = subprocess.run(["llvm-config-19", "--prefix"], text=True, capture_output=True, check=True).stdout.strip()
    report = pathlib.Path(scratch, "lit.json")
    # Some tests wait for time-outs, so one more worker than cores keeps the cores busy.
    result = subprocess.run([sys.executable, f"{prefix}/build/utils/lit/lit.py", "-v", f"-j{(os.cpu_count() or 1) + 1}",
                             "-o", str(report), *left_out(parts), str(build / "test" / path)], env=reporting_to(log),
                            text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    try:
        tests = [test for test in json.loads(report.read_text())["tests"] if test["code"] != "EXCLUDED"]
    except (OSError, ValueError):
        return with_reports(log, (0, 1, 0, [("lit", result.stdout[-8000:])]))
    codes = [t["code"] for t in tests]
    passed = codes.count("PASS")
    skipped = codes.count("UNSUPPORTED")
    failures = [(t["name"], t["output"]) for t in tests if t["code"] not in ("PASS", "UNSUPPORTED")]
    return with_reports(log, (passed, len(codes) - passed - skipped, skipped, failures))


def selected(name):
    """Returns (program, lit path) that a filter names. One of them is None."""
    if name == "lit":
        return None, ""
    path = pathlib.PurePath(name.removeprefix("test/"))
    if (SOURCES / path).exists() and (path.suffix or (SOURCES / path).is_dir() and "/" in name):
        return None, path
    program = name if name.endswith("_test") else name + "_test"
    if subprocess.run(["grep", "-rqE", rf"espalier_test\({program.removesuffix('_test')} ", "--include=CMakeLists.txt",
                       str(SOURCES)], check=False).returncode == 0:
        return program, None
    if (SOURCES / path).is_dir():
        return None, path
    sys.exit(f"no test is named '{name}': give a GoogleTest program, or a file or folder of test/")


def main():
    if sys.argv[1] == "--target":
        print(selected(sys.argv[2])[0] or "lit_tools")
        return 0
    build = pathlib.Path(sys.argv[1]).resolve()
    shares = int(sys.argv[3]) if sys.argv[2:3] == ["--share"] else 1
    program, lit_path = selected(sys.argv[2]) if len(sys.argv) == 3 else ("*_test", "")
    expected, usual = recorded_times(build), read_times(SOURCES)
    programs = sorted((build / "test/bin").glob(program), key=lambda p: (-expected.get(p.name, 0), p)) if program else []
    totals, times, failures = [0, 0, 0], {}, []

    def add(name, counts, seconds):
        print(f"{name}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped in {seconds:.1f} s", flush=True)
        for i in range(3):
            totals[i] += counts[i]
        for failure in counts[3]:
            print(*failure, sep="\n")
        failures.extend(failure[0] for failure in counts[3])

    with tempfile.TemporaryDirectory() as scratch:
        os.chmod(scratch, 0o755)  # for tests that change the user
        pathlib.Path(scratch, "reports").mkdir()
        os.chmod(pathlib.Path(scratch, "reports"), 0o777)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            parts = {p: shares if usual.get(p.name, 0) >= 60 else 1 for p in programs}
            running = {pool.submit(timed, lambda p=p: run_program(p, scratch, parts[p])): p.name for p in programs}
            for ended in concurrent.futures.as_completed(running):
                counts, times[running[ended]] = ended.result()
                add(running[ended], counts, times[running[ended]])
        if times and shares == 1:
            record_times(build, times)
        if lit_path is not None:
            add("lit", *timed(lambda: run_lit(build, lit_path, scratch, shares)))
    for failure in failures:
        print("failed:", failure)
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return 1 if totals[1] or not totals[0] else 0


sys.exit(main())
