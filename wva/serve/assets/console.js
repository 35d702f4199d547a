"use strict";
// The console: asks the controller for its pages, and draws them. Every text enters the page as text, never as markup.

const RETRY_MILLISECONDS = 2000;
const POLL_MILLISECONDS = 15000;
const MOST_MODELS = 100;
const MOST_DECISIONS = 200;
const SHORTEST_SECONDS = 60;
const SPANS = [["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["All", 0]];
const GOOD_WHEN_TRUE = new Set(["TargetResolved", "MetricsAvailable", "OptimizationReady", "Ready", "ConfigurationValid",
  "QueriesAnswered", "EnginesReadable", "ReplicasOnTime", "GatewayReadable", "InventoryConsistent", "Actuated"]);

const state = {
  token: "", namespace: "", turn: 0, stop: null, overview: null, chosen: null, lines: null,
  zoom: null, // null: all; {seconds}: the last ones; {from, until}: these
  dragging: false, asked: 0, opener: "", drawn: {},
};
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") node.addEventListener("click", value);
    else if (value !== null) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}

function draw(name, attributes = {}, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  return node;
}

// Fills a container anew where what it shows has changed; the focus stays on the element with the same key.
function fill(id, shown, nodes) {
  const signature = JSON.stringify(shown);
  if (state.drawn[id] === signature) return;
  state.drawn[id] = signature;
  const key = $(id).contains(document.activeElement) ? document.activeElement.dataset.key : "";
  const open = new Set([...$(id).querySelectorAll("details[open]")].map((node) => node.dataset.key));
  $(id).replaceChildren(...nodes());
  for (const node of $(id).querySelectorAll("details")) node.open = open.has(node.dataset.key);
  if (key) $(id).querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

function number(value) {
  const size = Math.abs(value);
  const digits = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2;
  const how = size > 0 && size < 0.1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: digits };
  return value.toLocaleString("en", how).replace("-", "\u2212");
}
const percent = (share) => `${Math.round(100 * share)} %`;
const signed = (value) => (value > 0 ? `+${number(value)}` : number(value));
const count = (many, word) => `${many} ${word}${many === 1 ? "" : "s"}`;
const arrow = (before, after) => (before === after ? String(after) : `${before} \u2192 ${after}`);
const moment = (at) => new Date(at * 1000);
const clock = (at) => moment(at).toLocaleTimeString("en-GB");
const when = (at) => (state.overview && state.overview.at - at > 64800
  ? `${moment(at).toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${clock(at)}` : clock(at));

async function get(path, signal) {
  const headers = state.token ? { Authorization: `Bearer ${state.token}` } : {};
  const how = { headers, signal, cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" };
  const response = await fetch(path, how);
  if (!response.ok) {
    const error = new Error((await response.text()).trim() || `the controller answered ${response.status}`);
    error.status = response.status;
    throw error;
  }
  return response;
}

const scope = () => (state.namespace ? `?namespace=${encodeURIComponent(state.namespace)}` : "");
const refused = (error) => error.status === 401 || error.status === 403;

// Shows what there is, then follows the stream, until the user signs out or may not read any more.
async function run() {
  const turn = ++state.turn;
  state.stop?.abort();
  const stop = state.stop = new AbortController();
  for (;;) {
    let wait = RETRY_MILLISECONDS;
    try {
      await refresh(stop.signal);
      signedIn();
      await follow(stop.signal);
    } catch (error) {
      if (turn !== state.turn) return;
      if (refused(error)) return ask(error.status === 401 && !state.token ? "" : error.message);
      if (error.streamless) wait = POLL_MILLISECONDS;
      else trouble(error.status ? error.message : `No connection to the controller: ${error.message}. Trying again.`);
    }
    await pause(wait);
    if (turn !== state.turn) return;
  }
}

async function follow(signal) {
  let response;
  try {
    response = await get(`v1/stream${scope()}`, signal);
  } catch (error) {
    error.streamless = Boolean(error.status) && !refused(error);
    throw error;
  }
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let pending = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (pending + decoder.decode(value, { stream: true })).split("\n\n");
    pending = events.pop();
    if (events.some((event) => event.includes("event: cycle"))) await refresh(signal);
  }
}

async function refresh(signal) {
  const overview = await (await get(`v1/overview${scope()}`, signal)).json();
  state.overview = overview;
  const names = JSON.stringify(overview.models.map((model) => [model.namespace, model.model]));
  if (!chosenModel() && overview.models.length) {
    const [namespace, model] = linked();
    const first = overview.models.find((each) => each.namespace === namespace && each.model === model) || overview.models[0];
    state.chosen = { namespace: first.namespace, model: first.model };
    state.zoom = null;
  }
  $("console").hidden = false;
  showFleet();
  showGpus();
  showModels(names);
  showRegret();
  await showModel(signal);
  trouble("");
  $("state").textContent = `decided at ${clock(overview.at)}`;
  $("state").className = "live";
}

const same = (one, other) => one.namespace === other.namespace && one.model === other.model;
const chosenModel = () => state.overview.models.find((model) => state.chosen && same(model, state.chosen));

function linked() {
  try {
    return location.hash.slice(1).split("/").map(decodeURIComponent);
  } catch {
    return [];
  }
}

function trouble(words) {
  if ($("trouble").textContent !== words) $("trouble").textContent = words;
  $("trouble").hidden = !words;
  if (words) {
    $("state").textContent = "not live";
    $("state").className = "";
  }
}

function showFleet() {
  const variants = state.overview.models.flatMap((model) => model.variants);
  const sum = (of) => variants.reduce((total, variant) => total + of(variant), 0);
  const next = (each) => (each.shadow ? each.current : each.desired); // nothing follows the number of a shadow
  const [current, desired] = [sum((each) => each.current), sum(next)];
  const [cost, after] = [sum((each) => each.cost * each.current), sum((each) => each.cost * next(each))];
  const hindered = variants.filter((each) => faults(each).length);
  const causes = [...new Set(hindered.flatMap((each) => faults(each).map(({ reason }) => reason)))].sort();
  const tiles = [
    ["Models", number(state.overview.models.length), count(variants.length, "variant")],
    ["Replicas", number(current), `${number(sum((each) => each.ready))} Ready`],
    ["Desired replicas", number(desired), desired === current ? "as many as exist" : `${signed(desired - current)} to come`],
    ["Cost per hour", number(cost), `${number(after)} as desired`],
    ["Held", number(variants.filter((each) => each.held).length), "for lack of evidence"],
    ["Limited", number(variants.filter((each) => each.limited_by).length), "could not grow as wanted"],
    ["In trouble", number(hindered.length), causes.length ? causes.join(", ") : "no condition says so"],
  ];
  fill("totals", tiles, () => tiles.map(([name, value, more]) =>
    make("div", { class: name === "In trouble" && causes.length ? "bad" : null },
      make("dt", {}, name), make("dd", {}, value, make("small", {}, more)))));
}

function showGpus() {
  const { counted, problem, pools, quotas } = state.overview.gpus;
  const all = [
    ...pools.map((pool) => [pool.accelerator, pool]),
    ...quotas.map((quota) => [`${quota.namespace}: quota ${quota.name}, ${quota.resource}`, quota]),
  ];
  $("gpu").hidden = !counted && !problem;
  fill("pools", [all, problem], () => [
    ...all.map(([name, pool]) => {
      const full = pool.free === 0;
      const bar = draw("svg", { class: full ? "bar full" : "bar", "aria-hidden": "true" });
      const share = pool.capacity ? Math.min(100, (100 * pool.used) / pool.capacity) : 0;
      bar.append(draw("rect", { class: "all", width: "100%", height: "100%", rx: 4 }),
        draw("rect", { class: "used", width: `${share}%`, height: "100%", rx: 4 }));
      return make("div", {}, make("p", {}, make("b", {}, name),
        make("span", {}, `${number(pool.used)} used, ${number(pool.free)} free of ${number(pool.capacity)}`)), bar);
    }),
    all.length ? "" : make("p", { class: "none note" }, problem || "No GPUs are counted for what you may see."),
  ]);
}

function tags(variant) {
  const found = [];
  if (variant.shadow) found.push(["shadow", "shadow: nothing follows the number"]);
  if (variant.held) found.push(["held", `held: ${variant.reason}`]);
  if (variant.limited_by) found.push(["limited", `limited by ${variant.limited_by}`]);
  if (!variant.held) found.push(["", variant.reason]);
  for (const each of faults(variant)) found.push(["bad", `${each.type}: ${each.reason}`]);
  return make("div", { class: "tags" }, ...found.map(([kind, words]) => make("span", { class: `tag ${kind}` }, words)));
}

// Returns the conditions that say what is wrong beside what holds or limits the number.
const faults = (variant) => variant.conditions.filter((each) => poor(each) && each.reason !== variant.reason
  && each.type !== "OptimizationReady" && each.type !== "Limited");
const poor = (condition) => (GOOD_WHEN_TRUE.has(condition.type) ? condition.status !== "True"
  : condition.type === "Limited" && condition.status === "True");

function loadWords(load) {
  if (!load) return [make("span", {}, "load not known")];
  const words = [];
  if (load.demand !== null) {
    words.push(make("span", {}, make("b", {}, number(load.demand)), " requests/s demand"));
    const over = load.demand > load.serving;
    const share = load.serving > 0 ? ` (${percent(load.demand / load.serving)} used)` : "";
    words.push(make("span", { class: over ? "over" : "" }, make("b", {}, number(load.serving)), ` carried${share}`));
  }
  if (load.kv !== null) words.push(make("span", {}, make("b", {}, percent(load.kv)), " of the KV cache"));
  if (load.waiting !== null) words.push(make("span", {}, make("b", {}, number(load.waiting)), " waiting"));
  return words.length ? words : [make("span", {}, "load not known")];
}

function showModels() {
  const { models } = state.overview;
  $("finder").hidden = models.length < 8;
  const wanted = $("finder").hidden ? "" : $("filter").value.trim().toLowerCase();
  const found = models.filter((model) => !wanted || [model.namespace, model.model,
    ...model.variants.flatMap((each) => [each.name, each.accelerator, each.reason])].some((text) => text.toLowerCase().includes(wanted)));
  const shown = found.slice(0, MOST_MODELS);
  fill("models", [shown, found.length, state.chosen], () => [models.length ? modelTable(shown) : make("p", { class: "note" },
    "No VariantAutoscalings are decided on here."), found.length > shown.length ? make("p", { class: "more" },
    `${found.length - shown.length} more models. Find them by name.`) : ""]);
}

function modelTable(models) {
  const heads = [["Variant", ""], ["Accelerator", ""], ["Ready", "n"], ["Exist", "n"], ["Desired", "n"], ["Cost per hour", "n"],
    ["State", ""], ["", ""]];
  const bodies = models.map((model) => {
    const chosen = state.chosen && same(model, state.chosen);
    const choose = () => { chooseModel(model); };
    const name = make("button", { type: "button", class: "link", onclick: choose, "aria-pressed": null,
      "aria-current": chosen ? "true" : null, "data-key": `model ${model.namespace}/${model.model}` }, model.model);
    const head = make("tr", { class: chosen ? "group chosen" : "group" }, make("th", { colspan: heads.length, scope: "rowgroup" },
      make("div", { class: "title" }, name, make("span", { class: "load" }, model.namespace)),
      make("div", { class: "load" }, ...loadWords(model.load))));
    return make("tbody", {}, head, ...model.variants.map((variant) => make("tr", {},
      make("th", { scope: "row" }, variant.name),
      make("td", { "data-label": "On" }, variant.accelerator),
      make("td", { class: "n", "data-label": "Ready" }, number(variant.ready)),
      make("td", { class: "n", "data-label": "Exist" }, number(variant.current)),
      make("td", { class: "n", "data-label": "Desired" }, variant.desired === variant.current ? number(variant.desired)
        : make("b", {}, `${number(variant.desired)} (${signed(variant.desired - variant.current)})`)),
      make("td", { class: "n", "data-label": "Per hour" }, number(variant.cost * variant.current)),
      make("td", { class: "line" }, tags(variant)),
      make("td", { class: "line" }, make("button", { type: "button", onclick: () => explain(variant, null),
        "data-key": `why ${variant.namespace}/${variant.name}`, "aria-label": `Explain ${variant.name}` }, "Explain")))));
  });
  return make("div", { class: "frame cards" }, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map(([head, kind]) => (head
      ? make("th", { scope: "col", class: kind }, head) : make("td", {}))))), ...bodies));
}

async function chooseModel(model) {
  state.chosen = { namespace: model.namespace, model: model.model };
  state.zoom = null;
  history.replaceState(null, "", `#${encodeURIComponent(model.namespace)}/${encodeURIComponent(model.model)}`);
  showModels();
  try {
    await showModel();
    $("model-title").focus({ preventScroll: true });
    $("model").scrollIntoView({ block: "start" });
  } catch (error) {
    trouble(error.message);
  }
}

function showRegret() {
  const shadows = state.overview.models.flatMap((model) => model.variants).filter((variant) => variant.regret);
  $("shadow").hidden = !shadows.length;
  const rows = shadows.map((variant) => [`${variant.namespace}/${variant.name}`, variant.regret]);
  const sums = {};
  for (const [, regret] of rows) {
    for (const [name, fleets] of Object.entries(regret)) {
      sums[name] ||= {};
      for (const [fleet, value] of Object.entries(fleets)) sums[name][fleet] = (sums[name][fleet] || 0) + value;
    }
  }
  if (rows.length > 1) rows.push(["All of them", sums]);
  const heads = [["Variant", ""], ["What", ""], ["Ran", "n"], ["Would have been", "n"], ["Difference", "n"]];
  const kinds = [["GPU hours", "wva_shadow_gpu_hours"], ["Cost", "wva_shadow_cost"], ["Late requests", "wva_shadow_late_requests"]];
  const known = (regret) => kinds.filter(([, series]) => regret[series]); // late requests may have no estimate
  fill("regret", rows, () => [make("div", { class: "frame cards" }, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map(([head, kind]) => make("th", { scope: "col", class: kind }, head)))),
    ...rows.map(([name, regret]) => make("tbody", {}, ...known(regret).map(([words, series], index, all) => {
      const { real = 0, shadow = 0 } = regret[series];
      const error = words === "Late requests" ? (regret.wva_shadow_late_requests_error || {})[""] || 0 : 0;
      const share = real > 0 && words !== "Late requests" ? ` (${signed(Math.round((100 * (shadow - real)) / real))} %)` : "";
      return make("tr", {},
        index ? "" : make("th", { scope: "rowgroup", rowspan: all.length, class: "line" }, name),
        make("td", { class: "line" }, words),
        make("td", { class: "n", "data-label": "Ran" }, number(real)),
        make("td", { class: "n", "data-label": "Would have been" }, `${number(shadow)}${error ? ` \u00b1 ${number(error)}` : ""}`),
        make("td", { class: "n line", "data-label": "Difference" }, `${signed(shadow - real)}${share}`));
    })))))]);
}

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
      make("td", {}, make("div", { class: "tags" }, make("span", { class: held ? "tag held" : "tag" }, held ? `held: ${reason}` : reason),
        limit ? make("span", { class: "tag limited" }, `limited by ${limit}`) : "")),
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

function table(name, heads, rows, right = new Set()) {
  return make("div", { class: "frame", tabindex: "0", role: "region", "aria-label": name }, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((head, index) => make("th", { scope: "col", class: right.has(index) ? "n" : "" }, head)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, index) =>
      make("td", { class: right.has(index) ? "n" : "" }, cell)))))));
}

// Shows why a variant has its number: at once what is known, then what it takes to change it, which takes a while.
async function explain(variant, at) {
  const asked = ++state.asked;
  const path = `v1/explain/${encodeURIComponent(variant.namespace)}/${encodeURIComponent(variant.name)}`;
  state.opener = document.activeElement?.dataset.key || "";
  $("explanation-title").textContent = `Why ${variant.namespace}/${variant.name} has its number`;
  $("why").replaceChildren(make("p", { class: "note" }, "Asking \u2026"));
  if (!$("explanation").open) $("explanation").showModal();
  $("explanation-title").focus();
  try {
    let time = at === null ? "" : `at=${at}&`;
    let found = await (await get(`${path}?${time}changes=false`)).json();
    if (asked !== state.asked) return;
    $("why").replaceChildren(...explained(found));
    time = `at=${found.at}`;
    found = await (await get(`${path}?${time}`)).json();
    if (asked === state.asked) $("changes")?.replaceWith(changesOf(found));
  } catch (error) {
    if (asked !== state.asked) return;
    const old = error.status === 404 && at !== null ? " Explanations are kept for the last hour at most." : "";
    const words = make("p", { class: "message", role: "alert" }, `${error.message}.${old}`.replace("..", "."));
    if ($("changes")) $("changes").replaceWith(words);
    else $("why").replaceChildren(words);
  }
}

function explained(found) {
  const facts = [["Desired", arrow(found.previous ?? found.desired, found.desired)], ["Exist", found.current], ["Ready", found.ready],
    ["Cost per hour", number(found.cost * found.current)], ["Cycle", when(found.at)]];
  const steps = found.steps.map((step) => make("li", {}, make("span", {}, step.stage), make("b", {}, arrow(step.before, step.after)),
    make("span", {}, step.reason), step.limited_by ? make("div", { class: "tag limited" },
      `limited by ${step.limited_by}${step.fewer ? `: ${step.fewer} fewer` : ""}`) : ""));
  const samples = (list) => list.map((sample) => [sample.of, sample.signal, sample.value === null ? "\u2013" : number(sample.value),
    sample.age_seconds === null ? "\u2013" : `${Math.round(sample.age_seconds)} s`,
    `${sample.state}${sample.detail ? `: ${sample.detail}` : ""}`]);
  const more = (name, list, open) => make("details", open ? { open: "" } : {}, make("summary", {}, `${name} (${list.length})`),
    table(name, ["Of", "Signal", "Value", "Age", "State"], samples(list), new Set([2, 3])));
  return [
    make("dl", { class: "facts" }, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value))))),
    make("p", { class: "message" }, make("b", {}, `${found.reason}. `), found.message),
    make("h3", {}, "Steps to the number"), make("ol", { class: "steps" }, ...steps),
    make("div", { id: "changes" }, make("h3", {}, "What would change it"),
      make("p", { class: "note" }, "Deciding again with smaller and larger inputs \u2026")),
    ...(found.siblings.length ? [make("h3", {}, "Other variants of the model"), table("Other variants",
      ["Variant", "Accelerator", "Exist", "Desired", "Reason"], found.siblings.map((each) => [each.variant, each.accelerator,
        number(each.current), number(each.desired), each.reason]), new Set([2, 3]))] : []),
    make("h3", {}, "What it stands on"),
    ...(found.notes.length ? [make("p", {}, "Not read:"), make("ul", { class: "plain" },
      ...found.notes.map((note) => make("li", {}, note)))] : []),
    ...(found.ignored.length ? [more("Ignored samples", found.ignored, true)] : []),
    more("Samples", found.samples, false),
  ];
}

function changesOf(found) {
  const flips = (found.changes?.flips || []).map((flip) => [flip.change.words, arrow(found.desired, flip.number), flip.reason]);
  return make("div", {}, make("h3", {}, "What would change it"), flips.length
    ? table("What would change it", ["Smallest change", "Desired", "Reason then"], flips, new Set([1]))
    : make("p", { class: "note" }, "None of the changes that were tried gives another number."));
}

function ask(problem) {
  state.turn += 1;
  state.stop?.abort();
  state.token = "";
  sessionStorage.removeItem("wva");
  state.overview = state.lines = null;
  state.drawn = {};
  for (const id of ["totals", "pools", "models", "regret", "zoom", "charts", "decisions", "conditions", "why"]) $(id).replaceChildren();
  if ($("explanation").open) $("explanation").close();
  $("console").hidden = true;
  $("leave").hidden = true;
  trouble("");
  $("login").hidden = false;
  $("problem").textContent = problem;
  $("state").textContent = "not connected";
  $("state").className = "";
  $("token").value = "";
  $("token").focus();
}

function signedIn() {
  $("login").hidden = true;
  $("leave").hidden = !state.token;
  $("token").value = "";
  if (state.token) sessionStorage.setItem("wva", JSON.stringify([state.token, state.namespace]));
}

document.addEventListener("DOMContentLoaded", () => {
  $("login").addEventListener("submit", (event) => {
    event.preventDefault();
    $("problem").textContent = "";
    [state.token, state.namespace] = [$("token").value.trim(), $("namespace").value.trim()];
    run();
  });
  $("leave").addEventListener("click", () => ask(""));
  $("filter").addEventListener("input", showModels);
  $("close").addEventListener("click", () => $("explanation").close());
  $("explanation").addEventListener("click", (event) => { if (event.target === $("explanation")) $("explanation").close(); });
  $("explanation").addEventListener("close", () => {
    state.asked += 1;
    if (state.opener) document.querySelector(`[data-key="${CSS.escape(state.opener)}"]`)?.focus({ preventScroll: true });
  });
  let width = 0;
  new ResizeObserver(([entry]) => {
    if (Math.abs(entry.contentRect.width - width) < 1) return;
    width = entry.contentRect.width;
    redraw();
  }).observe($("charts"));
  [state.token, state.namespace] = JSON.parse(sessionStorage.getItem("wva") || '["", ""]');
  run();
});
