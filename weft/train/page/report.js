'use strict';
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const main = document.querySelector('main');

// ---- small helpers ----
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === 'style') Object.assign(node.style, value);
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children.flat(Infinity)) if (child != null) node.append(child);
  return node;
}
const color = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
// Non-finite numbers arrive as text.
const number = v => v === 'nan' ? NaN : v === 'inf' ? Infinity : v === '-inf' ? -Infinity : v;
const has = v => v !== null && v !== undefined;

function digits(value, count) {
  value = number(value);
  if (!has(value)) return '–';
  if (!isFinite(value)) return isNaN(value) ? 'NaN' : value > 0 ? '∞' : '−∞';
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) {
    return value.toExponential(Math.max(count - 2, 0));
  }
  return value.toLocaleString('en-US', {maximumSignificantDigits: count, useGrouping: false});
}
function scaled(value, units, base) {
  let unit = 0;
  while (Math.abs(value) >= base * 0.9995 && unit + 1 < units.length) { value /= base; ++unit; }
  const text = unit === 0 && Number.isInteger(value) ? String(value)
      : value.toFixed(Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0);
  return text + units[unit];
}
const count = v => has(v) ? scaled(v, ['', ' k', ' M', ' G', ' T'], 1000) : '–';
const bytes = v => has(v) ? scaled(v, [' B', ' KiB', ' MiB', ' GiB', ' TiB'], 1024) : '–';
const ms = v => v >= 1000 ? digits(v / 1000, 3) + ' s' : digits(v, 3) + ' ms';
const percent = v => (100 * v).toFixed(1) + ' %';
const plural = (n, what) => `${n} ${what}${n === 1 ? '' : 's'}`;
function duration(seconds) {
  const s = Math.round(seconds), two = n => String(n).padStart(2, '0');
  if (s < 60) return digits(seconds, 2) + ' s';
  if (s < 3600) return `${Math.floor(s / 60)}m ${two(s % 60)}s`;
  return `${Math.floor(s / 3600)}h ${two(Math.floor(s / 60) % 60)}m`;
}
const when = t => t > 0 ? new Date(t * 1000).toLocaleString() : '';
function section(title, ...children) { main.append(el('h2', {}, title), ...children); }

// ---- head ----
const s = data.summary;
const outcome = data.outcome || 'no end recorded';
const mood = outcome === 'done' ? 'good' : /alarm|error|fail/.test(outcome) ? 'bad' : 'warn';
main.append(el('header', {}, el('h1', {}, data.title), el('span', {class: 'pill ' + mood}, outcome)));
const lead = [];
if (has(data.plan.parameters)) lead.push(count(data.plan.parameters) + ' parameters');
if (data.environment.backend) lead.push(data.environment.backend + ' backend');
if (data.environment.cpu) lead.push(data.environment.cpu);
if (s.started) lead.push('started ' + when(s.started));
main.append(el('p', {class: 'lead'}, lead.join(' · ')));

function tile(name, value, note) {
  return el('div', {class: 'card tile'}, el('div', {class: 'name'}, name),
            el('div', {class: 'value'}, value), el('div', {class: 'note'}, note || ' '));
}
const tiles = el('div', {class: 'tiles'});
tiles.append(tile('Steps', has(s.last_step) ? String(s.last_step) : '0',
                  [s.skipped ? `${s.skipped} skipped` : '', s.resumes ? plural(s.resumes, 'resume') : ''].filter(Boolean).join(', ')));
if (has(s.last_loss)) {
  tiles.append(tile('Training loss', digits(s.last_loss, 5), 'from ' + digits(s.first_loss, 5)));
}
if (has(s.eval_loss)) {
  tiles.append(tile('Validation loss', digits(s.eval_loss, 5),
                    `perplexity ${digits(s.eval_perplexity, 4)}` +
                    (s.best_eval_step !== s.eval_step ? `, best ${digits(s.best_eval_loss, 5)}` : '')));
}
if (has(s.tokens_per_s)) {
  tiles.append(tile('Tokens per second', count(s.tokens_per_s), s.mfu > 0 ? 'MFU ' + percent(s.mfu) : ''));
}
if (has(s.tokens_total)) tiles.append(tile('Tokens', count(s.tokens_total), `epoch ${s.epoch}`));
if (has(s.train_s)) tiles.append(tile('Time in steps', duration(s.train_s), `${ms(s.step_ms)} a step`));
if (has(s.device_peak_bytes)) {
  tiles.append(tile('Device memory', bytes(s.device_peak_bytes),
                    !has(s.planned_device_bytes) ? '' : s.planned_device_bytes === s.device_peak_bytes
                        ? 'as planned' : 'planned ' + bytes(s.planned_device_bytes)));
}
main.append(tiles);

// ---- curves ----
const series = data.series;
const steps = series.columns.step || [];
const banded = series.bucket > 1;       // a point is [least, mean, greatest] of `bucket` steps
const middle = v => number(banded && Array.isArray(v) ? v[1] : v);
const charts = [];
let syncing = false;

function underlay(context, area, chart) {
  for (const event of data.events) {
    const tone = {resume: 'soft', alarm: 'red', checkpoint: 'green'}[event.kind];
    if (!tone) continue;
    const x = Math.round(chart.toDomXCoord(event.step)) + 0.5;
    if (x < area.x || x > area.x + area.w) continue;
    context.save();
    context.strokeStyle = color(tone);
    context.globalAlpha = event.kind === 'checkpoint' ? 0.8 : 0.55;
    if (event.kind === 'resume') context.setLineDash([4, 4]);
    context.beginPath();
    context.moveTo(x, event.kind === 'checkpoint' ? area.y + area.h - 6 : area.y);
    context.lineTo(x, area.y + area.h);
    context.stroke();
    context.restore();
  }
}

/// A running mean forward and then backward, so that it does not lag behind.
function smooth(values) {
  const half = Math.min(Math.max(values.length / 200, 2), 30), keep = Math.pow(0.5, 1 / half);
  const pass = list => {
    let mean = 0, weight = 0;
    return list.map(v => {
      if (!isFinite(v)) return NaN;
      mean = keep * mean + (1 - keep) * v;
      weight = keep * weight + (1 - keep);
      return mean / weight;
    });
  };
  return pass(pass(values).reverse()).reverse();
}

/// lines: [{label, tone, values: Map or array over `steps`, width, points, faint, band}]
function chart(parent, title, lines, format, options) {
  const legend = el('div', {class: 'legend'});
  const plot = el('div', {class: 'plot'});
  const head = el('div', {class: 'head'}, el('h3', {}, title), legend);
  parent.append(el('div', {class: 'card' + (options.wide ? ' wide' : '')}, head, plot));
  const at = new Map();
  const row = x => { if (!at.has(x)) at.set(x, [x, ...lines.map(() => null)]); return at.get(x); };
  const cell = v => {
    if (Array.isArray(v)) return v.map(number).map(n => isFinite(n) ? n : NaN);
    const n = number(v), x = isFinite(n) ? n : NaN;
    return banded ? [x, x, x] : x;
  };
  lines.forEach((line, i) => {
    line.xs.forEach((x, k) => { row(x)[i + 1] = cell(line.band || !Array.isArray(line.ys[k]) ? line.ys[k] : line.ys[k][1]); });
  });
  const rows = [...at.values()].sort((a, b) => a[0] - b[0]);
  if (banded) for (const r of rows) for (let i = 1; i < r.length; ++i) if (r[i] === null) r[i] = [null, null, null];
  const perSeries = {};
  for (const line of lines) {
    perSeries[line.label] = {
      strokeWidth: line.width || 1.6, drawPoints: !!line.points, pointSize: 3, highlightCircleSize: 4,
    };
  }
  const tones = () => ({
    colors: lines.map(l => color(l.tone) + (l.faint ? '66' : '')),
    gridLineColor: color('grid'), axisLineColor: color('line'),
  });
  const names = values => {
    legend.replaceChildren();
    lines.forEach((line, i) => {
      if (lines.length > 1) legend.append(el('i', {style: {background: color(line.tone), opacity: line.faint ? 0.45 : 1}}), line.label + ' ');
      if (values && has(values[i])) legend.append(el('b', {}, format(values[i])));
    });
  };
  const graph = new Dygraph(plot, rows, Object.assign({
    labels: ['step', ...lines.map(l => l.label)], series: perSeries, customBars: banded, fillAlpha: 0.18,
    connectSeparatedPoints: true, legend: 'never', gridLineWidth: 1, axisLineWidth: 1, strokeBorderWidth: 0,
    rightGap: 12, highlightCircleSize: 3, animatedZooms: false, underlayCallback: underlay, yRangePad: 8,
    axes: {
      x: {valueFormatter: v => 'step ' + v, axisLabelFormatter: v => Number.isInteger(v) ? String(v) : '', drawGrid: false, pixelsPerLabel: 70},
      y: {axisLabelFormatter: v => format(v), axisLabelWidth: 58, pixelsPerLabel: 36},
    },
    highlightCallback: (event, x, points) => {
      const values = lines.map(l => { const p = points.find(q => q.name === l.label); return p ? p.yval : null; });
      names(values);
      legend.prepend('step ' + x + '  ');
    },
    unhighlightCallback: () => names(),
    drawCallback: (me, initial) => {
      if (syncing || initial) return;
      syncing = true;
      const window = me.xAxisRange();
      for (const other of charts) if (other.graph !== me) other.graph.updateOptions({dateWindow: window});
      syncing = false;
    },
  }, tones(), options.dygraph || {}));
  charts.push({graph, tones, names});
  names();
  if (options.log) {
    const button = el('button', {type: 'button', 'aria-pressed': 'false', onclick: () => {
      const on = button.getAttribute('aria-pressed') !== 'true';
      button.setAttribute('aria-pressed', String(on));
      graph.updateOptions({logscale: on});
    }}, 'log');
    head.firstChild.append(button);
  }
}

function curve(parent, name, title, tone, format, options) {
  const ys = series.columns[name];
  if (!ys || !ys.length) return;
  chart(parent, title, [{label: title, tone, xs: steps, ys, band: true}], format, options || {});
}

if (steps.length) {
  const grid = el('div', {class: 'charts'});
  section('Curves', grid);
  const loss = series.columns.loss;
  const long = steps.length >= 40;
  const lines = [{label: 'train', tone: 'blue', faint: long, width: long ? 1 : 2, xs: steps, ys: loss, band: true}];
  if (long) lines.push({label: 'train, smoothed', tone: 'blue', width: 2, xs: steps, ys: smooth(loss.map(middle))});
  if (data.evals.length) {
    lines.push({label: 'validation', tone: 'orange', width: 1.6, points: true,
                xs: data.evals.map(e => e[0]), ys: data.evals.map(e => e[1])});
  }
  chart(grid, 'Loss', lines, v => digits(v, 4), {wide: true, log: true});
  curve(grid, 'grad_norm', 'Gradient norm', 'blue', v => digits(v, 3), {log: true});
  curve(grid, 'lr', 'Learning rate', 'blue', v => v === 0 ? '0' : v.toExponential(1), {dygraph: {includeZero: true}});
  curve(grid, 'tokens_per_s', 'Tokens per second', 'blue', count, {dygraph: {includeZero: true}});
  curve(grid, 'mfu', 'Model FLOPs utilisation', 'blue', v => Math.round(100 * v) + ' %', {dygraph: {includeZero: true}});
  curve(grid, 'loss_scale', 'Loss scale', 'blue', count, {log: true});
  curve(grid, 'aux_loss', 'Router auxiliary loss', 'blue', v => digits(v, 3));
  curve(grid, 'dropped_tokens', 'Tokens dropped by experts', 'blue', count, {dygraph: {includeZero: true}});
  const notes = ['Drag to zoom, double-click to reset.'];
  if (banded) notes.push(`Each point is the mean of ${series.bucket} steps, the band their least and greatest value.`);
  const kinds = new Set(data.events.map(e => e.kind));
  if (kinds.has('checkpoint')) notes.push('Green ticks: checkpoints.');
  if (kinds.has('resume')) notes.push('Dashed lines: resumes.');
  if (kinds.has('alarm')) notes.push('Red lines: alarms.');
  main.append(el('p', {class: 'note'}, notes.join(' ')));
}

// ---- experts ----
// A row per layer with experts, a column per expert, as high as its load; the line is an even load.
if (data.experts) {
  const rows = data.experts.layers.map((loads, layer) => {
    const most = Math.max(...loads), top = Math.max(most, 2);
    const bars = el('div', {class: 'loads'}, loads.map((load, e) => el('span', {
      title: `expert ${e}: ${digits(load, 3)} of an even load`,
      style: {height: 100 * load / top + '%', background: load > 0 ? 'var(--blue)' : 'var(--red)'}})));
    bars.append(el('i', {style: {bottom: 100 / top + '%'}}));
    return el('tr', {}, el('td', {}, String(layer)), el('td', {class: 'share'}, bars), el('td', {}, digits(most, 3)),
        el('td', {}, digits(Math.min(...loads), 3)), el('td', {}, String(loads.filter(l => l === 0).length)));
  });
  section('Load of experts', el('div', {class: 'card scroll'}, el('table', {},
      el('tr', {}, ['layer with experts', '', 'most', 'least', 'idle'].map(name => el('th', {}, name))), rows),
      el('p', {class: 'note'}, `Assignments per expert over the last ${plural(data.experts.steps, 'step')}; 1 is an even load.`)));
}

// ---- memory ----
const kClasses = ['weights', 'gradients', 'optimizer', 'activations', 'workspace', 'prefetch', 'inputs', 'padding'];
const kTiers = ['device', 'host', 'nvme'];
const swatch = name => el('span', {class: 'swatch', style: {background: `var(--${name})`}});

function memoryOf(rank) {
  const tiers = kTiers.filter(t => rank[t] && (rank[t].peak_bytes > 0 || rank[t].budget > 0));
  const bars = el('div', {class: 'card'});
  for (const tier of tiers) {
    const use = rank[tier], whole = Math.max(use.budget || 0, use.peak_bytes) || 1;
    const bar = el('div', {class: 'bar'});
    for (const c of kClasses) {
      if (use[c] > 0) bar.append(el('span', {title: `${c} ${bytes(use[c])}`, style: {background: `var(--${c})`, width: 100 * use[c] / whole + '%'}}));
    }
    bars.append(el('div', {class: 'tier'}, el('div', {class: 'head'}, el('span', {}, tier),
        el('span', {}, use.budget > 0 ? `${bytes(use.peak_bytes)} of ${bytes(use.budget)} (${percent(use.peak_bytes / use.budget)})` : `${bytes(use.peak_bytes)}, no limit given`)), bar));
    const used = data.memory.used[tier];
    if (has(used) && rank.rank === 0) {
      bars.lastChild.append(el('p', {class: 'note ' + (used === use.peak_bytes ? 'ok' : 'off')},
          used === use.peak_bytes ? `The run used exactly the planned ${use.peak_bytes} bytes.`
                                  : `The run used ${used} bytes, the plan says ${use.peak_bytes}.`));
    }
  }
  const table = el('table', {}, el('tr', {}, el('th', {}, 'at the peak'), tiers.map(t => el('th', {}, t))));
  for (const c of kClasses) {
    if (!tiers.some(t => rank[t][c] > 0)) continue;
    table.append(el('tr', {}, el('td', {}, swatch(c), c), tiers.map(t => el('td', {}, rank[t][c] > 0 ? bytes(rank[t][c]) : '–'))));
  }
  table.append(el('tr', {class: 'total'}, el('td', {}, 'peak'), tiers.map(t => el('td', {}, bytes(rank[t].peak_bytes)))));
  return [bars, el('div', {class: 'card scroll'}, table)];
}
if (data.memory.ranks.length) {
  const body = el('div', {class: 'two'});
  const title = el('h2', {}, data.memory.ranks.length > 1 ? 'Memory of ' : 'Memory');
  if (data.memory.ranks.length > 1) {
    title.append(el('select', {onchange: e => body.replaceChildren(...memoryOf(data.memory.ranks[e.target.selectedIndex]))},
        data.memory.ranks.map(r => el('option', {}, 'rank ' + r.rank))));
  }
  main.append(title, body);
  body.append(...memoryOf(data.memory.ranks[0]));
}

// ---- where a step spends its time ----
function shares(rows, whole) {
  const table = el('table', {});
  for (const [name, value, note] of rows) {
    table.append(el('tr', {}, el('td', {class: 'text'}, name), el('td', {class: 'share'},
        el('div', {class: 'bar'}, el('span', {style: {background: 'var(--blue)', width: Math.min(100, 100 * value / whole) + '%'}}))),
        el('td', {}, ms(value)), el('td', {}, note || percent(value / whole))));
  }
  return table;
}
const parts = data.parts.filter(p => p[1] > 0);
const stepCards = el('div', {class: 'two'});
if (parts.length) {
  stepCards.append(el('div', {class: 'card scroll'}, el('h3', {}, `Mean step: ${ms(s.step_ms)}`), shares(parts, s.step_ms),
      el('p', {class: 'note'}, 'Lanes run side by side and the update is part of its lane: rows may overlap.')));
}
if (data.timeline && data.timeline.by_op.length) {
  const whole = data.timeline.by_op.reduce((sum, o) => sum + o[1], 0);
  stepCards.append(el('div', {class: 'card scroll'}, el('h3', {}, `Operators of step ${data.timeline.step}`),
      shares(data.timeline.by_op.slice(0, 12).map(o => [`${o[0]} × ${o[2]}`, o[1] / 1000]), whole / 1000)));
}
if (data.timeline && data.timeline.by_lane && data.timeline.by_lane.length) {
  const table = el('table', {}, el('tr', {}, ['lane', 'busy', 'planned'].map(h => el('th', {}, h))));
  for (const [lane, busy, planned] of data.timeline.by_lane) {
    table.append(el('tr', {}, el('td', {class: 'text'}, lane), el('td', {}, ms(busy / 1000)),
        el('td', {}, planned === null ? '' : ms(planned / 1000))));
  }
  stepCards.append(el('div', {class: 'card scroll'}, el('h3', {}, `Lanes of step ${data.timeline.step}`), table));
}
if (stepCards.children.length) section('One step', stepCards);

// ---- timeline ----
function timeline(t) {
  const kRow = 26, kHead = 22, kLeft = 92;
  const tones = {forward: 'weights', backward: 'optimizer', update: 'activations', verdict: 'workspace'};
  const canvas = el('canvas', {class: 'timeline', height: 10});
  const tip = el('div', {class: 'tip', hidden: ''});
  const end = Math.max(...t.lanes.map(l => l.events.reduce((m, e) => Math.max(m, e[0] + e[1]), 0)), 1e-3);
  let view = [0, end], drag = null;
  const height = kHead + kRow * t.lanes.length + 4;
  const x = (us, width) => kLeft + (us - view[0]) / (view[1] - view[0]) * (width - kLeft);
  const time = (px, width) => view[0] + (px - kLeft) / (width - kLeft) * (view[1] - view[0]);
  const nice = span => { const p = Math.pow(10, Math.floor(Math.log10(span))); return [1, 2, 5, 10].map(f => f * p).find(v => v >= span); };
  function draw() {
    const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
    if (!width) return;
    canvas.width = width * ratio; canvas.height = height * ratio; canvas.style.height = height + 'px';
    const c = canvas.getContext('2d');
    c.scale(ratio, ratio);
    c.font = '11.5px system-ui, sans-serif';
    c.textBaseline = 'middle';
    const tick = nice((view[1] - view[0]) / Math.max((width - kLeft) / 110, 1));
    for (let us = Math.ceil(view[0] / tick) * tick; us <= view[1]; us += tick) {
      const px = Math.round(x(us, width)) + 0.5;
      c.strokeStyle = color('grid'); c.beginPath(); c.moveTo(px, kHead - 4); c.lineTo(px, height); c.stroke();
      const label = us === 0 ? '0' : tick >= 1000 ? digits(us / 1000, 4) + ' ms' : digits(us, 5) + ' µs';
      c.fillStyle = color('soft');
      if (px + 3 + c.measureText(label).width <= width) c.fillText(label, px + 3, 9);
    }
    t.lanes.forEach((lane, i) => {
      const y = kHead + i * kRow;
      c.save();
      c.beginPath(); c.rect(kLeft, y, width - kLeft, kRow); c.clip();
      for (const [begin, length, name, phase] of lane.events) {
        if (begin + length < view[0] || begin > view[1]) continue;
        const left = x(begin, width), wide = Math.max(x(begin + length, width) - left, 0.6);
        c.fillStyle = color(tones[t.phases[phase]] || 'gradients');
        c.fillRect(left, y + 3, Math.max(wide - (wide > 3 ? 0.7 : 0), 0.5), kRow - 6);
        if (wide > 34) {
          c.fillStyle = '#fff';
          c.save(); c.beginPath(); c.rect(left, y, wide - 4, kRow); c.clip();
          c.fillText(t.names[name], left + 5, y + kRow / 2); c.restore();
        }
      }
      c.restore();
      c.fillStyle = color('soft'); c.fillText(lane.name, 0, y + kRow / 2);
    });
    if (drag && drag.to !== undefined) {
      c.fillStyle = color('soft'); c.globalAlpha = 0.2;
      c.fillRect(Math.min(drag.from, drag.to), 0, Math.abs(drag.to - drag.from), height);
    }
  }
  function hit(px, py, width) {
    const lane = t.lanes[Math.floor((py - kHead) / kRow)];
    if (!lane || px < kLeft) return null;
    const at = time(px, width), slack = (view[1] - view[0]) / (width - kLeft) * 1.5;
    return lane.events.find(e => at >= e[0] - slack && at <= e[0] + e[1] + slack);
  }
  canvas.addEventListener('pointermove', e => {
    const box = canvas.getBoundingClientRect(), px = e.clientX - box.left;
    if (drag) { drag.to = Math.max(px, kLeft); draw(); }
    const event = drag ? null : hit(px, e.clientY - box.top, box.width);
    tip.hidden = !event;
    if (event) {
      tip.textContent = `${t.names[event[2]]}\n${t.phases[event[3]]} · ${ms(event[1] / 1000)} at ${ms(event[0] / 1000)}`;
      tip.style.left = Math.min(e.clientX + 12, innerWidth - 260) + 'px';
      tip.style.top = e.clientY + 14 + 'px';
    }
  });
  canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
  canvas.addEventListener('pointerdown', e => {
    const box = canvas.getBoundingClientRect();
    drag = {from: Math.max(e.clientX - box.left, kLeft)};
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener('pointerup', () => {
    if (drag && drag.to !== undefined && Math.abs(drag.to - drag.from) > 4) {
      const width = canvas.clientWidth;
      view = [time(Math.min(drag.from, drag.to), width), time(Math.max(drag.from, drag.to), width)];
    }
    drag = null;
    draw();
  });
  canvas.addEventListener('dblclick', () => { view = [0, end]; draw(); });
  let drawn = 0;  // setting the height is a resize too
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (canvas.clientWidth !== drawn) { drawn = canvas.clientWidth; draw(); }
  })).observe(canvas);
  redraws.push(draw);
  const notes = ['Drag to zoom, double-click to reset.'];
  if (t.left_out) notes.push(`The ${t.left_out} shortest events are left out; trace/${t.file} has all and opens in Perfetto.`);
  else notes.push(`trace/${t.file} opens in Perfetto.`);
  const key = el('div', {class: 'legend'}, t.phases.filter(p => tones[p]).map(p => [el('i', {style: {background: `var(--${tones[p]})`}}), p + ' ']));
  section(`Timeline of step ${t.step}` + (t.rank !== null ? `, rank ${t.rank}` : ''),
          el('div', {class: 'card'}, el('div', {class: 'head'}, el('h3', {}, ms(end / 1000)), key), canvas, el('p', {class: 'note'}, notes.join(' '))), tip);
}
const redraws = [];
if (data.timeline) timeline(data.timeline);

// ---- events, environment, configuration ----
if (data.events.length) {
  const table = el('table', {}, el('tr', {}, el('th', {}, 'event'), el('th', {}, 'step'), el('th', {}, 'time'), el('th', {style: {textAlign: 'left'}}, '')));
  const shown = data.events.filter(e => e.kind !== 'checkpoint' || data.events.length <= 30);
  for (const e of shown) {
    table.append(el('tr', {}, el('td', {}, e.kind), el('td', {}, String(e.step)), el('td', {}, when(e.time)), el('td', {class: 'text'}, e.text)));
  }
  const hidden = data.events.length - shown.length;
  section('Events', el('div', {class: 'card scroll'}, table, hidden ? el('p', {class: 'note'}, `and ${hidden} checkpoints`) : null));
}
const facts = Object.entries(data.environment);
if (data.command) facts.unshift(['command', data.command]);
if (has(data.plan.flops_per_token)) facts.push(['FLOPs per token', digits(data.plan.flops_per_token, 4)]);
if (has(data.plan.world)) facts.push(['ranks', String(data.plan.world)]);
if (facts.length) {
  section('Environment', el('div', {class: 'card scroll'}, el('table', {},
      facts.map(([name, value]) => el('tr', {}, el('td', {}, name), el('td', {class: 'text'}, name === 'command' ? el('code', {}, value) : String(value)))))));
}
if (data.config) {
  section('Configuration', el('details', {class: 'card'}, el('summary', {}, 'config.toml, the effective configuration'), el('pre', {}, data.config)));
}
main.append(el('footer', {}, `Made by weft ${data.environment.weft || ''}. Charts: dygraphs, MIT licence.`));

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  for (const c of charts) { c.graph.updateOptions(c.tones()); c.names(); }
  for (const draw of redraws) draw();
});
})();
