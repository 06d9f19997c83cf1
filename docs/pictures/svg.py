"""A canvas that writes SVG with text of fixed size, readable on light and dark pages."""
import html

FORWARD, BACKWARD, WEIGHT, SUMS = "#3b7dd8", "#2a9d63", "#8fd3ae", "#e0922f"
INK, PALE = "#1c2330", "#c9d1dc"


class Canvas:
    """Shapes in drawing order. Coordinates are rounded, so that equal input gives equal bytes."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.shapes = width, height, title, []

    def rect(self, x, y, width, height, fill, tip=""):
        inner = f"<title>{html.escape(tip)}</title></rect>" if tip else "</rect>"
        self.shapes.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
                           f'fill="{fill}">{inner}')

    def line(self, x1, y1, x2, y2, color=INK, dash=""):
        style = f' stroke-dasharray="{dash}"' if dash else ""
        self.shapes.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{style}/>')

    def text(self, x, y, words, anchor="start", bold=False):
        weight = ' font-weight="600"' if bold else ""
        self.shapes.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{html.escape(words)}</text>')

    def legend(self, x, y, entries):
        for color, words in entries:
            self.rect(x, y - 9, 10, 10, color)
            self.text(x + 15, y, words)
            x += 30 + 6.5 * len(words)

    def axis(self, x, y, width, end, unit, step):
        """Draws a horizontal axis from 0 to `end` with a tick every `step`."""
        self.line(x, y, x + width, y)
        for tick in range(int(end / step + 1e-9) + 1):
            at = x + width * tick * step / end
            self.line(at, y, at, y + 4)
            self.text(at, y + 17, f"{tick * step:g}" + (f" {unit}" if tick == 0 else ""), "middle")

    def save(self, path):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                f'width="{self.width}" font-family="sans-serif" font-size="12" fill="{INK}" role="img">\n'
                f'<title>{html.escape(self.title)}</title>\n'
                f'<rect width="{self.width}" height="{self.height}" rx="6" fill="#ffffff"/>\n')
        path.write_text(head + "\n".join(self.shapes) + "\n</svg>\n")
