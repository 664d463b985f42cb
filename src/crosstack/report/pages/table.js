// The table of points: sorted by a column, a page at a time.

const grid = { sort: null, down: false, page: 0, size: 50, columns: null, order: [] };

function gridColumns() {
  const all = [...state.columns.values()].filter((c) => c.name !== "key");
  if (grid.columns) return all.filter((c) => grid.columns.has(c.name));
  const axes = all.filter((c) => c.role === "axis");
  const status = all.filter((c) => c.name === "status" || c.name === "within");
  const aims = all.filter((c) => state.study.objectives.includes(c.name));
  const more = varied((c) => c.role === "term" && !aims.includes(c)).slice(0, 6);
  const reason = all.filter((c) => c.name === "reason" && c.distinct > 0);
  return [...new Set([...axes, ...status, ...aims, ...more, ...reason])];
}

// Points in the order of a column; those without a value stand last either way.
function sorted() {
  const rows = rowsShown();
  const column = state.columns.get(grid.sort);
  if (!column) return rows;
  const sign = grid.down ? -1 : 1;
  const [known, rest] = [[], []];
  for (const i of rows) (has(column, i) ? known : rest).push(i);
  if (column.number) known.sort((a, b) => sign * (column.values[a] - column.values[b]) || a - b);
  else known.sort((a, b) => sign * inWords(column.values[a], column.values[b]) || a - b);
  return [...known, ...rest];
}

function sortBy(name) {
  grid.down = grid.sort === name ? !grid.down : state.columns.get(name).goal === "max";
  grid.sort = name;
  grid.page = 0;
  grid.order = sorted();
  drawPage();
}

function opener(i) {
  return h("button", { type: "button", "aria-label": `Open point ${i + 1}`, "data-point": i,
    onclick: () => openPoint(i) }, `${i + 1}`);
}

function drawTable() {
  grid.order = sorted();
  grid.page = Math.min(grid.page, Math.max(0, Math.ceil(grid.order.length / grid.size) - 1));
  drawPage();
}

function drawPage() {
  const section = $("#table");
  const columns = gridColumns();
  const start = grid.page * grid.size;
  const rows = grid.order.slice(start, start + grid.size);
  drawPager(section, columns);
  const head = columns.map((c) => {
    const on = grid.sort === c.name;
    const sign = on ? (grid.down ? " ▼" : " ▲") : "";
    return h("th", {
      scope: "col",
      class: c.number ? "num" : "",
      "aria-sort": on ? (grid.down ? "descending" : "ascending") : "none",
    }, h("button", { type: "button", "data-sort": c.name, onclick: () => sortBy(c.name) }, c.label + sign));
  });
  const kept = section.contains(document.activeElement) && document.activeElement.dataset.sort;
  const cell = (c, i) => {
    const bad = c.name === "status" && !state.answered[i] ? " no" : "";
    const long = c.name === "reason" ? " long" : "";
    const text = bare(c, c.values[i]);
    return h("td", { class: (c.number ? "num" : "") + bad + long }, long ? h("div", {}, text) : text);
  };
  const caption = "Points that the filters leave; a header sorts, a number opens the point.";
  $(".scroll", section).replaceChildren(h("table", {}, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "point"), ...head)),
    h("tbody", {}, ...rows.map((i) => h("tr", {}, h("td", {}, opener(i)),
      ...columns.map((c) => cell(c, i)))))));
  if (kept) $(`[data-sort="${CSS.escape(kept)}"]`, section)?.focus();
  const last = Math.min(start + grid.size, grid.order.length);
  const by = grid.sort ? `, by ${grid.sort} ${grid.down ? "downwards" : "upwards"}` : "";
  const range = grid.order.length ? `${start + 1} to ${last} of ` : "";
  $(".said", section).textContent = `${range}${many(grid.order.length, "point")}${by}.`;
}

function drawPager(section, columns) {
  const pages = Math.max(1, Math.ceil(grid.order.length / grid.size));
  const place = $(".pager", section);
  const kept = place.contains(document.activeElement) ? document.activeElement.dataset.to : null;
  const turn = (text, to, name) => h("button", {
    type: "button", "data-to": name, disabled: to < 0 || to >= pages || to === grid.page,
    onclick: () => { grid.page = to; drawPage(); },
  }, text);
  place.replaceChildren(turn("First", 0, "first"), turn("Previous", grid.page - 1, "previous"),
    h("span", {}, `page ${grid.page + 1} of ${pages}`),
    turn("Next", grid.page + 1, "next"), turn("Last", pages - 1, "last"),
    h("button", { type: "button", "data-to": "csv", onclick: saveCsv }, "Save shown points as CSV"));
  if (kept) $(`[data-to="${kept}"]`, place)?.focus();
  const choices = $(".columns", section);
  if (choices.contains(document.activeElement)) return;
  const all = [...state.columns.values()].filter((c) => c.name !== "key");
  choices.replaceChildren(...all.map((c) => checkbox(c.name, columns.includes(c), (on) => {
    const names = new Set(gridColumns().map((one) => one.name));
    if (on) names.add(c.name);
    else names.delete(c.name);
    grid.columns = names;
    drawPage();
  })));
}

// All columns of the shown points in SI, as the store has them.
function csv() {
  const columns = [...state.columns.values()];
  const quoted = (v) => (/[",\r\n]/.test(v) ? `"${v.replaceAll('"', '""')}"` : v);
  // What a spreadsheet would compute is text; a negative number stays one.
  const safe = (v) => (/^[=+\-@\t\r]/.test(v) && Number.isNaN(Number(v)) ? `'${v}` : v);
  const line = (cells) => `${cells.map((v) => quoted(safe(String(v)))).join(",")}\n`;
  const head = columns.map((c) => (c.unit && c.unit !== "1" ? `${c.name} [${c.unit}]` : c.name));
  return line(head) + grid.order.map(
    (i) => line(columns.map((c) => (has(c, i) ? c.values[i] : "")))).join("");
}

function saveCsv() {
  const link = h("a", { download: `${state.study.title.replace(/[^\w-]+/g, "_")}.csv` });
  link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

views.push(drawTable);
