// Colours: cividis for numbers (Nunez, Anderton and Renslow 2018), Okabe and Ito's for kinds, which
// are told apart by their shape too.

const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74",
  "#c3b369", "#e1cc55", "#fee838"].map(
  (c) => [1, 3, 5].map((k) => parseInt(c.slice(k, k + 2), 16)));
const KINDS = {
  light: ["#0072b2", "#d55e00", "#009e73", "#aa4c86", "#2b87bd", "#a86d00", "#1c2430"],
  dark: ["#56b4e9", "#ff8c42", "#2cc79b", "#e39bc4", "#9cc9f0", "#f0c14b", "#e6eaf0"],
};
const MOST_KINDS = 7;
const gradient = (colours) => `linear-gradient(to right, ${colours.join(", ")})`;
const RAMP = gradient(CIVIDIS.map((c) => `rgb(${c})`));

function rampColour(t) {
  const at = Math.min(Math.max(t, 0), 1) * (CIVIDIS.length - 1);
  const k = Math.min(Math.floor(at), CIVIDIS.length - 2);
  return CIVIDIS[k].map((a, j) => Math.round(a + (CIVIDIS[k + 1][j] - a) * (at - k)));
}

// Black or white, whichever is read better on a colour (WCAG relative luminance).
function inkOn(rgb) {
  const [r, g, b] = rgb.map((v) => {
    const s = v / 255;
    return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#000000" : "#ffffff";
}

function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const dark = matchMedia("screen and (prefers-color-scheme: dark)").matches;
  return {
    page: colour("page"), ink: colour("ink"), muted: colour("muted"), line: colour("line"),
    faint: colour("faint"), accent: colour("accent"), dark, kinds: dark ? KINDS.dark : KINDS.light,
  };
}

// Where a value stands between the ends of what is drawn: 0 to 1.
function placer(low, high, log) {
  if (!(high > low)) return () => 0.5;
  if (!log) return (v) => (v - low) / (high - low);
  const [a, b] = [Math.log(low), Math.log(high)];
  return (v) => (Math.log(v) - a) / (b - a);
}

function valueAt(low, high, log, share) {
  return log ? low * (high / low) ** share : low + (high - low) * share;
}

const wide = (low, high) => low > 0 && high / low >= 20; // a logarithmic axis reads better

// How a column colours points: classes with a colour and a shape, a ramp, or nothing.
function colouring(column, alwaysRamp = false) {
  const t = theme();
  if (!column) return { of: () => 0, colours: [t.kinds[0]], ramp: false, column: null };
  if (!column.number || (column.levels.length <= MOST_KINDS && !alwaysRamp)) {
    const most = column.levels.length > MOST_KINDS ? MOST_KINDS - 1 : MOST_KINDS;
    const place = new Map(column.levels.map((v, k) => [v, Math.min(k, most)]));
    const colours = t.kinds.slice(0, Math.min(column.levels.length, MOST_KINDS));
    return { of: (i) => place.get(column.values[i]) ?? 0, colours, ramp: false, column, most };
  }
  const log = wide(column.low, column.high);
  const place = placer(column.low, column.high, log);
  const steps = 24; // few colours, so that lines of one are drawn in one go
  // The end of the ramp that the page's own colour is near would not be seen.
  const [first, last] = t.dark ? [0.35, 1] : [0, 0.85];
  const colours = Array.from({ length: steps },
    (_, k) => `rgb(${rampColour(first + ((last - first) * k) / (steps - 1))})`);
  const of = (i) => (has(column, i)
    ? Math.min(steps - 1, Math.max(0, Math.round(place(column.values[i]) * (steps - 1)))) : 0);
  return { of, colours, ramp: true, column, log };
}

const SHAPES = [
  (c, x, y, r) => { c.moveTo(x + r, y); c.arc(x, y, r, 0, 7); },
  (c, x, y, r) => { c.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8); },
  (c, x, y, r) => {
    c.moveTo(x, y - r * 1.2); c.lineTo(x + r * 1.1, y + r * 0.8); c.lineTo(x - r * 1.1, y + r * 0.8);
    c.closePath();
  },
  (c, x, y, r) => {
    c.moveTo(x, y - r * 1.3); c.lineTo(x + r * 1.3, y); c.lineTo(x, y + r * 1.3);
    c.lineTo(x - r * 1.3, y); c.closePath();
  },
  (c, x, y, r) => {
    c.moveTo(x, y + r * 1.2); c.lineTo(x + r * 1.1, y - r * 0.8); c.lineTo(x - r * 1.1, y - r * 0.8);
    c.closePath();
  },
  (c, x, y, r) => { c.rect(x - r * 1.3, y - r * 0.45, r * 2.6, r * 0.9); },
  (c, x, y, r) => { c.rect(x - r * 0.45, y - r * 1.3, r * 0.9, r * 2.6); },
];

function legendOf(place, how) {
  place.replaceChildren();
  const { column } = how;
  if (!column) return;
  if (how.ramp) {
    const by = how.log ? ", by logarithm" : "";
    place.append(h("span", {}, `colour: ${column.label}${by}`),
      h("span", {}, bare(column, column.low), h("span", { class: "ramp", style: { background: gradient(how.colours) } }),
        bare(column, column.high)));
    return;
  }
  place.append(h("span", {}, `${column.label}:`));
  how.colours.forEach((colour, k) => {
    const others = k === MOST_KINDS - 1 && column.levels.length > MOST_KINDS;
    const icon = h("canvas", { width: 28, height: 28, "aria-hidden": "true" });
    const c = icon.getContext("2d");
    c.fillStyle = colour;
    c.beginPath();
    SHAPES[k](c, 14, 14, 9);
    c.fill();
    const text = others ? `${column.levels.length - k} others` : bare(column, column.levels[k]);
    place.append(h("span", {}, icon, text));
  });
}

// A canvas as large as its place, at the resolution of the screen; returns its pen.
function pen(canvas, width, height) {
  const dense = Math.min(window.devicePixelRatio || 1, 2);
  if (canvas.width !== Math.round(width * dense) || canvas.height !== Math.round(height * dense)) {
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
  }
  const c = canvas.getContext("2d");
  c.setTransform(dense, 0, 0, dense, 0, 0);
  c.clearRect(0, 0, width, height);
  c.font = "12px system-ui, Helvetica, Arial, sans-serif";
  c.lineJoin = "round";
  return c;
}

function elided(c, text, room) {
  if (c.measureText(text).width <= room) return text;
  let cut = text;
  while (cut.length > 1 && c.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
  return `${cut}…`;
}
