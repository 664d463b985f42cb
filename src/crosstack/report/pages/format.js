// Numbers for people: a unit with a prefix for each column, four digits.

const TIMES = [[1e-9, "ns"], [1e-6, "us"], [1e-3, "ms"], [1, "s"]];
const PREFIXES = [[1e-9, "n"], [1e-6, "u"], [1e-3, "m"], [1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"],
  [1e12, "T"], [1e15, "P"], [1e18, "E"]];
const AREAS = [[1e-12, "um^2"], [1e-6, "mm^2"], [1, "m^2"]];
const NO_PREFIX = new Set(["", "1", "1/s", "1/m", "1/m^2", "K"]);

// The unit a column is shown in, and what one of it is worth in SI: that of a middling value.
function scaleOf(column, levels = column.levels) {
  if (!column.number) return { worth: 1, unit: "" };
  const unit = column.unit === "1" ? "" : column.unit;
  const sizes = Float64Array.from(levels, Math.abs).filter((v) => v > 0).sort();
  if (!sizes.length || NO_PREFIX.has(column.unit)) return { worth: 1, unit };
  const middle = sizes[Math.floor(sizes.length / 2)];
  const named = { s: TIMES, "m^2": AREAS }[unit];
  const steps = named ?? PREFIXES.filter(([w]) => w >= 1 || !unit.startsWith("B"));
  let [worth, name] = steps[0];
  for (const [w, p] of steps) if (middle >= w * 0.9995) [worth, name] = [w, p];
  return { worth, unit: named ? name : name + unit };
}

function digits(v) {
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (size >= 1e7 || size < 1e-4) return v.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  if (size >= 1000) return v.toLocaleString("en-US", { maximumFractionDigits: 0 });
  return String(Number(v.toPrecision(4)));
}

// A value in the unit of its column, without and with the unit.
function bare(column, v) {
  if (v === null || v !== v) return "–";
  return column.number ? digits(v / column.scale.worth) : String(v);
}

function words(column, v) {
  const text = bare(column, v);
  return column.scale.unit && text !== "–" ? `${text} ${column.scale.unit}` : text;
}

// A value alone, in the unit that suits it.
function alone(column, v) {
  return words({ ...column, scale: scaleOf(column, [v]) }, v);
}

function many(count, noun) {
  return `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
}

// Round ticks of an axis that holds low to high, in SI; `log` by powers of ten.
function ticksOf(low, high, log, most, worth) {
  const [a, b] = [low / worth, high / worth];
  if (!(b > a)) return [low];
  const found = [];
  if (log) {
    const [first, last] = [Math.floor(Math.log10(a)), Math.ceil(Math.log10(b))];
    const factors = last - first <= 2 ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil((last - first) / most));
    for (let k = first; k <= last; k += every) for (const f of factors) found.push(f * 10 ** k);
  } else {
    const rough = (b - a) / most;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((m) => m >= rough * (1 - 1e-9));
    for (let k = Math.ceil(a / step - 1e-9); k * step <= b + step * 1e-9; k += 1) found.push(k * step);
  }
  const inside = found.filter((t) => t >= a * (1 - 1e-9) - 1e-300 && t <= b * (1 + 1e-9) + 1e-300);
  return (inside.length ? inside : [a, b]).map((t) => t * worth);
}
