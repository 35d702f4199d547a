"use strict";
// Draws the plots of the scorecard from the data in the page. A plot is drawn when it comes near to the window.

const data = JSON.parse(document.getElementById("data").textContent);
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const drawn = new Set();

function axis(title, more) {
  return {
    title: { text: title, font: { size: 12 }, standoff: 8 }, gridcolor: color("grid"), linecolor: color("line"),
    zeroline: false, automargin: true, fixedrange: false, ...more,
  };
}

function layout(more) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: color("text") },
    margin: { l: 56, r: 12, t: 8, b: 44 },
    hoverlabel: { bgcolor: color("panel"), font: { color: color("text") }, bordercolor: color("line") },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal", font: { size: 11.5 } },
    ...more,
  };
}

// Without the bar of buttons, which would lie on the legend: dragging zooms, and a double click goes back.
const settings = { displayModeBar: false, responsive: true };

// Changes are time, value, time, value, ...: the value holds from its time, in seconds, until the next.
function valueAt(changes, at) {
  let low = 0, high = changes.length / 2 - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (changes[2 * middle] <= at) low = middle; else high = middle - 1;
  }
  return changes[2 * low + 1];
}

function sums(lists, end) {
  const times = [...new Set(lists.flatMap((changes) => changes.filter((_, index) => index % 2 === 0)))].sort((a, b) => a - b);
  times.push(end);
  let below = times.map(() => 0);
  return lists.map((changes) => {
    below = times.map((at, index) => below[index] + valueAt(changes, at));
    return { times, values: below };
  });
}

function overTime(element, part, shown, other) {
  const run = part.runs[shown];
  const end = part.end;
  const scale = end > 3 * 3600 ? 3600 : 60;
  const unit = scale === 3600 ? "hours" : "minutes";
  const inUnit = (times) => times.map((at) => at / scale);
  const grid = (values) => values.map((_, index) => (index * part.step) / scale);
  const step = { shape: "hv" };
  const traces = [];
  const ready = sums(run.ready, end);
  const several = part.variants.length > 1;
  part.variants.forEach((variant, index) => {
    const name = several ? `ready: ${variant}` : "ready";
    traces.push({
      name, x: inUnit(ready[index].times), y: ready[index].values, line: { ...step, width: 0 }, mode: "lines",
      fill: index ? "tonexty" : "tozeroy", fillcolor: color(`c${index % 5}`), yaxis: "y2",
      customdata: ready[index].values.map((value, at) => value - (index ? ready[index - 1].values[at] : 0)),
      hovertemplate: "%{customdata}<extra>" + name + "</extra>",
    });
  });
  const asked = sums(run.asked, end).at(-1);
  traces.push({
    name: "asked for", x: inUnit(asked.times), y: asked.values, line: { ...step, color: color("asked"), width: 1.6 },
    mode: "lines", yaxis: "y2", hovertemplate: "%{y}<extra>asked for</extra>",
  });
  traces.push({
    name: "cheapest sufficient fleet", x: grid(part.ideal), y: part.ideal, mode: "lines", yaxis: "y2",
    line: { color: color("ideal"), width: 1.4, dash: "dot" }, hovertemplate: "%{y:.1f}<extra>cheapest sufficient</extra>",
  });
  if (other && other !== shown) {
    const theirs = sums(part.runs[other].ready, end).at(-1);
    traces.push({
      name: `ready: ${other}`, x: inUnit(theirs.times), y: theirs.values, mode: "lines", yaxis: "y2",
      line: { ...step, color: color("other"), width: 1.6, dash: "dash" }, hovertemplate: `%{y}<extra>${other}</extra>`,
    });
  }
  traces.push({
    name: "load", x: grid(part.load), y: part.load, mode: "lines", line: { color: color("load"), width: 1.4 },
    yaxis: "y", showlegend: false, hovertemplate: "%{y:.1f}/s<extra>load</extra>",
  });
  traces.push({
    name: "late", x: grid(run.late), y: run.late, type: "bar", marker: { color: color("late") }, yaxis: "y3",
    showlegend: false, hovertemplate: "%{y:.0%}<extra>late</extra>",
  });
  if (other && other !== shown) {
    traces.push({
      name: `late: ${other}`, x: grid(part.runs[other].late), y: part.runs[other].late, mode: "lines", yaxis: "y3",
      line: { color: color("other"), width: 1.2 }, showlegend: false, hovertemplate: `%{y:.0%}<extra>${other}</extra>`,
    });
  }
  Plotly.react(element, traces, layout({
    hovermode: "x unified", bargap: 0,
    xaxis: axis(unit, { range: [0, end / scale], anchor: "y3" }),
    yaxis: axis("requests/s", { domain: [0.8, 1], rangemode: "tozero", nticks: 4 }),
    yaxis2: axis("replicas", { domain: [0.24, 0.76], rangemode: "tozero" }),
    yaxis3: axis("late", { domain: [0, 0.2], range: [0, 1], tickformat: ".0%", tickvals: [0, 0.5, 1] }),
  }), settings);
}

// Misses on a scale of powers of ten: 99.9 % is as far from 99 % as that is from 90 %.
const LEAST_MISSED = 0.0003;
const depth = (attainment) => -Math.log10(Math.max(1 - attainment, LEAST_MISSED));
const ATTAINMENTS = [0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1 - LEAST_MISSED];

function frontier(element, part) {
  const points = part.points;
  const line = points.filter((point) => !point.reference
    && !points.some((other) => !other.reference && other !== point && other.cost <= point.cost
      && other.attainment >= point.attainment && (other.cost < point.cost || other.attainment > point.attainment)))
    .sort((a, b) => a.cost - b.cost);
  const traces = [{
    x: line.map((point) => point.cost), y: line.map((point) => depth(point.attainment)), mode: "lines",
    line: { color: color("quiet"), width: 1, dash: "dot", shape: "hv" }, hoverinfo: "skip", showlegend: false,
  }];
  // The first group is drawn last: nothing lies on it.
  for (const [index, group] of [...data.groups.entries()].reverse()) {
    const own = points.filter((point) => point.group === index);
    if (!own.length) continue;
    traces.push({
      name: group, legendrank: index, x: own.map((point) => point.cost), y: own.map((point) => depth(point.attainment)),
      mode: "markers+text", text: own.map((point) => String(point.number)),
      textfont: { size: 10, color: "#ffffff" }, textposition: "middle center",
      error_x: { type: "data", array: own.map((point) => point.cost_half), color: color(`c${index}`), thickness: 1, width: 0 },
      marker: { size: 19, color: color(`c${index}`), line: {
        color: own.map((point) => color(point.policy === data.subject ? "ideal" : "back")),
        width: own.map((point) => (point.policy === data.subject ? 2 : 1)),
      } },
      customdata: own.map((point) => [point.policy, point.shown]),
      hovertemplate: "<b>%{customdata[0]}</b><br>%{customdata[1]}<extra></extra>",
    });
  }
  const lowest = Math.min(...points.map((point) => point.attainment));
  const floor = Math.max(...ATTAINMENTS.filter((value) => value === 0 || value < lowest - 1e-9));
  const costs = points.map((point) => point.cost);
  const high = Math.max(...costs, 1.1), low = Math.min(...costs, 1);
  const every = high / low > 2.5
    ? [0.1, 0.2, 0.35, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100]
    : [0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5];
  const ticks = every.filter((value) => value >= low * 0.9 && value <= high * 1.1);
  const room = 0.06 * Math.log10(high / low * 1.2);
  const goal = depth(data.goal);
  const left = Math.log10(low) - 0.01 - room, right = Math.log10(high) + 0.01 + room;
  // Names of the points that one looks for first. Left of a good point there are seldom others. The one that knows the
  // traffic has its name above: a fixed fleet may be at the same place.
  const names = points.filter((point) => point.named).map((point) => {
    const share = (Math.log10(point.cost) - left) / (right - left);
    const place = point.reference ? { xanchor: share > 0.7 ? "right" : "center", xshift: share > 0.7 ? 12 : 0, yshift: 17 }
      : share * 330 > 12 + 7 * point.policy.length ? { xanchor: "right", xshift: -11 } : { xanchor: "left", xshift: 8, yshift: -13 };
    return {
      x: Math.log10(point.cost), y: depth(point.attainment), text: `<b>${point.policy}</b>`, showarrow: false,
      font: { size: 11, color: color("text") }, ...place,
    };
  });
  Plotly.react(element, traces, layout({
    hovermode: "closest",
    xaxis: axis("cost, cheapest sufficient fleet = 1", {
      type: "log", tickvals: ticks, ticktext: ticks.map(String), tickangle: 0,
      range: [left, right],
    }),
    yaxis: axis("within objectives", {
      tickvals: ATTAINMENTS.map(depth),
      ticktext: ATTAINMENTS.map((value) => (value > 0.9995 ? "all" : `${+(value * 100).toFixed(1)}%`)),
      range: [depth(floor) - 0.12, depth(1) + 0.2],
    }),
    annotations: names,
    shapes: [{
      type: "line", xref: "paper", x0: 0, x1: 1, y0: goal, y1: goal, line: { color: color("late"), width: 1, dash: "dash" },
    }],
  }), settings);
}

function draw(section) {
  const part = data.parts[Number(section.dataset.part)];
  const [shown, other] = section.querySelectorAll("select");
  overTime(section.querySelector(".over-time"), part, shown.value, other.value);
  frontier(section.querySelector(".frontier"), part);
  drawn.add(section);
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting && !drawn.has(entry.target)) draw(entry.target);
  }
}, { rootMargin: "600px" });

for (const section of document.querySelectorAll("section[data-part]")) {
  near.observe(section);
  for (const select of section.querySelectorAll("select")) select.addEventListener("change", () => draw(section));
}
dark.addEventListener("change", () => drawn.forEach(draw));
