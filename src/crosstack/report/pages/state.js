// What the page shows: the columns of the study, the filters, and which points pass them.

const ANSWERED = new Set(["optimal", "feasible", "limit"]);
const state = {
  study: null,
  columns: new Map(),
  n: 0,
  answered: null, // 1 for points with an answer that meets the constraints
  shown: null, // 1 for points that pass the filters
  count: 0,
  ranges: new Map(), // column -> [low, high]
  picks: new Map(), // column -> set of values
};
const views = []; // functions that draw, in the order of the page
const inWords = new Intl.Collator("en", { numeric: true }).compare; // "chip 9" before "chip 10"

function load(study) {
  state.study = study;
  state.n = study.points;
  state.columns = new Map(study.columns.map((c) => [c.name, asColumn(c, study)]));
  const status = state.columns.get("status");
  const within = state.columns.get("within");
  state.answered = Uint8Array.from({ length: state.n }, (_, i) =>
    (!status || ANSWERED.has(status.values[i])) && (!within || within.values[i] !== "no") ? 1 : 0);
  for (const column of state.columns.values()) describe(column);
}

function asColumn(given, study) {
  const { name, number, goal } = given;
  const plain = given.codes ? given.codes.map((k) => given.levels[k]) : given.values;
  const values = number ? Float64Array.from(plain, (v) => (v === null ? NaN : v)) : plain;
  const role = study.axes.includes(name) ? "axis"
    : study.terms.includes(name) ? "term" : "about";
  return { name, number, goal, unit: given.unit, role, values };
}

// Levels of a column: its different values, in order.
function describe(column) {
  const seen = new Set();
  for (const v of column.values) if (v !== null && v === v) seen.add(v);
  column.distinct = seen.size;
  // A typed array and a collator sort many values several times as fast as a comparison each.
  column.levels = column.number ? [...Float64Array.from(seen).sort()] : [...seen].sort(inWords);
  column.low = column.number ? column.levels[0] : 0;
  column.high = column.number ? column.levels.at(-1) : Math.max(1, column.levels.length - 1);
  column.index = column.number ? null : new Map(column.levels.map((v, k) => [v, k]));
  column.scale = scaleOf(column);
  column.label = column.name + (column.scale.unit ? ` [${column.scale.unit}]` : "");
}

// Columns that tell points apart, in the order people look for them.
function varied(filter = () => true) {
  const found = [...state.columns.values()].filter(
    (c) => c.role !== "about" && c.distinct > 1 && filter(c));
  const rank = (c) => (c.role === "axis" ? 0 : state.study.objectives.includes(c.name) ? 1 : 2);
  return found.sort((a, b) => rank(a) - rank(b));
}

function has(column, i) {
  const v = column.values[i];
  return v !== null && v === v;
}

function passes(i) {
  for (const [name, [low, high]] of state.ranges) {
    const v = state.columns.get(name).values[i];
    if (!(v >= low && v <= high)) return false;
  }
  for (const [name, set] of state.picks) {
    if (!set.has(state.columns.get(name).values[i])) return false;
  }
  return true;
}

// Apply the filters and draw everything that depends on them.
function update() {
  for (const filters of [state.ranges, state.picks]) {
    for (const name of filters.keys()) if (!state.columns.has(name)) filters.delete(name);
  }
  state.shown = new Uint8Array(state.n);
  state.count = 0;
  for (let i = 0; i < state.n; i += 1) {
    if (passes(i)) {
      state.shown[i] = 1;
      state.count += 1;
    }
  }
  for (const view of views) view();
}

function setRange(name, low, high) {
  if (low === -Infinity && high === Infinity) state.ranges.delete(name);
  else state.ranges.set(name, [low, high]);
}

function setPicks(name, values) {
  if (values.size) state.picks.set(name, values);
  else state.picks.delete(name);
}

function sameKey(i) {
  const key = state.columns.get("key");
  return key ? key.values[i] : String(i);
}

// Whether a is better than b in a column.
function better(column, a, b) {
  return column.goal === "max" ? a > b : a < b;
}

function bestOf(column, rows) {
  let found = -1;
  for (const i of rows) {
    if (!state.answered[i] || !has(column, i)) continue;
    if (found < 0 || better(column, column.values[i], column.values[found])) found = i;
  }
  return found;
}

function rowsShown() {
  const rows = [];
  for (let i = 0; i < state.n; i += 1) if (state.shown[i]) rows.push(i);
  return rows;
}

// Points that no other beats in both columns, from left to right along the first.
function frontOf(x, y, rows) {
  const sign = (c) => (c.goal === "max" ? -1 : 1);
  const [sx, sy] = [sign(x), sign(y)];
  const found = rows.filter((i) => state.answered[i] && has(x, i) && has(y, i));
  found.sort((a, b) => sx * (x.values[a] - x.values[b]) || sy * (y.values[a] - y.values[b]));
  let least = Infinity;
  const front = found.filter((i) => {
    const v = sy * y.values[i];
    const kept = v < least;
    least = Math.min(least, v);
    return kept;
  });
  return x.goal === "max" ? front.reverse() : front;
}

// An element with properties and children; text is text, never markup.
function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "style") Object.assign(element.style, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

const $ = (selector, root = document) => root.querySelector(selector);

// A labelled choice of columns; `also` are [value, words] pairs before them.
function chooser(words, columns, chosen, changed, also = []) {
  const options = [...also, ...columns.map((c) => [c.name, c.name])];
  const select = h("select", { onchange: () => changed(select.value) },
    ...options.map(([value, text]) => h("option", { value }, text)));
  select.value = chosen;
  return h("label", {}, words, select);
}

function checkbox(words, checked, changed) {
  const box = h("input", { type: "checkbox", onchange: () => changed(box.checked) });
  box.checked = checked;
  return h("label", {}, box, words);
}
