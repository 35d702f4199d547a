"use strict";
// What was over time: the timeline of one model, its decisions and conditions, and the cost.

const MOST_DECISIONS = 200;
const SHORTEST_SECONDS = 60;
const SPANS = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["All", 0]];

async function showModel(signal) {
  const model = chosenModel();
  $("model").hidden = !model;
  if (!model) return;
  const query = `?model=${encodeURIComponent(model.model)}`;
  const lines = await (await get(`v1/timeline/${encodeURIComponent(model.namespace)}${query}`, signal)).json();
  const costs = await (await get(`v1/cost${scope()}`, signal)).json();
  if (!same(model, state.chosen)) return;
  state.lines = lines;
  state.costs = costs.points;
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
    make("span", { class: "moves" }, ...moves.map(([sign, name, off, onclick]) => make("button",
      { type: "button", "aria-label": name, title: name, "data-key": name, disabled: off ? "" : null, onclick }, sign))),
  ]);
  fill("charts", [state.lines, from, until, $("charts").clientWidth], charts);
  fill("costs", [state.costs, state.lines.model, from, until, $("charts").clientWidth], () => [
    costChart(`Cost per hour of ${state.chosen.model}`, state.lines.model.map((point) => [point[0], point[6]]), from, until),
    costChart("Cost per hour of all models", state.costs, from, until)]);
  pointer.readers.get(pointer.on)?.(pointer.share);
  showDecisions(from, until);
}

function charts() {
  const found = [];
  const { model, variants } = state.lines;
  const { namespace } = state.chosen;
  const why = (name) => (at) => explain({ namespace, name }, at);
  const names = Object.keys(variants);
  const ofModel = names.length === 1 ? { notes: () => ["Click for why"], pick: why(names[0]) } : {};
  const line = (index, scale = 1) => model.map((point) => [point[0], point[index] === null ? null : point[index] * scale]);
  const known = (index) => model.some((point) => point[index] !== null);
  if (known(3)) {
    found.push(chart("Load, in requests per second", [
      { name: "demand", points: line(3) }, { name: "carried now", points: line(4) },
      { name: "carried as desired", dashed: true, points: line(5) },
    ], ofModel));
  }
  const shadows = new Set((chosenModel()?.variants || []).filter((each) => each.shadow).map((each) => each.name));
  for (const [name, points] of Object.entries(variants)) {
    const spans = (test) => points.map((point, index) => [point[0], index + 1 < points.length ? points[index + 1][0] : Infinity, test(point)])
      .filter(([, , on]) => on);
    found.push(chart(`Replicas of ${name}`, [
      { name: "exist", points: points.map((point) => [point[0], point[1]]) },
      { name: "Ready", points: points.map((point) => [point[0], point[2]]) },
      { name: shadows.has(name) ? "would have" : "desired", dashed: true, points: points.map((point) => [point[0], point[3]]) },
    ], { whole: true, bands: [["held", spans((point) => point[5])], ["limited", spans((point) => point[6])]],
      notes: (at) => notesOf(points, at), pick: why(name) }));
  }
  if (known(1)) found.push(chart("KV cache used, in percent", [{ name: "mean of the replicas", points: line(1, 100) }], ofModel));
  if (known(2)) found.push(chart("Waiting requests", [{ name: "at the replicas", points: line(2) }], ofModel));
  return found;
}

// What existed, and what a fleet would have cost that has throughout what existed at the peak of the shown time.
function costChart(title, points, from, until) {
  let [sum, hours, peak, peakAt] = [0, 0, 0, from];
  points.forEach(([at, cost], index) => {
    const begin = Math.max(at, from);
    const end = Math.min(index + 1 < points.length ? points[index + 1][0] : until, until);
    if (end < begin || (end === begin && at < from)) return;
    hours += (end - begin) / 3600;
    sum += (cost * (end - begin)) / 3600;
    if (cost > peak) [peak, peakAt] = [cost, begin];
  });
  const share = sum > 0 ? `, ${percent((peak * hours) / sum - 1)} more` : "";
  const node = chart(title, [{ name: "what existed", points },
    { name: "fixed fleet", dashed: true, points: [[Math.max(from, points[0]?.[0] ?? from), peak]] }]);
  node.append(make("p", { class: "note" }, `From ${when(from)} to ${when(until)} what existed cost ${number(sum)}. A fleet fixed at the `
    + `peak, ${number(peak)} per hour at ${when(peakAt)}, would have cost ${number(peak * hours)}${share}.`));
  return node;
}

// Returns what a decision was at a time.
function notesOf(points, at) {
  const point = valueAt(points.map((each) => [each[0], each]), at);
  if (!point) return ["no decision is known"];
  const [, , , , reason, held, limit] = point;
  return [held ? `held: ${reason}` : reason, limit ? `limited by ${limit}` : "", "Click for why"].filter(Boolean)
    .map((words) => (words.length > 40 ? `${words.slice(0, 39)}\u2026` : words));
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
      make("div", { class: "words" }, each.message), local(each.since)])));
  }));
}
