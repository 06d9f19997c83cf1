// Draws the sections of a report as SVG. Each section is an object with `type` and `title`; DRAW lists the types.
// Marks of a chart are selected by pointer or by keyboard, and the line below the chart describes the selected one.
'use strict';
const NARROW = 560;  // pixels; labels stand above their bars below this width

/** Creates an SVG element. */
function svg(name, attributes = {}, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** Creates an HTML element. */
function html(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

/** Formats a number with three significant digits: 0.00123, 12.3, 45,600. */
function number(value) {
  if (!isFinite(value)) return 'none';
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e7)) return value.toExponential(2);
  return Number(value.toPrecision(Math.abs(value) >= 1000 ? 6 : 3)).toLocaleString('en-US', {maximumFractionDigits: 6});
}

/** Formats seconds with a fitting unit. */
function seconds(value) {
  if (Math.abs(value) >= 1 || value === 0) return number(value) + ' s';
  return Math.abs(value) >= 1e-3 ? number(value * 1e3) + ' ms' : number(value * 1e6) + ' µs';
}

/** Returns round axis positions that cover [low, high]. */
function ticks(low, high, count) {
  const span = high - low || 1, raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(size => size >= raw);
  const list = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i) list.push(i * step);
  return list;
}

/** A chart: an SVG of a width in pixels, its marks, and the line that describes the selected mark. */
class Chart {
  constructor(width, height, label) {
    this.root = svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label});
    this.marks = [];
  }
  add(name, attributes, text) {
    const node = svg(name, attributes, text);
    this.root.append(node);
    return node;
  }
  text(x, y, text, attributes = {}) { return this.add('text', {x, y, ...attributes}, text); }
  /** Adds a mark of a row; arrow keys move within the row and between rows. */
  mark(name, attributes, row, x, text) {
    const node = this.add(name, {...attributes, class: 'mark ' + (attributes.class || '')});
    node.dataset.mark = this.marks.length;
    this.marks.push({node, row, x, text});
    return node;
  }
}

/** Lets pointer and keyboard select the marks of a chart. Returns the figure. */
function interactive(chart) {
  const note = html(
      'p', {class: 'note', 'aria-live': 'polite'}, chart.marks.length ? 'Point at a part, or use the arrow keys.' : '');
  const stage =
      html('div', {class: 'chart', tabindex: 0, role: 'group', 'aria-label': chart.root.getAttribute('aria-label')});
  stage.append(chart.root);
  let at = -1;
  const select = index => {
    if (at >= 0) chart.marks[at].node.classList.remove('selected');
    at = index;
    if (at < 0) return;
    chart.marks[at].node.classList.add('selected');
    note.textContent = chart.marks[at].text;
  };
  /** The mark of another row, in direction +1 or -1, that is nearest in x. */
  const neighbour = direction => {
    const here = chart.marks[at], rows = [...new Set(chart.marks.map(mark => mark.row))].sort((a, b) => a - b);
    const row = rows[rows.indexOf(here.row) + direction];
    let best = at;
    chart.marks.forEach((mark, i) => {
      if (mark.row !== row) return;
      if (best === at || Math.abs(mark.x - here.x) < Math.abs(chart.marks[best].x - here.x)) best = i;
    });
    return best;
  };
  const beside = direction => {
    const row = chart.marks[at].row, order = chart.marks.map((mark, i) => i).filter(i => chart.marks[i].row === row);
    order.sort((a, b) => chart.marks[a].x - chart.marks[b].x);
    return order[Math.min(order.length - 1, Math.max(0, order.indexOf(at) + direction))];
  };
  stage.addEventListener('pointermove', event => {
    const index = event.target.dataset ? event.target.dataset.mark : undefined;
    if (index !== undefined) select(Number(index));
  });
  stage.addEventListener('keydown', event => {
    const moves = {
      ArrowRight: () => beside(1),
      ArrowLeft: () => beside(-1),
      ArrowDown: () => neighbour(1),
      ArrowUp: () => neighbour(-1),
      Home: () => 0,
      End: () => chart.marks.length - 1
    };
    if (!moves[event.key] || !chart.marks.length) return;
    event.preventDefault();
    select(at < 0 ? 0 : moves[event.key]());
  });
  return html('div', {}, stage, note);
}

/** Draws the names of classes with their colours. */
function legend(names, className) {
  const list = html('ul', {class: 'legend'});
  names.forEach((name, i) => list.append(html('li', {}, html('span', {class: 'swatch ' + className(name, i)}), name)));
  return list;
}

/** Draws an x axis with its title below the chart, and vertical lines. */
function xAxis(chart, scale, low, high, top, bottom, title) {
  const width = scale(high) - scale(low);
  for (const tick of ticks(low, high, Math.max(2, Math.floor(width / 90)))) {
    chart.add('line', {class: 'grid', x1: scale(tick), x2: scale(tick), y1: top, y2: bottom});
    chart.text(scale(tick), bottom + 16, number(tick), {'text-anchor': 'middle'});
  }
  chart.text(scale(low) + width / 2, bottom + 34, title, {'text-anchor': 'middle', class: 'title'});
}

function yAxis(chart, scale, low, high, left, right, title) {
  for (const tick of ticks(low, high, 5)) {
    chart.add('line', {class: 'grid', x1: left, x2: right, y1: scale(tick), y2: scale(tick)});
    chart.text(left - 6, scale(tick) + 4, number(tick), {'text-anchor': 'end'});
  }
  chart.text(0, 12, title, {class: 'title'});
}

/** rows: names. events: [row, class, name, start seconds, seconds]. */
function drawTimeline(section, width) {
  const left = 64, rowHeight = section.rows.length > 24 ? 14 : 22, bottom = rowHeight * section.rows.length + 4;
  const chart = new Chart(width, bottom + 42, section.title);
  const end = Math.max(...section.events.map(event => event[3] + event[4]));
  const scale = value => left + (width - left - 12) * value / end;
  xAxis(chart, scale, 0, end, 0, bottom, 'seconds since the step began');
  section.rows.forEach((name, i) => chart.text(0, rowHeight * i + rowHeight / 2 + 5, name));
  for (const [row, kind, name, start, duration] of section.events)
    chart.mark(
        'rect', {
          class: 'k-' + kind,
          x: scale(start),
          y: rowHeight * row + 2,
          width: Math.max(0.5, scale(start + duration) - scale(start)),
          height: rowHeight - 4
        },
        row, start, `${section.rows[row]}: ${name}, ${seconds(duration)} from ${seconds(start)}`);
  const kinds = [...new Set(section.events.map(event => event[1]))];
  const names = {
    forward: 'forward',
    backward: 'backward',
    weight: 'weight gradients',
    communication: 'communication',
    step: 'once per step',
    wait: 'waiting'
  };
  return [interactive(chart), legend(kinds.map(kind => names[kind]), (name, i) => 'k-' + kinds[i])];
}

/** rows: names. parts: [{name, values}], one value per row. limit: of a row's sum. */
function drawStacked(section, width) {
  const isNarrow = width < NARROW, left = isNarrow ? 4 : 84, rowHeight = isNarrow ? 40 : 26;
  const bottom = rowHeight * section.rows.length + 4, chart = new Chart(width, bottom + 42, section.title);
  const sums = section.rows.map((row, i) => section.parts.reduce((sum, part) => sum + part.values[i], 0));
  const most = Math.max(section.limit || 0, ...sums) * 1.04;
  const scale = value => left + (width - left - 12) * value / most;
  xAxis(chart, scale, 0, most, 0, bottom, section.unit);
  section.rows.forEach((name, row) => {
    const top = rowHeight * row + (isNarrow ? 18 : 3);
    chart.text(0, isNarrow ? top - 4 : top + 15, name);
    let sum = 0;
    section.parts.forEach((part, i) => {
      if (!(part.values[row] > 0)) return;
      chart.mark(
          'rect',
          {class: 'c' + i, x: scale(sum), y: top, width: scale(sum + part.values[row]) - scale(sum), height: 20}, row,
          sum, `${name}: ${part.name} ${number(part.values[row])} of ${number(sums[row])} ${section.unit}`);
      sum += part.values[row];
    });
  });
  if (section.limit) {
    chart.add('line', {class: 'limit', x1: scale(section.limit), x2: scale(section.limit), y1: 0, y2: bottom});
    chart.text(scale(section.limit) - 4, 12, `limit ${number(section.limit)}`, {'text-anchor': 'end', class: 'title'});
  }
  return [interactive(chart), legend(section.parts.map(part => part.name), (name, i) => 'c' + i)];
}

/** series: [{name, values}], seconds by item. The first series cumulates from bar to bar. */
function drawWaterfall(section, width) {
  const isNarrow = width < NARROW, left = isNarrow ? 4 : 240, lines = section.series.length;
  const rowHeight = (isNarrow ? 20 : 8) + 20 * lines, bottom = rowHeight * section.items.length + 4;
  const chart = new Chart(width, bottom + 42, section.title);
  const totals = section.series.map(series => series.values.reduce((sum, value) => sum + value, 0));
  const most = Math.max(...totals) * 1.02, scale = value => left + (width - left - 80) * value / most;
  xAxis(chart, scale, 0, most, 0, bottom, 'seconds of a step');
  const sums = section.series.map(() => 0);
  section.items.forEach((name, i) => {
    const top = rowHeight * i + 4;
    chart.text(0, top + (isNarrow ? 11 : 14), name);
    section.series.forEach((series, line) => {
      const value = series.values[i], y = top + (isNarrow ? 16 : 0) + 20 * line, x = scale(sums[line]);
      chart.mark(
          'rect', {class: 'c' + line, x, y, width: Math.max(1, scale(sums[line] + value) - x), height: 17},
          i * lines + line, sums[line],
          `${name}${series.name ? ' of ' + series.name : ''}: ${seconds(value)}, ` +
              `${number(100 * value / totals[line])} % of ${seconds(totals[line])}`);
      sums[line] += value;
      chart.text(scale(sums[line]) + 5, y + 13, seconds(value));
    });
  });
  return [
    interactive(chart), ...(lines > 1 ? [legend(section.series.map(series => series.name), (name, i) => 'c' + i)] : [])
  ];
}

/** points: {x, y, error, name, mark}. `error` is a share of y. The front joins points that none beats in both. */
function drawScatter(section, width) {
  const left = 56, height = 320, bottom = height - 42, chart = new Chart(width, height, section.title);
  const points = section.points, xs = points.map(point => point.x), ys = points.map(point => point.y);
  const error = Math.max(...points.map(point => point.error)), highX = Math.max(section.limit || 0, ...xs) * 1.05;
  const lowY = Math.max(0, Math.min(...ys) * (1 - error) * 0.95), highY = Math.max(...ys) * (1 + error) * 1.03;
  const x = value => left + (width - left - 14) * value / highX;
  const y = value => bottom - (bottom - 22) * (value - lowY) / (highY - lowY);
  xAxis(chart, x, 0, highX, 22, bottom, section.x);
  yAxis(chart, y, lowY, highY, left, width - 14, section.y);
  if (section.limit) {
    chart.add('line', {class: 'limit', x1: x(section.limit), x2: x(section.limit), y1: 22, y2: bottom});
    chart.text(x(section.limit) - 4, 34, 'limit', {'text-anchor': 'end', class: 'title'});
  }
  const front = points.filter(
      one => !points.some(other => other.x <= one.x && other.y <= one.y && (other.x < one.x || other.y < one.y)));
  front.sort((a, b) => a.x - b.x);
  chart.add(
      'path', {class: 'front', d: front.map((point, i) => (i ? 'L' : 'M') + x(point.x) + ' ' + y(point.y)).join('')});
  [...points].sort((a, b) => a.x - b.x).forEach(point => {
    chart.add('line', {
      class: 'error',
      x1: x(point.x),
      x2: x(point.x),
      y1: y(point.y * (1 - point.error)),
      y2: y(point.y * (1 + point.error))
    });
    chart.mark(
        'circle', {class: point.mark ? 'chosen' : 'c0', cx: x(point.x), cy: y(point.y), r: point.mark ? 8 : 5}, 0,
        point.x,
        `${point.mark ? point.mark + ': ' : ''}${point.name}; ${number(point.x)} ${section.xUnit}, ` +
            `${seconds(point.y)} ± ${number(100 * point.error)} %`);
  });
  return [
    interactive(chart),
    legend(
        [
          'a plan, with its error', 'marked: ' + points.filter(p => p.mark).map(p => p.mark).join(', '),
          'Pareto front: no plan is both faster and smaller'
        ],
        (name, i) => ['c0', 'chosen', 'front'][i])
  ];
}

/** series: [{name, points: [[x, y], ...]}]. reference: {name, y}, a horizontal line. */
function drawLines(section, width) {
  const left = 64, height = 240, bottom = height - 42, chart = new Chart(width, height, section.title);
  const all = section.series.flatMap(series => series.points).filter(point => isFinite(point[1]) && point[1] !== null);
  if (!all.length) return [html('p', {}, 'No values.')];
  const lowX = Math.min(...all.map(point => point[0])), highX = Math.max(...all.map(point => point[0]), lowX + 1);
  const values = all.map(point => point[1]).concat(section.reference ? [section.reference.y] : []);
  let lowY = Math.min(...values), highY = Math.max(...values);
  const room = (highY - lowY || Math.abs(highY) || 1) * 0.06;
  lowY = lowY >= 0 ? Math.max(0, lowY - room) : lowY - room;
  highY += room;
  const x = value => left + (width - left - 14) * (value - lowX) / (highX - lowX);
  const y = value => bottom - (bottom - 22) * (value - lowY) / (highY - lowY);
  xAxis(chart, x, lowX, highX, 22, bottom, section.x);
  yAxis(chart, y, lowY, highY, left, width - 14, section.y);
  section.series.forEach((series, i) => {
    const points = series.points.filter(point => point[1] !== null);
    chart.add(
        'path',
        {class: 'line s' + i, d: points.map((point, k) => (k ? 'L' : 'M') + x(point[0]) + ' ' + y(point[1])).join('')});
    points.forEach(
        point => chart.mark(
            'circle', {class: 'dot s' + i, cx: x(point[0]), cy: y(point[1]), r: points.length > 60 ? 2 : 3.5}, i,
            point[0], `${series.name}, ${section.x} ${point[0]}: ${number(point[1])}`));
  });
  if (section.reference) {
    const at = y(section.reference.y);
    chart.add('line', {class: 'limit', x1: left, x2: width - 14, y1: at, y2: at});
    chart.text(
        width - 18, at - 5, `${section.reference.name} ${number(section.reference.y)}`,
        {'text-anchor': 'end', class: 'title'});
  }
  return [
    interactive(chart),
    ...(section.series.length > 1 ? [legend(section.series.map(s => s.name), (n, i) => 's' + i)] : [])
  ];
}

/** columns: names. rows: cells. */
function drawTable(section) {
  const head = html('tr', {}, ...section.columns.map(name => html('th', {scope: 'col'}, name)));
  const rows = section.rows.map(
      row => html('tr', {}, ...row.map(cell => html('td', {}, typeof cell === 'number' ? number(cell) : cell))));
  return [html(
      'div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': section.title},
      html('table', {}, html('thead', {}, head), html('tbody', {}, ...rows)))];
}

/** facts: an object of names and values. */
function drawFacts(section) {
  return [html('dl', {}, ...Object.entries(section.facts).flatMap(([name, value]) => [html('dt', {}, name), html('dd', {}, value)]))];
}

const DRAW = {
  timeline: drawTimeline,
  stacked: drawStacked,
  waterfall: drawWaterfall,
  scatter: drawScatter,
  lines: drawLines,
  table: drawTable,
  facts: drawFacts
};

/** Draws all sections for the width of the page. */
function drawAll(report, width) {
  const main = document.querySelector('main');
  main.replaceChildren();
  for (const section of report.sections) {
    const id = section.title.toLowerCase().replace(/[^a-z0-9]+/g, '-');
    const block = html('section', {id, 'data-type': section.type}, html('h2', {}, section.title));
    if (section.text) block.append(html('p', {}, section.text));
    block.append(...DRAW[section.type](section, width));
    main.append(block);
  }
  document.body.dataset.drawn = width;
}

const report = JSON.parse(document.getElementById('data').textContent);
let drawnWidth = 0;
function draw(width) {
  if (Math.abs(width - drawnWidth) < 2) return;
  drawnWidth = width;
  drawAll(report, width);
}
const available = () => Math.max(280, Math.floor(document.querySelector('main').clientWidth));
draw(available());
addEventListener('resize', () => draw(available()));
addEventListener('beforeprint', () => draw(680));
addEventListener('afterprint', () => draw(available()));
