"use strict";
// The sections of one model: its timeline, its decisions and its conditions.

const MOST_DECISIONS = 200;
const SHORTEST_SECONDS = 60;
const SPANS = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["All", 0]];

async function showModel(signal) {
  const model = chosenModel();
  $("model").hidden = !model;
  if (!model) return;
  const query = `?model=${encodeURIComponent(model.model)}`;
  const lines = await (await get(`v1/timeline/${encodeURIComponent(model.namespace)}${query}`, signal)).json();
  if (!same(model, state.chosen)) return;
  state.lines = lines;
  $("model-title").textContent = `Timeline of ${model.model} in ${model.namespace}`;
  redraw();
  showConditions(model);
}

// Returns the bounds of all points and of those that are shown, in seconds since the epoch.
function bounds() {
  const points = [...Object.values(state.lines.variants).flat(), ...state.lines.model];
  const last = state.overview.at;
  const first = Math.min(last - SHORTEST_SECONDS, ...points.map((point) => point[0]));
  const { seconds, from, until } = state.zoom || {};
  if (seconds) return { first, last, from: last - seconds, until: last };
  return state.zoom ? { first, last, from, until } : { first, last, from: first, until: last };
}

function zoomTo(from, until) {
  const { first, last } = bounds();
  const length = Math.max(SHORTEST_SECONDS, until - from);
  const end = Math.min(last, Math.max(until, first + length));
  if (length >= last - first) state.zoom = null;
  else if (end >= last) state.zoom = { seconds: length };
  else state.zoom = { from: end - length, until: end };
  redraw();
}

function redraw() {
  if (state.dragging || !state.lines) return;
  const { first, last, from, until } = bounds();
  const length = until - from;
  const spans = SPANS.map(([name, seconds]) => [name, seconds ? state.zoom?.seconds === seconds : !state.zoom,
    () => { state.zoom = seconds ? { seconds } : null; redraw(); }]);
  const moves = [
    ["\u2212", "Zoom out", !state.zoom, () => zoomTo(from - length / 2, until + length / 2)],
    ["+", "Zoom in", length <= SHORTEST_SECONDS, () => (until >= last ? zoomTo(last - length / 2, last)
      : zoomTo(from + length / 4, until - length / 4))],
    ["\u2190", "Earlier", from <= first, () => zoomTo(from - length / 2, until - length / 2)],
    ["\u2192", "Later", until >= last, () => zoomTo(from + length / 2, until + length / 2)],
  ];
  fill("zoom", [state.zoom, moves.map(([, , off]) => off)], () => [
    ...spans.map(([name, pressed, onclick]) =>
      make("button", { type: "button", "aria-pressed": String(pressed), "data-key": name, onclick }, name)),
    ...moves.map(([sign, name, off, onclick]) => make("button",
      { type: "button", "aria-label": name, title: name, "data-key": name, disabled: off ? "" : null, onclick }, sign)),
  ]);
  fill("charts", [state.lines, from, until, $("charts").clientWidth], charts);
  showDecisions(from, until);
}

function charts() {
  const found = [];
  const { model, variants } = state.lines;
  const line = (index, scale = 1) => model.map((point) => [point[0], point[index] === null ? null : point[index] * scale]);
  const known = (index) => model.some((point) => point[index] !== null);
  if (known(3)) {
    found.push(chart("Load, in requests per second", [
      { name: "demand", points: line(3) }, { name: "carried now", points: line(4) },
      { name: "carried as desired", dashed: true, points: line(5) },
    ]));
  }
  const shadows = new Set((chosenModel()?.variants || []).filter((each) => each.shadow).map((each) => each.name));
  for (const [name, points] of Object.entries(variants)) {
    const spans = (test) => points.map((point, index) => [point[0], index + 1 < points.length ? points[index + 1][0] : Infinity, test(point)])
      .filter(([, , on]) => on);
    found.push(chart(`Replicas of ${name}`, [
      { name: "exist", points: points.map((point) => [point[0], point[1]]) },
      { name: "Ready", points: points.map((point) => [point[0], point[2]]) },
      { name: shadows.has(name) ? "would have" : "desired", dashed: true, points: points.map((point) => [point[0], point[3]]) },
    ], { whole: true, bands: [["held", spans((point) => point[5])], ["limited", spans((point) => point[6])]] }));
  }
  if (known(1)) found.push(chart("KV cache used, in percent", [{ name: "mean of the replicas", points: line(1, 100) }]));
  if (known(2)) found.push(chart("Waiting requests", [{ name: "at the replicas", points: line(2) }]));
  return found;
}

function ticks(top, whole) {
  const rough = top / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(whole ? 1 : 0, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough));
  return Array.from({ length: Math.ceil(top / step - 1e-9) + 1 }, (_, index) => index * step);
}

function times(from, until, most) {
  const steps = [15, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  const step = steps.find((each) => (until - from) / each <= most) || (until - from) / most;
  const zone = moment(from).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= until; at += step) found.push(at);
  const how = step < 60 ? { hour: "2-digit", minute: "2-digit", second: "2-digit" } : step < 86400
    ? { hour: "2-digit", minute: "2-digit" } : { day: "numeric", month: "short" };
  return found.map((at) => [at, moment(at).toLocaleString("en-GB", how)]);
}

// Returns the value of a line of steps at a time; null where it has none.
function valueAt(points, at) {
  let found = null;
  for (const [begin, value] of points) {
    if (begin > at) break;
    found = value;
  }
  return found;
}

function chart(title, series, { whole = false, bands = [] } = {}) {
  const { from, until, last } = bounds();
  const columns = getComputedStyle($("charts")).gridTemplateColumns.split(" ");
  const width = Math.max(240, Math.floor(parseFloat(columns[0]) || 600) - 26);
  const [height, left, right, above, below] = [180, 44, 10, 18, 22];
  const inside = series.map((each) => each.points.filter(([at], index, all) =>
    at <= until && (at >= from || index + 1 === all.length || all[index + 1][0] > from)));
  const top = Math.max(1, ...inside.flat().map(([, value]) => value || 0));
  const marks = ticks(top, whole);
  const most = marks.at(-1);
  const x = (at) => left + ((Math.min(Math.max(at, from), until) - from) / (until - from)) * (width - left - right);
  const y = (value) => height - below - (value / most) * (height - above - below);
  const shownBands = bands.map(([name, spans]) => [name, spans.filter(([begin, end]) => begin <= until && end > from)])
    .filter(([, spans]) => spans.length);
  const values = (at) => series.map((each) => [each.name, valueAt(each.points, at)]);
  const told = values(until).map(([name, value]) => `${name} ${value === null ? "not known" : number(value)}`);
  const during = shownBands.map(([name, spans]) => `${name} ${count(spans.length, "time")}`);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
    "aria-label": `${title}, until ${clock(until)}: ${[...told, ...during].join(", ")}.` });
  for (const value of marks) {
    svg.append(draw("line", { class: value ? "grid" : "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    svg.append(draw("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  }
  for (const [at, words] of times(from, until, Math.max(2, Math.floor((width - left) / 70)))) {
    const place = x(at);
    if (place < left + 14 || place > width - right - 18) continue;
    svg.append(draw("line", { class: "grid", x1: place, x2: place, y1: above, y2: height - below }));
    svg.append(draw("text", { x: place, y: height - 6, "text-anchor": "middle" }, words));
  }
  shownBands.forEach(([name, spans], index) => {
    for (const [begin, end] of spans) {
      const [start, wide] = [x(begin), Math.max(2, x(Math.min(end, last)) - x(begin))];
      svg.append(draw("rect", { class: `shade-${name}`, x: start, width: wide, y: above, height: height - above - below }));
      svg.append(draw("rect", { class: `band-${name}`, x: start, width: wide, y: above - 16 + 6 * index, height: 4 }));
    }
  });
  inside.forEach((points, index) => {
    let path = "";
    let on = false;
    for (const [at, value] of points) {
      if (value === null) {
        if (on) path += `H${x(at)}`;
        on = false;
      } else {
        path += on ? `H${x(at)}V${y(value)}` : `M${x(at)},${y(value)}`;
        on = true;
      }
    }
    if (on) path += `H${x(until)}`;
    svg.append(draw("path", { d: path || "M0,0", class: `k${index}${series[index].dashed ? " dashed" : ""}` }));
  });
  const legend = make("ul", { class: "legend" });
  const read = (at) => legend.replaceChildren(...values(at ?? until).map(([name, value], index) => {
    const key = draw("svg", { "aria-hidden": "true", viewBox: "0 0 24 10" });
    key.append(draw("path", { d: "M0,5H24", class: `k${index}${series[index].dashed ? " dashed" : ""}` }));
    return make("li", {}, key, `${name} `, make("b", {}, value === null ? "\u2013" : number(value)));
  }), ...shownBands.map(([name]) => {
    const key = draw("svg", { "aria-hidden": "true", viewBox: "0 0 24 10" });
    key.append(draw("rect", { class: `band-${name}`, width: 24, height: 4, y: 3 }));
    return make("li", {}, key, name);
  }), at === null ? "" : make("li", {}, when(at)));
  read(null);
  zoomable(svg, { from, until, left, right, above, below, width, height, read });
  return make("figure", {}, make("figcaption", {}, title), svg, legend);
}

function zoomable(svg, { from, until, left, right, above, below, width, height, read }) {
  let begun = null;
  const inner = width - left - right;
  const share = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.min(Math.max((((event.clientX - box.left) / box.width) * width - left) / inner, 0), 1);
  };
  const mark = draw("rect", { class: "select", y: above, height: height - above - below, width: 0 });
  const cursor = draw("line", { class: "cursor", y1: above, y2: height - below, visibility: "hidden" });
  svg.append(mark, cursor);
  const leave = () => {
    begun = null;
    state.dragging = false;
    mark.setAttribute("width", 0);
  };
  svg.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    begun = share(event);
    state.dragging = true;
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    const now = share(event);
    const place = left + now * inner;
    for (const end of ["x1", "x2"]) cursor.setAttribute(end, place);
    cursor.setAttribute("visibility", "visible");
    read(from + now * (until - from));
    if (begun === null) return;
    mark.setAttribute("x", left + Math.min(begun, now) * inner);
    mark.setAttribute("width", Math.abs(now - begun) * inner);
  });
  svg.addEventListener("pointerup", (event) => {
    const [one, other] = [begun, share(event)];
    leave();
    if (one === null || Math.abs(one - other) < 0.02) return redraw();
    const at = (part) => from + part * (until - from);
    zoomTo(at(Math.min(one, other)), at(Math.max(one, other)));
  });
  svg.addEventListener("pointercancel", leave);
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    read(null);
  });
  svg.addEventListener("dblclick", () => { state.zoom = null; redraw(); });
}

function showDecisions(from, until) {
  const changes = [];
  for (const [name, points] of Object.entries(state.lines.variants)) {
    points.forEach((point, index) => {
      const before = index ? points[index - 1] : null;
      if (point[0] < from || point[0] > until || (before && [3, 4, 6].every((each) => before[each] === point[each]))) return;
      changes.push({ at: point[0], name, before: before ? before[3] : point[3], after: point[3], reason: point[4], held: point[5],
        limit: point[6] });
    });
  }
  changes.sort((one, other) => other.at - one.at || one.name.localeCompare(other.name));
  const shown = changes.slice(0, MOST_DECISIONS);
  const { namespace } = state.chosen;
  const heads = [["Time", ""], ["Variant", ""], ["Desired", "n"], ["Reason", ""], ["", ""]];
  fill("decisions", [namespace, shown], () => [shown.length ? make("div", { class: "frame cards", tabindex: "0", role: "region",
    "aria-labelledby": "decisions-title" }, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map(([head, kind]) => (head
      ? make("th", { scope: "col", class: kind }, head) : make("td", {}))))),
    make("tbody", {}, ...shown.map(({ at, name, before, after, reason, held, limit }) => make("tr", {},
      make("td", {}, when(at)),
      make("td", {}, name),
      make("td", { class: "n", "data-label": "Desired" }, arrow(before, after)),
      make("td", { class: "line" }, make("div", { class: "tags" }, coded(held ? "held" : "", held ? `held: ${reason}` : reason, meaning(reason)),
        limit ? coded("limited", `limited by ${limit}`, "") : "")),
      make("td", { class: "line" }, make("button", { type: "button", onclick: () => explain({ namespace, name }, at),
        "data-key": `${at} ${name}`, "aria-label": `Explain ${name} at ${when(at)}` }, "Explain"))))))) : "",
    shown.length ? "" : make("p", { class: "note" }, "No decision changed in this time."),
    changes.length > shown.length ? make("p", { class: "more" }, `${changes.length - shown.length} older ones. Zoom in on them.`) : ""]);
}

function showConditions(model) {
  fill("conditions", model.variants.map((each) => [each.namespace, each.name, each.conditions]), () => model.variants.map((variant) => {
    const bad = variant.conditions.filter(poor).length;
    return make("details", { "data-key": `conditions ${variant.name}` }, make("summary", { "data-key": `summary ${variant.name}` },
      `${variant.name}: ${count(variant.conditions.length, "condition")}`,
      bad ? make("span", { class: "tag bad" }, `${bad} to look at`) : ""),
    table("Conditions", ["Type", "Status", "Reason", "Message", "Since"], variant.conditions.map((each) => [
      make("b", {}, each.type), poor(each) ? make("span", { class: "tag bad" }, each.status) : each.status, each.reason,
      make("div", { class: "words" }, each.message), each.since])));
  }));
}
