"use strict";
// The dialog that explains a decision.

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
    let found = await (await get(`${path}?${time}changes=false`, null, WAITS.explanation)).json();
    if (asked !== state.asked) return;
    $("why").replaceChildren(...explained(found));
    time = `at=${found.at}`;
    found = await (await get(`${path}?${time}`, null, WAITS.explanation)).json();
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
    ["Cost per hour", number(found.cost * found.current)], ["Cycle", when(found.at)], ...(found.role ? [["Role", found.role]] : [])];
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
    make("p", { class: "message" }, make("b", {}, `${found.reason}. `), meaning(found.reason)),
    make("p", { class: "message" }, found.message),
    ...(found.objectives ? [make("p", { class: "note" }, `Objectives: ${found.objectives}.`)] : []),
    ...(found.served ? [make("p", { class: "note" }, `What users get: ${found.served}.`)] : []),
    make("h3", {}, "Steps to the number"), make("ol", { class: "steps" }, ...steps),
    make("div", { id: "changes" }, make("h3", {}, "What would change it"),
      make("p", { class: "note" }, "Deciding again with smaller and larger inputs \u2026")),
    ...(found.siblings.length ? [make("h3", {}, "Other variants of the model"), table("Other variants",
      ["Variant", "Accelerator", "Exist", "Desired", "Reason"], found.siblings.map((each) => [
        each.role ? `${each.variant} (${each.role})` : each.variant, each.accelerator,
        number(each.current), number(each.desired), coded("", each.reason, meaning(each.reason))]), new Set([2, 3]))] : []),
    make("h3", {}, "What it stands on"),
    ...(found.notes.length ? [make("p", {}, "Not read:"), make("ul", { class: "plain" },
      ...found.notes.map((note) => make("li", {}, note)))] : []),
    ...(found.ignored.length ? [more("Ignored samples", found.ignored, true)] : []),
    more("Samples", found.samples, false),
  ];
}

function changesOf(found) {
  const flips = (found.changes?.flips || []).map((flip) => [flip.change.words, arrow(found.desired, flip.number), coded("", flip.reason, meaning(flip.reason))]);
  return make("div", {}, make("h3", {}, "What would change it"), flips.length
    ? table("What would change it", ["Smallest change", "Desired", "Reason then"], flips, new Set([1]))
    : make("p", { class: "note" }, "None of the changes that were tried gives another number."));
}
