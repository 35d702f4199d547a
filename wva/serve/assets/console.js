"use strict";
// Asks the controller for its pages, as long as the user may read them.

const RETRY_MILLISECONDS = 2000;
const POLL_MILLISECONDS = 15000;

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
  document.querySelectorAll("[data-one-stop]").forEach(walkable);
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
