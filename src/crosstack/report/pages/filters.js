// Filters: values to choose among, or a range, for each column; and which are at work.

const FEW = 14; // values of a column that stand as buttons
const extra = new Set(); // columns that the reader has asked for

function facetColumns() {
  const status = [...state.columns.values()].filter(
    (c) => ["status", "within"].includes(c.name) && c.distinct > 1);
  const main = varied((c) => c.role === "axis" || state.study.objectives.includes(c.name)
    || extra.has(c.name) || state.ranges.has(c.name) || state.picks.has(c.name));
  return [...status, ...main];
}

function drawFacets() {
  const place = $("#facets");
  const kept = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const shown = facetColumns();
  const rest = varied((c) => !shown.includes(c));
  place.replaceChildren(...shown.map((c) =>
    (c.levels.length <= FEW || !c.number ? choicesOf(c) : rangeOf(c))));
  if (rest.length) {
    const more = chooser("another column", rest, "", (name) => { extra.add(name); drawFacets(); },
      [["", "choose"]]);
    place.append(h("fieldset", {}, h("legend", {}, "More"), more));
  }
  if (kept) $(`[data-key="${CSS.escape(kept)}"]`, place)?.focus();
}

function choicesOf(column) {
  const picked = state.picks.get(column.name) ?? new Set();
  const range = state.ranges.get(column.name);
  const pressed = (v) => picked.has(v) || (!!range && v >= range[0] && v <= range[1]);
  const chips = column.levels.map((v) => h("button", {
    type: "button",
    "data-key": `${column.name}=${v}`,
    "aria-pressed": String(pressed(v)),
    onclick: () => {
      const next = new Set(column.levels.filter(pressed));
      if (!next.delete(v)) next.add(v);
      state.ranges.delete(column.name);
      setPicks(column.name, next);
      update();
    },
  }, words(column, v)));
  return h("fieldset", { "data-facet": column.name }, h("legend", {}, column.name),
    h("div", { class: "chips" }, ...chips));
}

function rangeOf(column) {
  const { worth } = column.scale;
  const [low, high] = state.ranges.get(column.name) ?? [-Infinity, Infinity];
  const field = (end, value, bound) => h("label", {}, end, h("input", {
    type: "number",
    step: "any",
    "data-key": `${column.name} ${end}`,
    "aria-label": `${column.label}, ${end}`,
    placeholder: digits(bound / worth),
    value: Number.isFinite(value) ? Number((value / worth).toPrecision(6)) : null,
    onchange: (event) => {
      const typed = event.target.value === "" ? null : Number(event.target.value) * worth;
      const [a, b] = state.ranges.get(column.name) ?? [-Infinity, Infinity];
      if (end === "least") setRange(column.name, typed ?? -Infinity, b);
      else setRange(column.name, a, typed ?? Infinity);
      update();
    },
  }));
  return h("fieldset", { "data-facet": column.name }, h("legend", {}, column.label),
    field("least", low, column.low), " ", field("most", high, column.high));
}

function drawActive() {
  const place = $("#active");
  const entries = [...new Set([...state.ranges.keys(), ...state.picks.keys()])];
  const count = `${state.count.toLocaleString("en-US")} of ${many(state.n, "point")} shown.`;
  const chips = entries.map((name) => {
    const column = state.columns.get(name);
    const text = filterWords(column);
    return h("button", {
      type: "button",
      "aria-label": `Remove filter: ${text}`,
      onclick: () => { state.ranges.delete(name); state.picks.delete(name); update(); },
    }, `${text} ✕`);
  });
  if (entries.length > 1) {
    chips.push(h("button", {
      type: "button",
      onclick: () => { state.ranges.clear(); state.picks.clear(); update(); },
    }, "Clear all"));
  }
  place.replaceChildren(count, h("span", { class: "chips" }, ...chips));
}

function filterWords(column) {
  const parts = [];
  const range = state.ranges.get(column.name);
  if (range) {
    const [low, high] = range;
    if (low > -Infinity && high < Infinity) {
      parts.push(`${bare(column, low)} to ${words(column, high)}`);
    } else if (low > -Infinity) parts.push(`at least ${words(column, low)}`);
    else parts.push(`at most ${words(column, high)}`);
  }
  const picked = state.picks.get(column.name);
  if (picked) {
    const names = [...picked].map((v) => words(column, v));
    parts.push(names.length > 4 ? `${names.length} values` : names.join(" or "));
  }
  return `${column.name}: ${parts.join(", ")}`;
}

views.push(() => {
  drawActive();
  drawFacets();
});
