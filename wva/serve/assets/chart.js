"use strict";
// A chart: lines of steps over time.

// The title of the chart that the pointer is on, at which share of its width, and what shows the values there, by title.
const pointer = { on: "", share: 0, readers: new Map() };

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

// Draws lines of steps. The values of a time are beside the pointer, with what `notes` has of that time; a click picks a time.
function chart(title, series, { whole = false, bands = [], notes = () => [], pick = null } = {}) {
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
  legend.append(...values(until).map(([name, value], index) => {
    const key = draw("svg", { "aria-hidden": "true", viewBox: "0 0 24 10" });
    key.append(draw("path", { d: "M0,5H24", class: `k${index}${series[index].dashed ? " dashed" : ""}` }));
    return make("li", {}, key, `${name} `, make("b", {}, value === null ? "\u2013" : number(value)));
  }), ...shownBands.map(([name]) => {
    const key = draw("svg", { "aria-hidden": "true", viewBox: "0 0 24 10" });
    key.append(draw("rect", { class: `band-${name}`, width: 24, height: 4, y: 3 }));
    return make("li", {}, key, name);
  }));
  const read = tooltip(svg, { series, x, y, values, notes, above, below, right, width, height });
  readable(svg, title, { from, until, left, right, above, below, width, height, read, pick });
  return make("figure", {}, make("figcaption", {}, title), svg, legend);
}

// Returns a function that shows the values of a time beside the pointer; null takes them away.
function tooltip(svg, { series, x, y, values, notes, above, below, right, width, height }) {
  const tip = draw("g", { class: "tip", visibility: "hidden" });
  svg.append(tip);
  return (at) => {
    tip.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at === null) return;
    const place = x(at);
    const found = values(at);
    const rows = [when(at), ...found.map(([name, value]) => `${name} ${value === null ? "not known" : number(value)}`), ...notes(at)];
    const texts = rows.map((words, index) => draw("text", { y: above + 17 + 16 * index }, words));
    const box = draw("rect", { class: "box", y: above, height: 16 * rows.length + 10, rx: 6 });
    const keys = found.map((_, index) => draw("path", { class: `k${index}${series[index].dashed ? " dashed" : ""}` }));
    const dots = found.flatMap(([, value], index) => (value === null ? []
      : [draw("circle", { class: `dot k${index}`, cx: place, cy: y(value), r: 3.5 })]));
    tip.replaceChildren(draw("line", { class: "cursor", x1: place, x2: place, y1: above, y2: height - below }), ...dots, box, ...keys,
      ...texts);
    const wide = 36 + Math.max(...texts.map((each) => each.getComputedTextLength()));
    const start = Math.max(2, place + 10 + wide > width - right ? place - 10 - wide : place + 10);
    box.setAttribute("x", start);
    box.setAttribute("width", wide);
    for (const each of texts) each.setAttribute("x", start + 28);
    keys.forEach((each, index) => each.setAttribute("d", `M${start + 8},${above + 29 + 16 * index}h14`));
  };
}

// Reads the values where the pointer is, also after a cycle has drawn the chart anew. A drag zooms in.
function readable(svg, title, { from, until, left, right, above, below, width, height, read, pick }) {
  let begun = null;
  const inner = width - left - right;
  const share = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.min(Math.max((((event.clientX - box.left) / box.width) * width - left) / inner, 0), 1);
  };
  const at = (part) => from + part * (until - from);
  const mark = draw("rect", { class: "select", y: above, height: height - above - below, width: 0 });
  svg.append(mark);
  if (pick) svg.classList.add("pick");
  pointer.readers.set(title, (part) => read(at(part)));
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
    pointer.on = title;
    pointer.share = now;
    read(at(now));
    if (begun === null) return;
    mark.setAttribute("x", left + Math.min(begun, now) * inner);
    mark.setAttribute("width", Math.abs(now - begun) * inner);
  });
  svg.addEventListener("pointerup", (event) => {
    const [one, other] = [begun, share(event)];
    leave();
    if (one !== null && Math.abs(one - other) >= 0.02) return zoomTo(at(Math.min(one, other)), at(Math.max(one, other)));
    redraw();
    if (one !== null && pick) pick(Number(at(other).toFixed(3)));
  });
  svg.addEventListener("pointercancel", leave);
  svg.addEventListener("pointerleave", () => {
    pointer.on = "";
    read(null);
  });
}
