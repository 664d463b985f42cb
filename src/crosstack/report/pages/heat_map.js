// Heat maps: tables of buttons, each the best (or middle) of the points of its cell; one map, or one
// for each value of a third column.

const MOST_BANDS = 24; // rows or columns; numbers with more values are put into bands
const MOST_MAPS = 12;
const heat = { row: null, column: null, value: null, each: "", how: "best", at: "" };

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
  const ways = varied((c) => c.number || c.levels.length <= 400);
  const values = varied((c) => c.number);
  const small = ways.filter((c) => c.role === "axis")
    .sort((a, b) => (a.levels.length > MOST_BANDS) - (b.levels.length > MOST_BANDS));
  const pick = (name, list, other) => (list.some((c) => c.name === name && c !== other)
    ? list.find((c) => c.name === name) : list.find((c) => c !== other)) ?? null;
  const column = pick(heat.column, heat.column ? ways : small.length ? small : ways, null);
  const row = pick(heat.row, heat.row ? ways : small.length > 1 ? small : ways, column);
  const objective = state.study.objectives[0];
  const value = pick(heat.value ?? objective, values.filter((c) => c !== row && c !== column), null);
  const kinds = ways.filter((c) => c !== row && c !== column && c.levels.length <= MOST_MAPS);
  const each = kinds.find((c) => c.name === heat.each) ?? null;
  return { ways, values, row, column, value, kinds, each };
}

function drawHeat() {
  const section = $("#heat");
  const { ways, values, row, column, value, kinds, each } = heatDefaults();
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
      [["best", "the best"], ["median", "the median"], ["count", "number of points"]]),
    ...(kinds.length ? [chooser("a map for each", kinds, each?.name ?? "", set("each"),
      [["", "all in one"]])] : []));
  ["column", "row", "value", "how", "each"].slice(0, controls.children.length).forEach((name, k) => {
    $("select", controls.children[k]).dataset.control = `heat ${name}`;
  });
  if (kept) $(`[data-control="${CSS.escape(kept)}"]`, controls)?.focus();
  const [across, down] = [bands(column), bands(row)];
  const groups = each ? bands(each) : { names: [""], of: () => 0 };
  const cells = groups.names.map(() => down.names.map(() => across.names.map(() => [])));
  for (let i = 0; i < state.n; i += 1) {
    if (!state.shown[i]) continue;
    const [g, r, c] = [groups.of(i), down.of(i), across.of(i)];
    if (g >= 0 && r >= 0 && c >= 0) cells[g][r][c].push(i);
  }
  const maps = cells.map((map, g) => ({
    name: each ? `${each.name} ${groups.names[g]}` : "",
    shown: map.map((line) => line.map((rows) => cellOf(value, rows))),
  })).filter((map) => !each || map.shown.flat().some((cell) => cell.rows.length));
  heatTables(section, { row, column, value, across, down, maps });
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

const known = (cells) => cells.map((cell) => cell.number).filter((v) => v === v);

function heatTables(section, { row, column, value, across, down, maps }) {
  const numbers = known(maps.flatMap((map) => map.shown.flat()));
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const counting = heat.how === "count";
  const log = !counting && wide(low, high);
  const place = placer(low, high, log);
  const text = (v) => (counting ? String(v) : bare(value, v));
  const title = counting ? "number of points" : `${heat.how} ${value.label}`;
  const legend = $(".legend", section);
  legend.replaceChildren(h("span", {}, `${title}${log ? ", colours by logarithm" : ""}:`));
  if (numbers.length) {
    legend.append(h("span", {}, text(low),
      h("span", { class: "ramp", style: { background: RAMP } }), text(high)));
    if (!counting) {
      legend.append(h("span", {}, `${value.goal === "max" ? "more" : "less"} is better; ★ is the best`
        + `${maps.length > 1 ? " of a map" : ""}`));
    }
  }
  const tables = maps.map(({ name, shown }, g) => {
    const ahead = (value.goal === "max" ? Math.max : Math.min)(...known(shown.flat()));
    const cells = shown.map((line, r) => h("tr", {}, h("th", { scope: "row" }, down.names[r]),
      ...line.map((cell, c) => h("td", {}, heatCell(cell, {
        at: `${g},${r},${c}`, place, text: text(cell.number),
        best: !counting && text(cell.number) === text(ahead), // equal as far as can be seen
        label: `${name ? `${name}, ` : ""}${row.name} ${down.names[r]}, ${column.name} ${across.names[c]}`,
      })))));
    const head = h("tr", {}, h("th", { scope: "col" }, `${row.label} \\ ${column.label}`),
      ...across.names.map((one) => h("th", { scope: "col" }, one)));
    return h("table", { onkeydown: heatKeys },
      h("caption", {}, `${name || title} by ${row.name} and ${column.name}`),
      h("thead", {}, head), h("tbody", {}, ...cells));
  });
  const kept = section.contains(document.activeElement) && document.activeElement.dataset.cell;
  $(".scroll", section).replaceChildren(h("div", { class: "maps" }, ...tables));
  for (const table of tables) { // one stop for the keyboard in each
    const buttons = [...table.querySelectorAll("button")];
    const at = buttons.find((b) => b.dataset.cell === heat.at);
    if (at ?? buttons[0]) (at ?? buttons[0]).tabIndex = 0;
    if (kept && at) at.focus();
  }
}

function heatCell(cell, { at, place, text, best, label }) {
  if (cell.number !== cell.number) {
    const none = cell.rows.length ? "no answer" : "–";
    return h("span", { class: "none", title: cell.rows.length ? reasonOf(cell.rows[0]) : "" }, none);
  }
  const rgb = rampColour(place(cell.number));
  return h("button", {
    type: "button",
    class: best ? "best" : "",
    tabindex: "-1",
    "data-cell": at,
    "aria-label": `${label}: ${text}, ${many(cell.rows.length, "point")}`,
    title: `${label}\n${many(cell.rows.length, "point")}`,
    style: { background: `rgb(${rgb})`, color: inkOn(rgb) },
    onclick: () => { heat.at = at; openPoint(cell.point); },
  }, best ? `★ ${text}` : text);
}

// Arrow keys go from cell to cell of a map.
function heatKeys(event) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!step || !event.target.dataset.cell) return;
  event.preventDefault();
  const [g, ...from] = event.target.dataset.cell.split(",").map(Number);
  let [r, c] = from;
  for (let k = 0; k < 500; k += 1) {
    [r, c] = [r + step[0], c + step[1]];
    const next = $(`button[data-cell="${g},${r},${c}"]`, event.currentTarget);
    if (next) {
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      heat.at = next.dataset.cell;
      next.focus();
      return;
    }
  }
}

function reasonOf(i) {
  return state.columns.get("reason")?.values[i] ?? state.columns.get("status")?.values[i] ?? "";
}

views.push(drawHeat);
