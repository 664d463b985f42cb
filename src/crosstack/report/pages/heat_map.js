// The heat map: a table of buttons, each the best (or middle) of the points of its cell.

const MOST_BANDS = 24; // rows or columns; numbers with more values are put into bands
const heat = { row: null, column: null, value: null, how: "best", at: [0, 0] };

// Groups along an axis: their words, and which of them a point is in.
function bands(column) {
  if (column.levels.length <= MOST_BANDS || !column.number) {
    const index = new Map(column.levels.map((v, k) => [v, k]));
    return {
      names: column.levels.map((v) => bare(column, v)),
      of: (i) => (has(column, i) ? index.get(column.values[i]) : -1),
    };
  }
  const count = 12;
  const log = wide(column.low, column.high);
  const place = placer(column.low, column.high, log);
  const ends = Array.from({ length: count + 1 },
    (_, k) => bare(column, valueAt(column.low, column.high, log, k / count)));
  return {
    names: ends.slice(0, -1).map((low, k) => `${low} to ${ends[k + 1]}`),
    of: (i) => (has(column, i) ? Math.min(count - 1, Math.floor(place(column.values[i]) * count)) : -1),
  };
}

function heatDefaults() {
  const ways = varied((c) => c.levels.length <= 400);
  const values = varied((c) => c.number);
  const small = ways.filter((c) => c.role === "axis")
    .sort((a, b) => (a.levels.length > MOST_BANDS) - (b.levels.length > MOST_BANDS));
  const pick = (name, list, other) => (list.some((c) => c.name === name && c !== other)
    ? list.find((c) => c.name === name) : list.find((c) => c !== other)) ?? null;
  const column = pick(heat.column, heat.column ? ways : small.length ? small : ways, null);
  const row = pick(heat.row, heat.row ? ways : small.length > 1 ? small : ways, column);
  const objective = state.study.objectives[0];
  const value = pick(heat.value ?? objective, values.filter((c) => c !== row && c !== column), null);
  return { ways, values, row, column, value };
}

function drawHeat() {
  const section = $("#heat");
  const { ways, values, row, column, value } = heatDefaults();
  section.hidden = !(row && column && value);
  if (section.hidden) return;
  const set = (name) => (v) => { heat[name] = v; drawHeat(); };
  const kept = document.activeElement?.dataset?.control;
  const controls = $(".controls", section);
  controls.replaceChildren(
    chooser("columns", ways.filter((c) => c !== row), column.name, set("column")),
    chooser("rows", ways.filter((c) => c !== column), row.name, set("row")),
    chooser("value", values, value.name, set("value")),
    chooser("of each cell", [], heat.how, set("how"),
      [["best", "the best"], ["median", "the median"], ["count", "number of points"]]));
  ["column", "row", "value", "how"].forEach((name, k) => {
    $("select", controls.children[k]).dataset.control = `heat ${name}`;
  });
  if (kept) $(`[data-control="${CSS.escape(kept)}"]`, controls)?.focus();
  const [across, down] = [bands(column), bands(row)];
  const cells = down.names.map(() => across.names.map(() => []));
  for (let i = 0; i < state.n; i += 1) {
    if (!state.shown[i]) continue;
    const [r, c] = [down.of(i), across.of(i)];
    if (r >= 0 && c >= 0) cells[r][c].push(i);
  }
  const shown = cells.map((line) => line.map((rows) => cellOf(value, rows)));
  heatTable(section, { row, column, value, across, down, shown });
}

function cellOf(value, rows) {
  const good = rows.filter((i) => state.answered[i] && has(value, i));
  if (heat.how === "count") return { number: rows.length || NaN, point: good[0] ?? rows[0], rows, good };
  if (!good.length) return { number: NaN, point: rows[0], rows, good };
  if (heat.how === "best") {
    const point = bestOf(value, good);
    return { number: value.values[point], point, rows, good };
  }
  good.sort((a, b) => value.values[a] - value.values[b]);
  const point = good[Math.floor((good.length - 1) / 2)];
  return { number: value.values[point], point, rows, good };
}

function heatTable(section, { row, column, value, across, down, shown }) {
  const numbers = shown.flat().map((cell) => cell.number).filter((v) => v === v);
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const counting = heat.how === "count";
  const log = !counting && wide(low, high);
  const place = placer(low, high, log);
  const text = (v) => (counting ? String(v) : bare(value, v));
  const ahead = value.goal === "max" ? high : low;
  const title = counting ? "number of points" : `${heat.how} ${value.label}`;
  const legend = $(".legend", section);
  legend.replaceChildren(h("span", {}, `${title}${log ? ", colours by logarithm" : ""}:`));
  if (numbers.length) {
    legend.append(h("span", {}, text(low),
      h("span", { class: "ramp", style: { background: RAMP } }), text(high)));
    if (!counting) {
      legend.append(h("span", {}, `${value.goal === "max" ? "more" : "less"} is better; ★ is the best`));
    }
  }
  const cells = shown.map((line, r) => h("tr", {}, h("th", { scope: "row" }, down.names[r]),
    ...line.map((cell, c) => h("td", {}, heatCell(cell, {
      r, c, place, text: text(cell.number),
      best: !counting && cell.number === ahead,
      label: `${row.name} ${down.names[r]}, ${column.name} ${across.names[c]}`,
    })))));
  const head = h("tr", {}, h("th", { scope: "col" }, `${row.label} \\ ${column.label}`),
    ...across.names.map((name) => h("th", { scope: "col" }, name)));
  const table = h("table", { onkeydown: heatKeys },
    h("caption", {}, `${title} by ${row.name} and ${column.name}`),
    h("thead", {}, head), h("tbody", {}, ...cells));
  const kept = section.contains(document.activeElement) && document.activeElement.dataset.cell;
  $(".scroll", section).replaceChildren(table);
  const buttons = [...table.querySelectorAll("button")];
  const at = buttons.find((b) => b.dataset.cell === heat.at.join()) ?? buttons[0];
  if (at) at.tabIndex = 0;
  if (kept && at) at.focus();
}

function heatCell(cell, { r, c, place, text, best, label }) {
  if (cell.number !== cell.number) {
    const none = cell.rows.length ? "no answer" : "–";
    return h("span", { class: "none", title: cell.rows.length ? reasonOf(cell.rows[0]) : "" }, none);
  }
  const rgb = rampColour(place(cell.number));
  return h("button", {
    type: "button",
    class: best ? "best" : "",
    tabindex: "-1",
    "data-cell": `${r},${c}`,
    "aria-label": `${label}: ${text}, ${many(cell.rows.length, "point")}`,
    title: `${label}\n${many(cell.rows.length, "point")}`,
    style: { background: `rgb(${rgb})`, color: inkOn(rgb) },
    onclick: () => { heat.at = [r, c]; openPoint(cell.point); },
  }, best ? `★ ${text}` : text);
}

// One stop for the keyboard; arrow keys go from cell to cell.
function heatKeys(event) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!step || !event.target.dataset.cell) return;
  event.preventDefault();
  let [r, c] = event.target.dataset.cell.split(",").map(Number);
  for (let k = 0; k < 500; k += 1) {
    [r, c] = [r + step[0], c + step[1]];
    const next = $(`button[data-cell="${r},${c}"]`, event.currentTarget);
    if (next) {
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      heat.at = [r, c];
      next.focus();
      return;
    }
  }
}

function reasonOf(i) {
  return state.columns.get("reason")?.values[i] ?? state.columns.get("status")?.values[i] ?? "";
}

views.push(drawHeat);
