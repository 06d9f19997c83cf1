#!/usr/bin/env python3
"""Builds the documentation as a site. Usage: site.py BUILD [--pages-only]

Collects the pages of docs/, the READMEs and the generated references in BUILD/docs/pages, and runs mkdocs there, which
writes BUILD/docs/site/index.html. With --pages-only, mkdocs is not needed: the pages are collected and their links
checked. A link from one page to another is rewritten for the site, and a link to a source file becomes plain text.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKER = "javascripts/iframe-worker.js"
LINK = re.compile(r"\[([^\]\n]*(?:\n[^\]\n]+)?)\]\(([^)\s]+)\)")  # its words may be broken over two lines

# Sections of the navigation: (title, source) of each page. `ninja docs` or this script generates BUILD/... A page that
# does not exist is left out. Pages of docs/ that no section names are appended to the last section.
SECTIONS = {
    "Start": [
        ("Espalier", "README.md"), ("A tour of ten minutes", "docs/tour.md"),
        ("The minimal loop", "docs/minimal_loop.md")],
    "How to": [
        ("Plan for machines you do not have", "docs/other_machines.md"), ("From Megatron-LM", "docs/from_megatron.md"),
        ("From MindFormers", "docs/from_mindformers.md"),
        ("From Hugging Face, fine-tuning", "docs/from_huggingface.md"),
        ("Fine-tuning", "docs/fine_tuning.md"),
        ("Port a Hugging Face model", "docs/port_a_model.md"), ("What $100 buys", "docs/cost.md"),
        ("GPUs", "docs/gpus.md"), ("Several processes and hosts", "docs/cluster.md"),
        ("Generate text, serve", "docs/generate.md"), ("Reports", "docs/reports.md"), ("Python", "docs/python.md"),
        ("For programs and agents", "docs/agents.md")],
    "Explanation": [
        ("The planner", "docs/planner.md"), ("The verifier", "docs/verifier.md"),
        ("Architecture", "docs/architecture.md"), ("Other systems", "docs/comparison.md"),
        ("Measured figures", "docs/measured.md")],
    "Reference": [
        ("Run files, model files, clusters", "configs/README.md"), ("Command line", "BUILD/command_line.md"),
        ("JSON", "docs/json.md"), ("Dialect model", "BUILD/model.md"), ("Dialect dist", "BUILD/dist.md"),
        ("Dialect exec", "BUILD/exec.md"), ("Op interfaces", "BUILD/interfaces.md"), ("Passes", "BUILD/passes.md"),
        ("Library functions", "BUILD/functions.md"), ("Cost model and search", "planner/README.md"),
        ("Published runs", "tools/published/README.md"), ("Run plan", "runtime/README.md"),
        ("Verification rules", "runtime/verify/README.md")],
    "Development": [
        ("Developing", "docs/developing.md"), ("Contributing", "CONTRIBUTING.md"), ("Changes", "CHANGELOG.md")],
}


def target_of(source):
    """Returns the path of a source's page in the site: "planner/README.md" is planner.md."""
    if source == "README.md":
        return "index.md"
    for folder in ("docs/", "BUILD/"):
        if source.startswith(folder):
            return ("reference/" if folder == "BUILD/" else "") + source[len(folder):]
    return "reference/" + source.removesuffix("/README.md").replace("/", "_").removesuffix(".md").lower() + ".md"


def command_line(espalier):
    """Returns the page of all verbs and their options, from --help."""
    page = "# Command line\n\nGenerated from `--help`.\n"
    waiting = [[]]
    while waiting:
        verbs = waiting.pop(0)
        text = subprocess.run([espalier, *verbs, "--help"], check=True, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "COLUMNS": "100"}).stdout
        page += f"\n## {' '.join(['espalier', *verbs])}\n\n```text\n{text.strip()}\n```\n"
        listed = text.partition("Subcommands:\n")[2].partition("\n\n")[0]
        waiting[:0] = [[*verbs, name] for name in re.findall(r"^  ([\w-]+)", listed, re.MULTILINE)]
    return page


class Pages:
    """The pages of the site, by their source."""

    def __init__(self, build):
        self.build = build
        named = {source for pages in SECTIONS.values() for _, source in pages}
        files = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]
        more = [(None, file) for file in files if file not in named]
        self.sections = {title: [page for page in pages if self.file(page[1]).exists()]
                         for title, pages in SECTIONS.items()}
        self.sections["Development"] += more
        self.targets = {source: target_of(source) for pages in self.sections.values() for _, source in pages}
        self.broken = []

    def file(self, source):
        return self.build / "docs" / source[6:] if source.startswith("BUILD/") else ROOT / source

    def link(self, source, words, address):
        """Returns a link of a page as the site needs it."""
        path, hash_, anchor = address.partition("#")
        if "://" in address or not path:
            return f"[{words}]({address})"
        linked = os.path.normpath(os.path.join(os.path.dirname(source), path))
        for candidate in (linked, linked + "/README.md"):
            if candidate in self.targets:
                here = os.path.dirname(self.targets[source])
                return f"[{words}]({os.path.relpath(self.targets[candidate], here or '.')}{hash_}{anchor})"
        if linked.startswith(("docs/pictures/", "docs/schemas/")) and (ROOT / linked).exists():
            return f"[{words}]({os.path.relpath(linked[5:], os.path.dirname(self.targets[source]) or '.')})"
        if not (ROOT / linked).exists():
            self.broken.append(f"{source}: error: the link to '{address}' leads nowhere")
        return words

    def text(self, source):
        """Returns the page with its links and lists as the site needs them."""
        blocks = self.file(source).read_text().split("```")
        for index in range(0, len(blocks), 2):
            prose = LINK.sub(lambda match: self.link(source, *match.groups()), blocks[index])
            blocks[index] = python_markdown_lists(prose)
        return "```".join(blocks)

    def collect(self, folder):
        shutil.rmtree(folder, ignore_errors=True)
        for source, target in self.targets.items():
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            (folder / target).write_text(self.text(source))
        for name in ("pictures", "schemas"):
            if (ROOT / "docs" / name).exists():
                shutil.copytree(ROOT / "docs" / name, folder / name,
                                ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        (folder / WORKER).parent.mkdir()
        shutil.copy(ROOT / "docs/iframe_worker.js", folder / WORKER)
        if self.broken:
            sys.exit("\n".join(self.broken))
        print(f"{len(self.targets)} pages; all links hold")


def python_markdown_lists(prose):
    """Rewrites lists of GitHub's Markdown: a blank line before a list, and items that are indented by four."""
    lines, width = [], 0
    for line in prose.split("\n"):
        item = re.match(r"(- |\d+\. )", line)
        if item:
            if lines and lines[-1].strip() and not width:
                lines.append("")
            width = len(item[0])
        elif line and not line.startswith(" "):
            # A line without indentation continues a paragraph, or ends the list after a blank line.
            width = 0 if not lines or not lines[-1].strip() else width
        elif width and line.startswith(" " * width):
            line = "    " + line[width:]
        lines.append(line)
    return "\n".join(lines)


def mkdocs_config(pages):
    return {
        "site_name": "Espalier", "docs_dir": "pages", "site_dir": "site",
        "theme": {
            "name": "material", "font": False,  # fonts would come from the network
            "features": ["navigation.sections", "navigation.top", "content.code.copy", "toc.follow"],
            "palette": [{"media": f"(prefers-color-scheme: {scheme})", "scheme": name, "primary": "blue grey",
                         "toggle": {"icon": "material/theme-light-dark", "name": "light or dark"}}
                        for scheme, name in (("light", "default"), ("dark", "slate"))]},
        "plugins": ["search", "offline"],
        "extra": {"polyfills": [WORKER]},  # else the plugin `offline` loads one from the network
        "markdown_extensions": ["tables", "attr_list", "pymdownx.superfences", {"toc": {"permalink": True}}],
        "validation": dict.fromkeys(("omitted_files", "absolute_links", "unrecognized_links", "anchors"), "warn"),
        "nav": [{section: [{title: pages.targets[source]} if title else pages.targets[source]
                           for title, source in listed]}
                for section, listed in pages.sections.items()],
    }


def require_no_network(site):
    """Ends with an error if a page loads a script, a style or a picture from the network."""
    loads = re.compile(r"""<(?:script|img|iframe)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*rel=["']?stylesheet[^>]*href=["']?"""
                       r"""(?:https?:)?//""")
    faults = [f"{page}: error: loads a file from the network" for page in sorted(site.rglob("*.html"))
              if loads.search(page.read_text())]
    if faults:
        sys.exit("\n".join(faults))


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    docs = build / "docs"
    docs.mkdir(exist_ok=True)
    (docs / "command_line.md").write_text(command_line(build / "bin/espalier"))
    pages = Pages(build)
    pages.collect(docs / "pages")
    (docs / "mkdocs.yml").write_text(json.dumps(mkdocs_config(pages), indent=1))  # JSON is YAML
    if "--pages-only" not in sys.argv:
        subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", docs / "mkdocs.yml"],
                       env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
        require_no_network(docs / "site")
        print(f"the site is {docs / 'site/index.html'}")


main()
