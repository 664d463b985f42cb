// The scatter plot: points over two columns, their Pareto front, and a brush that filters.

const scatter = { x: null, y: null, colour: null, logs: new Map(), hover: -1, plot: null };

function scatterDefaults() {
  const numbers = varied((c) => c.number);
  const find = (name) => numbers.find((c) => c.name === name);
  const aims = state.study.objectives;
  const y = find(scatter.y) ?? find(aims[0]) ?? numbers.find((c) => c.role === "term") ?? numbers[0];
  const likely = [scatter.x, aims[1], "price", "power", "area", "energy"].map(find);
  const x = likely.find((c) => c && c !== y)
    ?? numbers.find((c) => c.role === "axis" && c !== y) ?? numbers.find((c) => c !== y);
  const kinds = varied((c) => c !== x && c !== y);
  const colour = scatter.colour === "" ? null : state.columns.get(scatter.colour)
    ?? kinds.find((c) => c.role === "axis" && c.levels.length <= MOST_KINDS) ?? kinds[0] ?? null;
  return { numbers, x, y, kinds, colour };
}

function drawScatter() {
  const section = $("#pareto");
  const { numbers, x, y, kinds, colour } = scatterDefaults();
  section.hidden = !(x && y);
  if (section.hidden) return;
  const set = (name) => (v) => { scatter[name] = v; drawScatter(); };
  const log = (c) => scatter.logs.get(c.name) ?? wide(c.low, c.high);
  const toggle = (name, c) => checkbox(`${name} by logarithm`, log(c), (on) => {
    scatter.logs.set(c.name, on);
    drawScatter();
  });
  const kept = document.activeElement?.dataset?.control;
  const controls = $(".controls", section);
  controls.replaceChildren(
    chooser("x", numbers.filter((c) => c !== y), x.name, set("x")),
    chooser("y", numbers.filter((c) => c !== x), y.name, set("y")),
    chooser("colour", kinds, colour?.name ?? "", set("colour"), [["", "none"]]),
    ...(x.low > 0 ? [toggle("x", x)] : []), ...(y.low > 0 ? [toggle("y", y)] : []));
  [...controls.querySelectorAll("select, input")].forEach((element, k) => {
    element.dataset.control = `scatter ${k}`;
  });
  if (kept) $(`[data-control="${CSS.escape(kept)}"]`, controls)?.focus();
  const how = colouring(colour);
  legendOf($(".legend", section), how);
  const rows = rowsShown();
  const front = frontOf(x, y, rows);
  drawPoints($(".plot", section), { x, y, how, front, log: [log(x) && x.low > 0, log(y) && y.low > 0] });
  frontTable($("details .scroll", section), x, y, front);
  const goal = (c) => `${c.goal === "max" ? "more" : "less"} ${c.name}`;
  const summary = `${many(front.length, "point")} on the front of ${goal(x)} and ${goal(y)}, of `
    + `${many(rows.length, "point")} shown. Points that filters leave out are faint.`;
  $(".plot", section).setAttribute("aria-label", summary);
  $(".said", section).textContent = summary;
}

function drawPoints(place, { x, y, how, front, log }) {
  const t = theme();
  const width = place.clientWidth;
  const height = Math.round(Math.min(520, Math.max(280, width * 0.56)));
  place.style.height = `${height}px`;
  const [left, right, top, bottom] = [64, 14, 22, 46];
  const c = pen($("canvas", place), width, height);
  pen($(".over", place), width, height);
  const [ax, ay] = [placer(x.low, x.high, log[0]), placer(y.low, y.high, log[1])];
  const inner = [width - left - right - 16, height - top - bottom - 16];
  const at = (i) => [left + 8 + ax(x.values[i]) * inner[0],
    height - bottom - 8 - ay(y.values[i]) * inner[1]];
  scatterAxes(c, t, { x, y, log, ax, ay, left, right, top, bottom, width, height, inner });
  const groups = how.colours.map(() => []);
  const faint = [];
  const pixels = new Float32Array(state.n * 2).fill(NaN);
  for (let i = 0; i < state.n; i += 1) {
    if (!has(x, i) || !has(y, i)) continue;
    [pixels[2 * i], pixels[2 * i + 1]] = at(i);
    if (state.shown[i]) groups[how.of(i)].push(i);
    else faint.push(i);
  }
  const r = state.n > 3000 ? 2.6 : state.n > 600 ? 3.4 : state.n > 100 ? 4.5 : 6;
  c.fillStyle = t.faint;
  c.beginPath();
  for (const i of faint) c.rect(pixels[2 * i] - 1, pixels[2 * i + 1] - 1, 2, 2);
  c.fill();
  groups.forEach((rows, k) => {
    if (!rows.length) return;
    c.globalAlpha = state.n > 3000 ? 0.75 : 0.9;
    const [mark, half] = markOf(SHAPES[how.ramp ? 0 : k], how.colours[k], r);
    for (const i of rows) { // at whole pixels, where nothing is interpolated
      c.drawImage(mark, Math.round(pixels[2 * i] - half), Math.round(pixels[2 * i + 1] - half),
        2 * half, 2 * half);
    }
  });
  c.globalAlpha = 1;
  drawFront(c, t, front, pixels, x, r + 3.5);
  scatter.plot = { place, x, y, log, front, pixels, left, right, top, bottom, width, height, inner, r };
}

// A mark drawn once, to be put at every point: far quicker than a path each.
function markOf(shape, colour, r) {
  const half = Math.ceil(r * 1.4) + 1;
  const canvas = document.createElement("canvas");
  const c = pen(canvas, 2 * half, 2 * half);
  c.fillStyle = colour;
  c.beginPath();
  shape(c, half, half, r);
  c.fill();
  return [canvas, half];
}

function drawFront(c, t, front, pixels, x, r) {
  c.strokeStyle = t.ink;
  c.lineWidth = 1.6;
  c.beginPath();
  front.forEach((i, k) => { // steps: between two points of it nothing better is known
    const [px, py] = [pixels[2 * i], pixels[2 * i + 1]];
    if (k) {
      const [qx, qy] = [pixels[2 * front[k - 1]], pixels[2 * front[k - 1] + 1]];
      if (x.goal === "max") c.lineTo(qx, py);
      else c.lineTo(px, qy);
      c.lineTo(px, py);
    } else c.moveTo(px, py);
  });
  c.stroke();
  c.beginPath();
  for (const i of front) {
    c.moveTo(pixels[2 * i] + r, pixels[2 * i + 1]);
    c.arc(pixels[2 * i], pixels[2 * i + 1], r, 0, 7);
  }
  c.stroke();
}

function scatterAxes(c, t, { x, y, log, ax, ay, left, right, top, bottom, width, height, inner }) {
  c.strokeStyle = t.line;
  c.fillStyle = t.muted;
  c.textAlign = "center";
  let end = -Infinity;
  for (const tick of ticksOf(x.low, x.high, log[0], width < 500 ? 4 : 8, x.scale.worth)) {
    const px = left + 8 + ax(tick) * inner[0];
    c.beginPath();
    c.moveTo(px, top);
    c.lineTo(px, height - bottom);
    c.stroke();
    const text = digits(tick / x.scale.worth);
    const half = c.measureText(text).width / 2;
    if (px - half > end + 8 && px + half < width) {
      c.fillText(text, px, height - bottom + 16);
      end = px + half;
    }
  }
  c.textAlign = "right";
  let last = Infinity;
  for (const tick of ticksOf(y.low, y.high, log[1], 6, y.scale.worth)) {
    const py = height - bottom - 8 - ay(tick) * inner[1];
    c.beginPath();
    c.moveTo(left, py);
    c.lineTo(width - right, py);
    c.stroke();
    if (py < last - 14) {
      c.fillText(digits(tick / y.scale.worth), left - 6, py + 4);
      last = py;
    }
  }
  c.strokeStyle = t.muted;
  c.strokeRect(left, top, width - left - right, height - top - bottom);
  c.fillStyle = t.ink;
  c.textAlign = "right";
  c.fillText(elided(c, `${x.label} →`, width - left), width - right, height - 12);
  c.textAlign = "left";
  c.fillText(elided(c, `↑ ${y.label}`, width - 10), 4, 13);
}

function frontTable(place, x, y, front) {
  const axes = varied((c) => c.role === "axis" && c !== x && c !== y).slice(0, 6);
  const columns = [x, y, ...axes];
  const cell = (c, i) => h("td", { class: c.number ? "num" : "" }, bare(c, c.values[i]));
  const most = 200;
  place.replaceChildren(h("table", {},
    h("caption", {}, front.length > most ? `The first ${most} points of the front.` : "The front."),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "point"),
      ...columns.map((c) => h("th", { scope: "col", class: c.number ? "num" : "" }, c.label)))),
    h("tbody", {}, ...front.slice(0, most).map((i) => h("tr", {},
      h("td", {}, opener(i)), ...columns.map((c) => cell(c, i)))))));
}

function nearestPoint(px, py) {
  const { pixels, front } = scatter.plot;
  let [found, least] = [-1, 14 ** 2];
  const look = (i, ease) => {
    const d = (pixels[2 * i] - px) ** 2 + (pixels[2 * i + 1] - py) ** 2;
    if (d * ease < least) [found, least] = [i, d * ease];
  };
  for (let i = 0; i < state.n; i += 1) if (state.shown[i]) look(i, 1);
  for (const i of front) look(i, 0.5);
  return found;
}

function hoverPoint(i, say) {
  const { place, pixels, width, height, x, y } = scatter.plot;
  scatter.hover = i;
  const c = pen($(".over", place), width, height);
  const tip = $(".tip", place);
  tip.hidden = i < 0;
  if (i < 0) return;
  const [px, py] = [pixels[2 * i], pixels[2 * i + 1]];
  c.strokeStyle = theme().accent;
  c.lineWidth = 3;
  c.beginPath();
  c.arc(px, py, 9, 0, 7);
  c.stroke();
  const axes = varied((a) => a.role === "axis").slice(0, 6);
  const lines = [...new Set([x, y, ...axes])].map((a) => `${a.name}: ${words(a, a.values[i])}`);
  tip.replaceChildren(h("div", {}, lines.join("\n")));
  tip.style.left = `${Math.max(4, Math.min(px + 12, width - tip.offsetWidth - 4))}px`;
  tip.style.top = `${py + 14 + tip.offsetHeight > height ? py - tip.offsetHeight - 12 : py + 14}px`;
  if (say) $("#pareto .said").textContent = lines.join(", ");
}

// Drag: keep the points inside; click: open the nearest.
function scatterBrush() {
  const over = $("#pareto .over");
  const place = $("#pareto .plot");
  let start = null;
  over.addEventListener("pointerdown", (event) => {
    start = [event.offsetX, event.offsetY];
    over.setPointerCapture(event.pointerId);
  });
  over.addEventListener("pointermove", (event) => {
    const here = [event.offsetX, event.offsetY];
    if (!start) {
      hoverPoint(nearestPoint(...here), false);
      return;
    }
    $(".tip", place).hidden = true;
    const { width, height } = scatter.plot;
    const c = pen(over, width, height);
    c.strokeStyle = theme().accent;
    c.lineWidth = 1.5;
    c.setLineDash([5, 4]);
    c.strokeRect(start[0], start[1], here[0] - start[0], here[1] - start[1]);
    c.setLineDash([]);
  });
  over.addEventListener("pointerup", (event) => {
    if (!start) return;
    const [from, to] = [start, [event.offsetX, event.offsetY]];
    start = null;
    if (Math.hypot(to[0] - from[0], to[1] - from[1]) < 5) {
      const i = nearestPoint(...to);
      if (i >= 0) openPoint(i);
      return;
    }
    const { x, y, log, left, bottom, height, inner } = scatter.plot;
    const across = [from[0], to[0]].sort((a, b) => a - b).map(
      (px) => valueAt(x.low, x.high, log[0], (px - left - 8) / inner[0]));
    const up = [from[1], to[1]].sort((a, b) => b - a).map(
      (py) => valueAt(y.low, y.high, log[1], (height - bottom - 8 - py) / inner[1]));
    state.picks.delete(x.name);
    state.picks.delete(y.name);
    setRange(x.name, ...across);
    setRange(y.name, ...up);
    update();
  });
  over.addEventListener("pointercancel", () => { start = null; });
  over.addEventListener("pointerleave", () => { if (!start) hoverPoint(-1, false); });
  place.addEventListener("keydown", (event) => {
    const { front } = scatter.plot;
    const at = front.indexOf(scatter.hover);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step && front.length) {
      event.preventDefault();
      const next = at < 0 ? 0 : Math.min(front.length - 1, Math.max(0, at + step));
      hoverPoint(front[next], true);
    } else if (event.key === "Enter" && scatter.hover >= 0) openPoint(scatter.hover);
    else if (event.key === "Escape") hoverPoint(-1, false);
  });
}

scatterBrush();
views.push(drawScatter);
