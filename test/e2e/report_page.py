#!/usr/bin/env python3
"""Opens a report in headless Chromium. Usage: report_page.py REPORT.html [--expect TYPE ...] [--shots FOLDER]

Checks, for a wide page, a phone and dark colours: the page asks for no network, writes no error to its console, draws
every section with its axes and marks, stays within the width of the window, and follows the keyboard: arrow keys select
the marks of each chart and the line below says what they are. Prints one line per view.
"""
import argparse
import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

VIEWS = {"wide": ("1000,1600", 1), "phone": ("390,844", 1), "dark": ("1000,1600", 0)}  # window, preferred colour scheme

# Presses keys in every chart, then leaves what it found in an element that --dump-dom prints.
PROBE = """
<script>
addEventListener('load', () => {
  const found = {errors: window.probeErrors, sections: [], wide: document.documentElement.scrollWidth, window: innerWidth,
                 background: getComputedStyle(document.body).backgroundColor};
  const press = (stage, key) => stage.dispatchEvent(new KeyboardEvent('keydown', {key, cancelable: true}));
  for (const section of document.querySelectorAll('main > section')) {
    const stage = section.querySelector('.chart'), note = section.querySelector('.note'), notes = [];
    for (const key of stage ? ['ArrowRight', 'ArrowRight', 'End', 'ArrowUp', 'Home'] : []) {
      press(stage, key);
      notes.push(note.textContent);
    }
    found.sections.push({type: section.dataset.type, title: section.querySelector('h2').textContent, notes,
                         marks: section.querySelectorAll('.mark').length,
                         selected: section.querySelectorAll('.mark.selected').length,
                         texts: [...section.querySelectorAll('svg text')].map(node => node.textContent),
                         cells: section.querySelectorAll('td, dd').length,
                         broken: /NaN|undefined|Infinity/.test(section.outerHTML)});
  }
  const out = document.createElement('pre');
  out.id = 'probe';
  out.textContent = JSON.stringify(found);
  document.body.append(out);
});
</script>
"""
CATCH = "<script>window.probeErrors = []; addEventListener('error', event => probeErrors.push(event.message));</script>"


def chromium(profile, window, scheme, *words):
    return subprocess.run(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                           f"--user-data-dir={profile}", f"--window-size={window}", "--virtual-time-budget=4000",
                           "--enable-logging=stderr", f"--blink-settings=preferredColorScheme={scheme}", *words],
                          capture_output=True, text=True, check=False, timeout=240)


def look(page, name, window, scheme, expected):
    with tempfile.TemporaryDirectory() as profile:
        done = chromium(profile, window, scheme, "--dump-dom", page.as_uri())
    match = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    if not match:
        sys.exit(f"{name}: the page did not load: {done.stderr[-2000:]}")
    found = json.loads(html.unescape(match[1]))
    console = re.findall(r"CONSOLE[^\n]*", done.stderr)
    assert not found["errors"] and not console, (name, found["errors"], console)
    assert found["wide"] <= found["window"], f"{name}: {found['wide']} pixels wide in a window of {found['window']}"
    types = [section["type"] for section in found["sections"]]
    assert not set(expected) - set(types), (name, set(expected) - set(types))
    for section in found["sections"]:
        assert not section["broken"], (name, section["title"])
        if section["type"] in ("facts", "table"):
            assert section["cells"] > 0, (name, section)
            continue
        assert section["marks"] > 0 and section["selected"] == 1, (name, section)
        assert all(note and "Point at" not in note for note in section["notes"]), (name, section["notes"])
        assert section["notes"][0] == section["notes"][-1], (name, section["notes"])  # Home returns to the first mark
        assert section["marks"] < 3 or len(set(section["notes"])) > 1, (name, section["notes"])
        assert any(char.isdigit() for char in "".join(section["texts"])), (name, "an axis without numbers")
    print(f"{name}: {len(types)} sections, {sum(section['marks'] for section in found['sections'])} marks")
    return found["background"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("--expect", nargs="*", default=[])
    parser.add_argument("--shots", type=pathlib.Path)
    options = parser.parse_args()
    text = options.report.read_text()
    outside = re.findall(r'(?:src|href)\s*=\s*["\'][^"\']+|@import|url\(|https?://(?!www\.w3\.org/2000/svg)[^\s"\'<]+', text)
    assert not outside, f"the report names other files: {outside[:3]}"
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "probe.html"
        page.write_text(text.replace("<main>", CATCH + "<main>").replace("</body>", PROBE + "</body>"))
        colours = {name: look(page, name, *view, options.expect) for name, view in VIEWS.items()}
        assert colours["wide"] != colours["dark"], f"the dark page is as bright as the light one: {colours}"
        for name, (window, scheme) in VIEWS.items() if options.shots else ():
            options.shots.mkdir(parents=True, exist_ok=True)
            tall = window.split(",")[0] + ",4200"
            chromium(folder + "/" + name, tall, scheme, f"--screenshot={options.shots / (name + '.png')}",
                     options.report.resolve().as_uri())


main()
