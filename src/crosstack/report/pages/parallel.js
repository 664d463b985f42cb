// Parallel coordinates: an axis for each column, a line for each point; upright where it is narrow.

const parallel = { columns: null, plot: null };
const MOST_AXES = 9;
const MOST_LINES = 2000; // of more an even share is drawn, with the best

function parallelColumns() {
  const all = varied();
  if (parallel.columns) return all.filter((c) => parallel.columns.has(c.name));
  const main = all.filter((c) => c.role === "axis" || state.study.objectives.includes(c.name));
  const more = ["price", "power", "utilization"].map((n) => all.find((c) => c.name === n && !main.includes(c)));
  return [...main, ...more.filter((c) => c && main.length < 6)].slice(0, MOST_AXES);
}

function drawParallel() {
  const section = $("#parallel");
  const columns = parallelColumns();
  const all = varied();
  section.hidden = all.length < 2;
  if (section.hidden) return;
  const controls = $("details .controls", section);
  const kept = controls.contains(document.activeElement) ? document.activeElement.dataset.column : null;
  controls.replaceChildren(...all.map((c) => checkbox(c.name, columns.includes(c), (on) => {
    const names = new Set(parallelColumns().map((one) => one.name));
    if (on) names.add(c.name);
    else names.delete(c.name);
    parallel.columns = names;
    drawParallel();
  })));
  [...controls.querySelectorAll("input")].forEach((box, k) => { box.dataset.column = all[k].name; });
  if (kept) $(`[data-column="${CSS.escape(kept)}"]`, controls)?.focus();
  const aim = columns.find((c) => c.name === state.study.objectives[0])
    ?? columns.filter((c) => c.number).at(-1) ?? null;
  const how = colouring(aim, true);
  legendOf($(".legend", section), how);
  const rows = linesOf(rowsShown());
  if (rows.length < state.count) {
    $(".legend", section).append(h("span", {}, `${many(rows.length, "line")} of `
      + `${state.count.toLocaleString("en-US")}: the best, and an even share of the others`));
  }
  const place = $(".plot", section);
  place.setAttribute("aria-label", `${many(state.count, "point")} as lines over `
    + `${columns.map((c) => c.name).join(", ")}.`);
  drawLines(place, columns, how, rows);
}

function linesOf(rows) {
  if (rows.length <= MOST_LINES) return rows;
  const kept = new Set(state.study.objectives.map((name) => bestOf(state.columns.get(name), rows)));
  kept.delete(-1);
  const left = MOST_LINES - kept.size;
  for (let k = 0; k < left; k += 1) kept.add(rows[Math.floor((k * rows.length) / left)]);
  return [...kept].sort((a, b) => a - b);
}

function drawLines(place, columns, how, rows) {
  const t = theme();
  const width = place.clientWidth;
  const upright = width >= 90 * columns.length;
  const height = upright ? 360 : 58 * columns.length + 20;
  place.style.height = `${height}px`;
  const c = pen($("canvas", place), width, height);
  const [left, right, top, bottom] = upright ? [46, 70, 44, 14] : [14, 14, 34, 24];
  const gap = (upright ? width - left - right : height - top - bottom) / Math.max(1, columns.length - 1);
  const length = upright ? height - top - bottom : width - left - right;
  const log = columns.map((one) => one.number && wide(one.low, one.high));
  const share = columns.map((one, k) => {
    if (!one.number) return (v) => 0.03 + 0.94 * (one.index.get(v) / one.high);
    return placer(one.low, one.high, log[k]);
  });
  const at = (k, s) => (upright ? [left + k * gap, top + (1 - s) * length] : [left + s * length, top + k * gap]);
  // Points of one name are spread a little about it, so that their number can be seen.
  const spread = columns.map((one) => (one.number ? 0 : Math.min(0.05, 0.3 / one.high)));
  const line = (i) => {
    let on = false;
    for (let k = 0; k < columns.length; k += 1) {
      const one = columns[k];
      if (!has(one, i)) on = false; // a gap where there is no value
      else {
        const [px, py] = at(k, share[k](one.values[i]) + spread[k] * (((i * 0.618) % 1) - 0.5));
        if (on) c.lineTo(px, py);
        else c.moveTo(px, py);
        on = true;
      }
    }
  };
  const groups = how.colours.map(() => []);
  for (const i of rows) groups[how.of(i)].push(i);
  c.lineWidth = rows.length < 300 ? 1.8 : 1;
  c.globalAlpha = Math.min(0.85, 8 / Math.sqrt(rows.length + 1));
  // The best are drawn last.
  const order = [...groups.keys()];
  if (how.ramp && how.column.goal === "min") order.reverse();
  order.forEach((k) => {
    const own = groups[k];
    c.strokeStyle = how.colours[k];
    // Short paths: the cost of a stroke grows faster than the number of lines in it.
    for (let start = 0; start < own.length; start += 50) {
      c.beginPath();
      for (const i of own.slice(start, start + 50)) line(i);
      c.stroke();
    }
  });
  c.globalAlpha = 1;
  columns.forEach((one, k) => lineAxis(c, t, one, { k, at, upright, gap, log: log[k], share: share[k] }));
  parallel.plot = { place, columns, upright, left, top, gap, length, log, width, height };
}

function lineAxis(c, t, column, { k, at, upright, gap, log, share }) {
  const [[x0, y0], [x1, y1]] = [at(k, 0), at(k, 1)];
  c.strokeStyle = t.ink;
  c.lineWidth = 1.2;
  c.beginPath();
  c.moveTo(x0, y0);
  c.lineTo(x1, y1);
  c.stroke();
  const label = (text, x, y, bold) => {
    c.lineWidth = 4;
    c.strokeStyle = t.page;
    c.strokeText(text, x, y);
    c.fillStyle = bold ? t.ink : t.muted;
    c.fillText(text, x, y);
  };
  c.textAlign = upright ? "center" : "left";
  if (upright) label(elided(c, column.label, gap - 6), x1, k % 2 ? 14 : 30, true);
  else label(elided(c, column.label, x1 - x0), x0, y0 - 18, true);
  const marks = column.number
    ? ticksOf(column.low, column.high, log, upright ? 5 : 3, column.scale.worth).map(
      (v) => [share(v), digits(v / column.scale.worth)])
    : column.levels.map((v) => [share(v), v]);
  c.textAlign = "left";
  let free = -Infinity;
  const room = upright ? gap - 14 : Math.max(40, (x1 - x0) / Math.max(1, marks.length - 1) - 8);
  for (const [s, text] of marks) {
    const [px, py] = at(k, s);
    const short = elided(c, text, room);
    const size = c.measureText(short).width;
    const here = upright ? -py : Math.min(px, x1 - size);
    if (here < free) continue;
    label(short, upright ? px + 5 : here, upright ? py + 4 : py + 15, false);
    free = here + (upright ? 15 : size + 8);
  }
  const kept = state.ranges.get(column.name);
  const picked = state.picks.get(column.name);
  c.strokeStyle = t.accent;
  c.lineWidth = 6;
  const clamp = (s) => Math.min(1, Math.max(0, s));
  const spans = kept ? [kept.map((v, e) => clamp(Number.isFinite(v) ? share(v) : e))] : [];
  if (picked) for (const v of picked) spans.push([share(v) - 0.015, share(v) + 0.015].map(clamp));
  for (const [a, b] of spans) {
    c.beginPath();
    c.moveTo(...at(k, a));
    c.lineTo(...at(k, b));
    c.stroke();
  }
}

// Drag along an axis: keep what is inside; click on it: let it go.
function parallelBrush() {
  const over = $("#parallel .over");
  let start = null;
  const locate = (event) => {
    const { upright, left, top, gap, length, columns } = parallel.plot;
    const [along, across] = upright
      ? [event.offsetX - left, 1 - (event.offsetY - top) / length]
      : [event.offsetY - top, (event.offsetX - left) / length];
    const k = Math.min(columns.length - 1, Math.max(0, Math.round(along / gap)));
    return { k, share: Math.min(1, Math.max(0, across)), near: Math.abs(along - k * gap) < 30 };
  };
  over.addEventListener("pointerdown", (event) => {
    const here = locate(event);
    if (!here.near) return;
    start = here;
    over.setPointerCapture(event.pointerId);
  });
  over.addEventListener("pointermove", (event) => {
    if (!start) return;
    const { upright, left, top, gap, length, width, height } = parallel.plot;
    const c = pen(over, width, height);
    const [a, b] = [start.share, locate(event).share].sort((p, q) => p - q);
    c.strokeStyle = theme().accent;
    c.lineWidth = 2;
    if (upright) c.strokeRect(left + start.k * gap - 8, top + (1 - b) * length, 16, (b - a) * length);
    else c.strokeRect(left + a * length, top + start.k * gap - 8, (b - a) * length, 16);
  });
  over.addEventListener("pointerup", (event) => {
    if (!start) return;
    const { columns, log, width, height } = parallel.plot;
    const [a, b] = [start.share, locate(event).share].sort((p, q) => p - q);
    const column = columns[start.k];
    const which = log[start.k];
    start = null;
    pen(over, width, height);
    state.ranges.delete(column.name);
    state.picks.delete(column.name);
    if (b - a > 0.01) {
      if (column.number) {
        setRange(column.name, valueAt(column.low, column.high, which, a),
          valueAt(column.low, column.high, which, b));
      } else {
        const inside = (v) => 0.03 + 0.94 * (column.index.get(v) / column.high);
        setPicks(column.name, new Set(column.levels.filter((v) => inside(v) >= a && inside(v) <= b)));
      }
    }
    update();
  });
  over.addEventListener("pointercancel", () => { start = null; });
}

parallelBrush();
views.push(drawParallel);
