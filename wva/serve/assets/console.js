"use strict";
// Asks the controller for its pages, as long as the user may read them.

const backoff = (failures) => Math.min(WAITS.poll, WAITS.retry * 2 ** failures) * (0.5 + Math.random() / 2);

// Shows what there is, then follows the stream, until the user signs out or may not read any more.
async function run() {
  const turn = ++state.turn;
  state.stop?.abort();
  const stop = state.stop = new AbortController();
  for (let failures = 0; ; failures += 1) {
    let wait = null;
    try {
      if (!state.meanings.size) state.meanings = new Map(Object.entries(await (await get("meanings.json", stop.signal)).json()));
      await refresh(stop.signal);
      failures = 0;
      signedIn();
      await follow(stop.signal);
    } catch (error) {
      if (turn !== state.turn) return;
      if (refused(error)) return ask(error.status === 401 && !state.token ? "" : error.message);
      if (error.streamless) wait = WAITS.poll;
      else {
        wait = backoff(failures);
        trouble(error.status ? error.message : `No connection to the controller: ${error.message}`, Date.now() + wait);
      }
    }
    await pause(wait ?? backoff(failures));
    if (turn !== state.turn) return;
    if (state.lost) trouble(state.lost.words, null);
  }
}

// Asks again after each cycle. A connection that died without a word is given up.
async function follow(signal) {
  const silence = new AbortController();
  let timer;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => silence.abort(new Error("it says nothing any more")), WAITS.silence);
  };
  heard();
  try {
    const response = await get(`v1/stream${scope()}`, AbortSignal.any([signal, silence.signal]), 0).catch((error) => {
      error.streamless = Boolean(error.status) && !refused(error);
      throw error;
    });
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let pending = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      const events = (pending + decoder.decode(value, { stream: true })).split("\n\n");
      pending = events.pop();
      if (events.some((event) => event.includes("event: cycle"))) await refresh(signal);
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

async function refresh(signal) {
  const overview = await (await get(`v1/overview${scope()}`, signal)).json();
  state.overview = overview;
  state.answered = Date.now();
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
  settled();
  $("state").textContent = `decided at ${clock(overview.at)} ${zone(overview.at)}`;
  $("state").className = "live";
}

function linked() {
  try {
    return location.hash.slice(1).split("/").map(decodeURIComponent);
  } catch {
    return [];
  }
}

// Tells what is wrong and, where the page tries again, when: null is now. The numbers that stand are dimmed and have their age.
function trouble(words, next) {
  state.lost = { words, next };
  $("state").textContent = "not live";
  $("state").className = "";
  tick();
}

function settled() {
  state.lost = null;
  tick();
}

function tick() {
  const { lost } = state;
  $("trouble").hidden = !lost;
  $("console").classList.toggle("stale", Boolean(lost));
  const age = lost && state.overview ? `${old((Date.now() - state.answered) / 1000)} old` : "";
  for (const title of document.querySelectorAll("#console h2")) title.dataset.age = age;
  if (!lost) return;
  const words = `${lost.words.replace(/\.$/, "")}.`;
  if ($("trouble-words").textContent !== words) $("trouble-words").textContent = words;
  const next = lost.next === undefined ? "" : lost.next === null ? "Reconnecting now \u2026"
    : `Reconnecting in ${Math.max(1, Math.ceil((lost.next - Date.now()) / 1000))} s.`;
  $("trouble-next").textContent = [age ? `The numbers are ${age}.` : "", next].join(" ").trim();
  $("again").hidden = !lost.next;
}

function ask(problem) {
  state.turn += 1;
  state.stop?.abort();
  state.token = "";
  sessionStorage.removeItem("wva");
  state.overview = state.lines = null;
  state.costs = [];
  state.drawn = {};
  state.only = "";
  for (const id of ["totals", "pools", "models", "regret", "zoom", "charts", "costs", "decisions", "conditions", "why"]) $(id).replaceChildren();
  if ($("explanation").open) $("explanation").close();
  $("console").hidden = true;
  $("leave").hidden = true;
  settled();
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
  document.querySelectorAll("[data-one-stop]").forEach(walkable);
  $("again").addEventListener("click", () => state.wake?.());
  addEventListener("online", () => state.wake?.());
  setInterval(() => { if (state.lost) tick(); }, 1000);
  $("all").addEventListener("click", () => lead(""));
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
