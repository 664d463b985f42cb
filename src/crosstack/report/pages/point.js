// The breakdown of one point: where it stands among the others, and every number of it.

const opened = { key: null, row: -1, from: null };

function openPoint(i) {
  if (i === undefined || i < 0) return;
  const dialog = $("#point");
  if (!dialog.open) opened.from = document.activeElement;
  opened.key = sameKey(i);
  opened.row = i;
  drawPoint();
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  history.replaceState(null, "", `#point=${encodeURIComponent(opened.key)}`);
}

function drawPoint() {
  const i = opened.row;
  const dialog = $("#point");
  const kept = dialog.contains(document.activeElement) ? document.activeElement.dataset.go : null;
  const place = grid.order.indexOf(i);
  const step = (text, to) => h("button", {
    type: "button", "data-go": text, disabled: place < 0 || !(to >= 0 && to < grid.order.length),
    onclick: () => openPoint(grid.order[to]),
  }, text);
  const all = [...state.columns.values()];
  const axes = all.filter((c) => c.role === "axis");
  const title = axes.map((c) => `${c.name} ${words(c, c.values[i])}`).join(", ");
  dialog.replaceChildren(
    h("div", { class: "head" }, h("h2", { id: "point-title" }, `Point ${i + 1}`),
      step("Previous", place - 1), step("Next", place + 1),
      h("button", { type: "button", "data-go": "Close", onclick: () => dialog.close() }, "Close")),
    h("p", {}, title), ...statusOf(i), ...standing(i), ...breakdowns(i), everything(i, all));
  if (kept) {
    const again = $(`[data-go="${kept}"]`, dialog);
    (again.disabled ? $('[data-go="Close"]', dialog) : again).focus();
  }
}

function statusOf(i) {
  const value = (name) => state.columns.get(name)?.values[i] ?? null;
  const [status, reason] = [value("status"), value("reason")];
  const found = [];
  if (status) {
    const outside = value("within") === "no" ? ", outside of the constraints" : "";
    found.push(h("p", {}, `Status: ${status}${outside}.`));
  }
  if (reason) found.push(h("p", { class: "reason" }, reason));
  return found;
}

// Each objective beside the best and the rank among the points that are shown.
function standing(i) {
  const rows = rowsShown();
  const cards = state.study.objectives.map((name) => state.columns.get(name))
    .filter((c) => c && has(c, i)).map((c) => {
      const v = c.values[i];
      const best = bestOf(c, rows);
      const known = rows.filter((j) => state.answered[j] && has(c, j));
      const ahead = known.filter((j) => better(c, c.values[j], v)).length;
      const rank = `rank ${(ahead + 1).toLocaleString("en-US")} of ${known.length.toLocaleString("en-US")}`;
      const text = best < 0 ? "" : c.values[best] === v ? "the best of the points shown"
        : `${times(c, v, c.values[best])}, ${rank}`;
      return h("div", { class: "card" }, h("p", { class: "quiet" }, c.name),
        h("p", { class: "big" }, alone(c, v)), h("p", { class: "quiet" }, text));
    });
  return cards.length ? [h("div", { class: "cards" }, ...cards)] : [];
}

function times(column, v, best) {
  if (!(v > 0 && best > 0)) return `the best has ${words(column, best)}`;
  return `${digits(v / best)} times the best`;
}

function breakdowns(i) {
  const found = [];
  for (const { title, columns } of state.study.details) {
    const parts = columns.map((name) => state.columns.get(name)).filter((c) => has(c, i));
    if (!parts.length) continue;
    const most = Math.max(...parts.map((c) => Math.abs(c.values[i])), 0);
    found.push(h("h3", {}, title), h("div", { class: "bars" }, ...parts.flatMap((c) => [
      h("span", {}, c.name.replaceAll("_", " ")),
      h("span", { class: "bar", "aria-hidden": "true",
        style: { width: `${most ? (100 * Math.abs(c.values[i])) / most : 0}%` } }),
      h("span", { class: "num" }, words(c, c.values[i])),
    ])));
  }
  return found;
}

function everything(i, all) {
  const groups = [["varied", "axis"], ["what came out", "term"], ["about the run", "about"]];
  const bodies = groups.map(([name, role]) => {
    const rows = all.filter((c) => c.role === role && has(c, i) && c.name !== "reason");
    return h("tbody", {}, h("tr", {}, h("th", { colspan: 2, scope: "rowgroup" }, name)),
      ...rows.map((c) => h("tr", {}, h("td", {}, c.name), h("td", { class: "num" }, words(c, c.values[i])))));
  });
  return h("table", {}, h("caption", {}, "Every number of the point"), ...bodies);
}

function pointEvents() {
  const dialog = $("#point");
  dialog.addEventListener("close", () => {
    opened.key = null;
    history.replaceState(null, "", location.pathname + location.search);
    if (opened.from?.isConnected) opened.from.focus();
    else $(`[data-point="${opened.row}"]`)?.focus();
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
}

// The point that the address names, in new data too.
function reopen() {
  const key = opened.key ?? decodeURIComponent(/^#point=(.*)$/.exec(location.hash)?.[1] ?? "");
  if (!key) return;
  for (let i = 0; i < state.n; i += 1) {
    if (sameKey(i) === key) {
      if (opened.row !== i || !$("#point").open) openPoint(i);
      return;
    }
  }
}

pointEvents();
