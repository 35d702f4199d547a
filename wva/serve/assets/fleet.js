"use strict";
// The sections of the fleet: totals, GPUs, models and shadow mode.

const MOST_MODELS = 100;
// What a tile counts, and which variants these are.
const KINDS = {
  changing: ["whose number differs from the replicas that exist", (each) => !each.shadow && each.desired !== each.current],
  held: ["that are held for lack of evidence", (each) => each.held],
  limited: ["that could not grow as wanted", (each) => Boolean(limitOf(each))],
  troubled: ["with a condition that says what is wrong", (each) => faults(each).length > 0],
};

const PLACES = { "": "the models", cost: "it over time" };

function showFleet() {
  $("fleet").hidden = !state.overview.models.length;
  const variants = state.overview.models.flatMap((model) => model.variants);
  const sum = (of) => variants.reduce((total, variant) => total + of(variant), 0);
  const next = (each) => (each.shadow ? each.current : each.desired); // nothing follows the number of a shadow
  const [current, desired] = [sum((each) => each.current), sum(next)];
  const [cost, after] = [sum((each) => each.cost * each.current), sum((each) => each.cost * next(each))];
  const causes = [...new Set(variants.flatMap(faults).map(({ reason }) => reason))].sort();
  const told = state.overview.models.map((model) => model.in_time).filter(Boolean);
  const hours = told.map((served) => served.hour).filter(Boolean);
  const requests = hours.reduce((total, hour) => total + hour.requests, 0);
  const inTime = hours.reduce((total, hour) => total + hour.share * hour.requests, 0);
  const late = told.filter((served) => served.missed).length;
  const fewer = told.some(({ hour, wanted }) => hour && hour.share < wanted);
  const of = (kind) => variants.filter(KINDS[kind][1]).length;
  const tiles = [ // with where it leads: a kind of variants, "" for all, null for nowhere
    ["Models", number(state.overview.models.length), count(variants.length, "variant"), variants.length ? "" : null],
    ["Replicas", number(current), `${number(sum((each) => each.ready))} Ready`, variants.length ? "" : null],
    ["Desired replicas", number(desired), desired === current ? "as many as exist" : `${signed(desired - current)} to come`,
      of("changing") ? "changing" : null],
    ["Cost per hour", number(cost), `${number(after)} as desired`, variants.length ? "cost" : null],
    ["In time, last hour", requests ? share(inTime / requests) : "\u2013", late ? `${count(late, "model")} below the objective`
      : fewer ? "fewer than asked for, but not now, or by chance" : requests ? "as asked for" : "no requests known", null],
    ["Held", number(of("held")), "for lack of evidence", of("held") ? "held" : null],
    ["Limited", number(of("limited")), "could not grow as wanted", of("limited") ? "limited" : null],
    ["In trouble", number(of("troubled")), causes.length ? causes.join(", ") : "no condition says so", causes.length ? "troubled" : null],
  ];
  fill("totals", tiles, () => tiles.map(([name, value, more, kind]) => make("div",
    { class: kind === "troubled" ? "bad" : null }, make("dt", {}, name),
    make("dd", {}, kind === null ? value : make("button", { type: "button", class: "tile", onclick: () => lead(kind),
      "data-key": `tile ${name}`, "aria-label": `${name}: ${value}. Show ${PLACES[kind] || "these variants"}` }, value),
    make("small", {}, more)))));
}

function lead(kind) {
  if (kind !== "cost") showOnly(kind);
  const title = $(kind === "cost" ? "cost-title" : "models-title");
  title.focus({ preventScroll: true });
  title.scrollIntoView({ block: "start" });
}

function showOnly(kind) {
  state.only = kind;
  showModels();
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
  const { reason } = variant;
  const limit = variant.conditions.find((each) => each.type === "Limited" && poor(each) && each.reason !== reason);
  return make("div", { class: "tags" },
    variant.shadow ? coded("shadow", "shadow: nothing follows the number", "") : "",
    variant.limited_by || limit ? coded("limited", variant.limited_by ? `limited by ${variant.limited_by}`
      : `limited: ${limit.reason}`, limit ? meaning(limit.reason) : "") : "",
    coded(variant.held ? "held" : "", variant.held ? `held: ${reason}` : reason, meaning(reason)),
    ...faults(variant).map((each) => coded("bad", `${each.type}: ${each.reason}`, meaning(each.reason) || each.message)));
}

// What the users of a model got: the last five minutes, where it had requests then, else the last hour.
function servedWords(served) {
  if (!served) return [];
  const [last, span] = served.five_minutes ? [served.five_minutes, "5 minutes"] : [served.hour, "hour"];
  return [make("span", { class: served.missed ? "over" : "", title: `Asked for: ${served.objectives}.` },
    make("b", {}, share(last.share)), ` in time in the last ${span}, ${share(served.wanted)} asked for`)];
}

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
  const ofKind = state.only ? KINDS[state.only][1] : () => true;
  const chosen = models.map((model) => ({ ...model, variants: model.variants.filter(ofKind) })).filter((model) => model.variants.length);
  const found = chosen.filter((model) => !wanted || [model.namespace, model.model,
    ...model.variants.flatMap((each) => [each.name, each.role, each.accelerator, each.reason])].some((text) => text.toLowerCase().includes(wanted)));
  const shown = found.slice(0, MOST_MODELS);
  $("only").hidden = !state.only;
  if (state.only) $("only-words").textContent = `Only variants ${KINDS[state.only][0]}.`;
  fill("models", [shown, found.length, state.chosen], () => [!models.length ? firstSteps() : shown.length ? modelTable(shown)
    : make("p", { class: "note" }, wanted ? "Nothing here has this name." : "There are none at present."), found.length > shown.length ? make("p", { class: "more" },
    `${found.length - shown.length} more models. Find them by name.`) : ""]);
}

// What to do where nothing is decided on: make a first VariantAutoscaling, or find out why those that exist are not here.
function firstSteps() {
  const namespace = state.namespace || "NAMESPACE";
  const manifest = `kubectl apply -f - <<'EOF'
apiVersion: llmd.ai/v1alpha1
kind: VariantAutoscaling
metadata:
  name: VARIANT
  namespace: ${namespace}
  labels:
    inference.optimization/acceleratorName: H100
  annotations:
    wva.llmd.ai/mode: shadow # nothing follows its number until you take this line away
spec:
  modelID: MODEL
  variantCost: "10"
  scaleTargetRef:
    apiVersion: apps/v1
    kind: Deployment
    name: DEPLOYMENT
EOF`;
  const code = (text) => make("pre", { tabindex: "0" }, make("code", {}, text));
  return make("div", { class: "card first" },
    make("p", {}, make("b", {}, state.namespace ? `No VariantAutoscaling in ${state.namespace} is decided on yet.`
      : "No VariantAutoscaling is decided on yet.")),
    make("ol", {},
      make("li", {}, "Create one for a Deployment that serves a model with vLLM. The words in capitals are yours; MODEL is the name "
        + "that the requests carry. Its number appears here with the next cycle.", code(manifest)),
      make("li", {}, "If there is one already, ask what keeps it from being seen:", code("wva doctor")),
      make("li", {}, "To see what a busy console looks like, without a cluster:", code("wva demo --web"))),
    make("p", { class: "note" }, "docs/day-two.md has the way from a first look to a variant that scales."));
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
      make("div", { class: "load" }, ...loadWords(model.load), ...servedWords(model.in_time))));
    return make("tbody", {}, head, ...model.variants.map((variant) => make("tr", {},
      make("th", { scope: "row" }, variant.name, variant.role ? make("span", { class: "load" }, ` ${variant.role}`) : ""),
      make("td", { "data-label": "On" }, variant.accelerator),
      make("td", { class: "n", "data-label": "Ready" }, number(variant.ready)),
      make("td", { class: "n", "data-label": "Exist" }, number(variant.current)),
      make("td", { class: "n", "data-label": "Desired" }, variant.desired === variant.current ? number(variant.desired)
        : make("b", {}, `${number(variant.desired)} (${signed(variant.desired - variant.current)})`)),
      make("td", { class: "n", "data-label": "Per hour" }, number(variant.cost * variant.current)),
      make("td", { class: "line state" }, tags(variant)),
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
