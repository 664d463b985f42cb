// The head of the page, and what starts everything; new points from a server behind the page.

function drawHead() {
  const { study } = state;
  $("#title").textContent = study.title;
  document.title = study.title;
  $("#notes").replaceChildren(...study.notes.map((note) => h("li", {}, note)));
  const status = state.columns.get("status");
  const counts = new Map();
  if (status) for (const v of status.values) counts.set(v, (counts.get(v) ?? 0) + 1);
  const kinds = [...counts].map(([v, k]) => `${k.toLocaleString("en-US")} ${v}`).join(", ");
  const axes = study.axes.map((name) => {
    const c = state.columns.get(name);
    return `${name} (${c.distinct.toLocaleString("en-US")})`;
  });
  const here = study.total > state.n ? `, ${state.n.toLocaleString("en-US")} of them here` : "";
  $("#summary").textContent = `${many(study.total, "point")}${here}${kinds ? `: ${kinds}` : ""}. `
    + `Varied: ${axes.join(", ")}.`;
  const same = [...state.columns.values()].filter((c) => c.role !== "about" && c.distinct === 1);
  $("#same").textContent = same.length
    ? `The same for all points: ${same.map((c) => `${c.name} ${words(c, c.levels[0])}`).join(", ")}.` : "";
  $("footer").textContent = `Made by crosstack ${study.version}. Numbers are shown with four digits; `
    + "the file holds them in full, and saves them as CSV in SI units.";
}

function drawBest() {
  const rows = rowsShown();
  const cards = state.study.objectives.map((name) => state.columns.get(name)).map((c) => {
    const i = bestOf(c, rows);
    const what = `${c.goal === "max" ? "most" : "least"} ${c.name}, of the points shown`;
    if (i < 0) return h("div", { class: "card" }, h("p", { class: "quiet" }, what), h("p", {}, "none"));
    const at = varied((a) => a.role === "axis").map((a) => `${a.name} ${words(a, a.values[i])}`);
    return h("div", { class: "card" }, h("p", { class: "quiet" }, what),
      h("p", { class: "big" }, alone(c, c.values[i])), h("p", {}, at.join(", ")),
      h("p", { class: "no-print" }, h("button", { type: "button", onclick: () => openPoint(i) },
        `Open point ${i + 1}`)));
  });
  $("#best").replaceChildren(...cards);
}

function drawAll() {
  drawHead();
  update();
  reopen();
}

// Canvases are drawn again where their place or the colours change.
function redraw() {
  drawScatter();
  drawParallel();
}

function watch() {
  let width = document.documentElement.clientWidth;
  new ResizeObserver(() => {
    const now = document.documentElement.clientWidth;
    if (now !== width) {
      width = now;
      redraw();
    }
  }).observe(document.documentElement);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", redraw);
  }
}

// Ask the server every other second; an unchanged store is answered without its points.
function follow(address) {
  const said = $("#live");
  said.hidden = false;
  said.textContent = "Live: new points appear as they are finished.";
  let tag = null;
  let lost = false;
  const ask = async () => {
    try {
      const answer = await fetch(address, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        const study = await answer.json();
        load(study);
        drawAll();
        const time = new Date().toLocaleTimeString("en-GB");
        said.textContent = `Live: ${many(study.total, "point")} at ${time}.`;
      } else if (answer.status !== 304) throw new Error(answer.statusText);
      else if (lost) said.textContent = "Live: connected again.";
      lost = false;
    } catch {
      if (!lost) said.textContent = "The server does not answer; the page shows the last points it had.";
      lost = true;
    }
    setTimeout(ask, 2000);
  };
  setTimeout(ask, 2000);
}

views.unshift(drawBest);
load(JSON.parse($("#study").textContent));
drawAll();
watch();
if (document.body.dataset.live) follow(document.body.dataset.live);
document.body.dataset.ready = "yes";
