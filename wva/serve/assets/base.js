"use strict";
// What all scripts of the console stand on: its state, elements, numbers and times, and questions to the controller.
// Every text enters the page as text, never as markup.

const GOOD_WHEN_TRUE = new Set(["TargetResolved", "MetricsAvailable", "OptimizationReady", "Ready", "ConfigurationValid",
  "QueriesAnswered", "EnginesReadable", "ReplicasOnTime", "ObjectivesMet", "GatewayReadable", "InventoryConsistent", "Actuated"]);

// In milliseconds. A retry takes twice as long after each failure, and as long as a poll at most. A stream says something each
// 15 s, so a longer silence is a dead connection. Many may ask for explanations at once, and each waits for a turn.
const WAITS = { retry: 2000, poll: 15000, silence: 45000, answer: 30000, explanation: 120000 };

const state = {
  token: "", namespace: "", turn: 0, stop: null, wake: null, chosen: null, lines: null, costs: [],
  only: "", // the kind of the variants that are shown, of KINDS; empty for all
  overview: null, answered: 0, // when the overview came, in milliseconds since the epoch
  meanings: new Map(), // a sentence for each code
  lost: null, // {words, next}: what is wrong, and when the page tries again
  zoom: null, // null: all; {seconds}: the last ones; {from, until}: these
  dragging: false, asked: 0, opener: "", drawn: {},
  stops: {}, // by container: the key of its button that the Tab key stops at
};
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
// Ends early when somebody calls state.wake.
const pause = (milliseconds) => new Promise((resolve) => {
  state.wake = resolve;
  setTimeout(resolve, milliseconds);
});

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
  if ("oneStop" in $(id).dataset) stopOnce($(id));
  if (key) $(id).querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

// The buttons of a container with data-one-stop are one stop of the Tab key, since a fleet has hundreds of them. Arrows,
// Home and End go from one to the next.
const STEPS = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
const buttonsOf = (node) => [...node.querySelectorAll("button:not(:disabled)")];

function stopOnce(node) {
  const buttons = buttonsOf(node);
  const kept = buttons.find((each) => each.dataset.key === state.stops[node.id]) || buttons[0];
  for (const each of buttons) each.tabIndex = each === kept ? 0 : -1;
}

function walkable(node) {
  node.addEventListener("focusin", ({ target }) => {
    if (!target.matches("button")) return;
    state.stops[node.id] = target.dataset.key;
    stopOnce(node);
  });
  node.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    const buttons = buttonsOf(node);
    const place = buttons.indexOf(document.activeElement);
    if (!step || place < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    buttons[Math.min(Math.max(place + step, 0), buttons.length - 1)].focus();
  });
}

function number(value) {
  const size = Math.abs(value);
  const digits = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2;
  const how = size > 0 && size < 0.1 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: digits };
  return value.toLocaleString("en", how).replace("-", "\u2212");
}
const percent = (share) => `${Math.round(100 * share)} %`;
const share = (value) => `${number(Math.floor(1000 * value + 1e-9) / 10)} %`; // 98.96 % is not 99 %
const signed = (value) => (value > 0 ? `+${number(value)}` : number(value));
const count = (many, word) => `${many} ${word}${many === 1 ? "" : "s"}`;
const arrow = (before, after) => (before === after ? String(after) : `${before} \u2192 ${after}`);
const moment = (at) => new Date(at * 1000);
const clock = (at) => moment(at).toLocaleTimeString("en-GB");
const when = (at) => (state.overview && state.overview.at - at > 64800
  ? `${moment(at).toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${clock(at)}` : clock(at));

// Returns what the clocks of this browser differ from UTC at a time.
const zone = (at) => new Intl.DateTimeFormat("en-GB", { timeZoneName: "shortOffset" }).formatToParts(moment(at))
  .find((part) => part.type === "timeZoneName").value.replace(/^GMT([+-]0)?$/, "UTC").replace("GMT", "UTC");
const local = (text) => (Number.isNaN(Date.parse(text)) ? text : when(Date.parse(text) / 1000));
const old = (seconds) => (seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min`
  : `${Math.round(seconds / 3600)} h`);

// Asks the controller, and waits so many milliseconds for all of the answer; 0 is without end.
async function get(path, signal, patience = WAITS.answer) {
  const headers = state.token ? { Authorization: `Bearer ${state.token}` } : {};
  const ends = [signal, patience && AbortSignal.timeout(patience)].filter(Boolean);
  const how = { headers, signal: AbortSignal.any(ends), cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer" };
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

const same = (one, other) => one.namespace === other.namespace && one.model === other.model;
const chosenModel = () => state.overview.models.find((model) => state.chosen && same(model, state.chosen));

const poor = (condition) => (GOOD_WHEN_TRUE.has(condition.type) ? condition.status !== "True"
  : condition.type === "Limited" && condition.status === "True");
// Returns what keeps the number of a variant from being larger, empty if nothing does.
const limitOf = (variant) => variant.limited_by
  || variant.conditions.find((each) => each.type === "Limited" && each.status === "True")?.reason || "";
// Returns the conditions that say what is wrong beside what holds or limits the number.
const faults = (variant) => variant.conditions.filter((each) => poor(each) && each.reason !== variant.reason
  && each.type !== "OptimizationReady" && each.type !== "Limited");

// Returns a code on its ground, and what it means beside it.
const meaning = (code) => (state.meanings.get(code) || "").replaceAll("`", "");
const coded = (kind, words, sense) => make("p", { class: "coded" }, make("span", { class: `tag ${kind}` }, words),
  ...(sense ? [" ", make("span", { class: "sense" }, sense)] : []));

function table(name, heads, rows, right = new Set()) {
  return make("div", { class: "frame", tabindex: "0", role: "region", "aria-label": name }, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((head, index) => make("th", { scope: "col", class: right.has(index) ? "n" : "" }, head)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, index) =>
      make("td", { class: right.has(index) ? "n" : "" }, cell)))))));
}
