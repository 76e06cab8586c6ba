"use strict";

const SHOWN = 8; // matches of a search that are listed
const byId = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
let report = {}, task = "", order = { key: "gap", sign: -1, absolute: true };

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
function button(text, action, attributes = {}) {
  const node = element("button", { type: "button", ...attributes }, text);
  node.addEventListener("click", action);
  return node;
}
function chip(name, ...rest) {
  const colour = report.labels[name]?.[0];
  const dot = colour ? [element("span", { class: "dot", style: `--colour: ${colour}` })] : [];
  return element("span", { class: "chip" }, ...dot, element("b", {}, name), ...rest);
}

// The image of a number, if there is an address of it.
function thumbnail(number) {
  const address = report.images[number];
  return address ? [element("img", { src: address, alt: "", loading: "lazy" })] : [];
}

async function inflate(name) {
  const bytes = Uint8Array.from(atob(byId(`blob-${name}`).textContent), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

// The texts of one side of a pair: a caption, or the captions of an image.
function texts(side, number) {
  return side === "caption" ? [report.captions[number]] : report.captions.slice(report.starts[number], report.starts[number + 1]);
}
// Plotly reads a few tags in texts, and breaks no lines.
function hover({ sides, sample }, i) {
  const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/(.{60}\S*) /g, "$1<br>");
  return ["left", "right"].map((side, s) => `<b>${sides[s]}</b> ${texts(sides[s], sample[side][i]).map(escaped).join("<br>")}`).join("<br>");
}

function plot(node, figure) {
  const axis = { gridcolor: "var(--line)", linecolor: "var(--line)", zeroline: false, automargin: true, fixedrange: true };
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 46, r: 10, t: 8, b: 40 }, showlegend: false,
    font: { size: 12, color: "var(--muted)" }, hoverlabel: { bgcolor: "var(--surface)", font: { color: "var(--ink)" }, align: "left" },
    hovermode: "closest", xaxis: { ...axis, title: { text: figure.x } }, yaxis: { ...axis, title: { text: figure.y }, ...figure.options },
  };
  // Charts have the colours of the style sheet, which differ between light and dark.
  const coloured = JSON.stringify({ data: figure.data, layout }).replace(/var\((--[\w-]+)\)/g, (_, name) => style(name));
  const drawn = JSON.parse(coloured);
  for (const trace of drawn.data) if (trace.meta) trace.text = trace.customdata.map((i) => hover(report.judged[trace.meta], i));
  Plotly.newPlot(node, drawn.data, drawn.layout, { displayModeBar: false, responsive: true });
}
function drawCharts() {
  for (const parent of document.querySelectorAll("[data-charts]")) {
    const charts = Object.entries(report[parent.dataset.charts] ?? report.judged[task]?.[parent.dataset.charts] ?? {});
    const nodes = charts.map(([name]) => element("div", { class: "plot", role: "img", "aria-label": `Chart ${name}` }));
    parent.replaceChildren(...charts.map(([name], i) => element("div", { class: "panel" }, ...(name ? [element("h4", {}, chip(name))] : []), nodes[i])));
    charts.forEach(([, figure], i) => plot(nodes[i], figure));
  }
}

function drawTask() {
  byId("sample-note").textContent = report.judged[task]?.note ?? "";
  drawCharts();
  if (task) drawWorst();
}
function drawWorst() {
  const { worst, sides, name } = report.judged[task], label = byId("worst-label").value, pairs = worst[label];
  const columns = [
    ...["gap", "relevance", "human"].map((key) => [key, key === "relevance" ? label : key, (i) => pairs[key][i]]),
    ...["left", "right"].map((key, s) => [key, sides[s], (i) => texts(sides[s], pairs[key][i])]),
  ];
  const value = columns.find(([key]) => key === order.key)[2];
  const compare = (a, b) => (Array.isArray(a) ? a[0].localeCompare(b[0], "en") : order.absolute ? Math.abs(a) - Math.abs(b) : a - b);
  const rows = pairs.human.map((_, i) => i).sort((i, j) => order.sign * compare(value(i), value(j)) || i - j);
  const heads = columns.map(([key, title]) => {
    const head = element("th", { scope: "col", class: sides.includes(title) ? "text" : "", "data-key": key }, button(title, () => {
      const sign = order.key === key && !order.absolute ? -order.sign : sides.includes(title) ? 1 : -1;
      order = { key, sign, absolute: false };
      drawWorst();
      byId("worst").querySelector(`th[data-key=${key}] button`).focus();
    }));
    if (key === order.key) head.setAttribute("aria-sort", order.sign > 0 ? "ascending" : "descending");
    return head;
  });
  const cell = (shown, before, tag) => (Array.isArray(shown)
    ? element("td", { class: "text" }, ...before, shown[0], ...tag, ...shown.slice(1).map((text) => element("span", { class: "more" }, text)))
    : element("td", {}, shown.toFixed(2)));
  byId("worst").replaceChildren(
    element("caption", {}, `${label}: the ${rows.length} pairs of the largest disagreement, ${name}`),
    element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...rows.map((i) => element("tr", {}, ...columns.map(([key, , shown]) => (
      cell(
        shown(i),
        sides[key === "left" ? 0 : 1] === "image" && (key === "left" || key === "right") ? thumbnail(pairs[key][i]) : [],
        key === "left" && pairs.one_image[i] ? [element("span", { class: "tag" }, "one image")] : [],
      )))))),
  );
}

// Numbers of matching captions: all words occur, those at the start of a word; an id matches alone.
function find(query) {
  const id = report.ids.indexOf(query);
  if (id >= 0) return [id];
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const patterns = words.map((word) => new RegExp(`(?<![\\p{L}\\p{N}])${word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}`, "u"));
  return words.length ? report.lower.flatMap((text, i) => (patterns.every((pattern) => pattern.test(text)) ? [i] : [])) : [];
}
function search() {
  const query = byId("query").value.trim(), matches = find(query);
  const count = matches.length === 1 ? "1 caption matches" : `${matches.length.toLocaleString("en")} captions match`;
  byId("matches").textContent = query ? `${count}${matches.length > SHOWN ? `; the first ${SHOWN} are shown` : ""}.` : "";
  byId("results").replaceChildren(...matches.slice(0, SHOWN).map((i) => (
    element("li", {}, button(report.captions[i], () => choose(i), { "data-number": i })))));
  byId("chosen").hidden = !matches.length;
  if (matches.length) choose(matches[0]);
}
function choose(number) {
  for (const node of byId("results").querySelectorAll("button")) node.ariaPressed = String(node.dataset.number === String(number));
  byId("chosen").hidden = false;
  const image = (i) => report.starts.findLastIndex((start) => start <= i);
  byId("chosen-title").replaceChildren(...thumbnail(image(number)), `\u201c${report.captions[number]}\u201d `, element("span", { class: "id" }, report.ids[number]));
  byId("columns").replaceChildren(...Object.entries(report.searched).map(([label, one]) => {
    const first = one.reference.indexOf(number), pairs = first < 0 ? [] : one.candidate.slice(first, one.reference.lastIndexOf(number) + 1);
    const items = pairs.map((other, rank) => {
      const same = image(other) === image(number) ? [element("span", { class: "tag" }, "same image")] : [];
      const found = button(report.captions[other], () => choose(other), { title: report.ids[other] });
      return element("li", {}, element("span", {}, one.score[first + rank].toFixed(3)), element("div", {}, ...thumbnail(image(other)), found, ...same));
    });
    const list = items.length ? element("ol", {}, ...items) : element("p", { class: "lead" }, "No caption: it has no encoding.");
    return element("div", {}, element("h4", {}, chip(label, ...(one.reranked ? [element("span", { class: "tag" }, "re-ranked")] : []))), list);
  }));
}

async function start() {
  const [library, data] = await Promise.all(["plotly", "data"].map(inflate));
  document.head.append(element("script", {}, library));
  report = JSON.parse(data);
  report.lower = report.captions.map((text) => text.toLowerCase());
  // Only the labels that a chart or a list of the page shows.
  const shown = new Set([report.distributions, report.searched, ...Object.values(report.judged).map(({ scatter }) => scatter)].flatMap(Object.keys));
  byId("legend").append(...Object.entries(report.labels).filter(([name]) => shown.has(name)).map(([name, [, uses]]) => element("li", {}, chip(name, ...(uses === name ? [] : [element("span", {}, uses)])))));
  const names = Object.keys(Object.values(report.judged)[0]?.worst ?? {}), baseline = names.filter((name) => !report.distributions[name]);
  // The disagreements of the baseline, a binary label, come last.
  byId("worst-label").append(...names.filter((name) => !baseline.includes(name)).concat(baseline).map((name) => element("option", {}, name)));
  byId("worst-label").addEventListener("change", drawWorst);
  for (const [key, { name }] of Object.entries(report.judged)) {
    const radio = element("input", { type: "radio", name: "task", value: key, ...(task ? {} : { checked: "" }) });
    radio.addEventListener("change", () => { task = key; drawTask(); });
    byId("tasks").append(element("label", {}, radio, name));
    task ||= key;
  }
  let timer = 0;
  byId("query").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, 120); });
  byId("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    // A search that is still due would replace the results, and with them a caption chosen meanwhile.
    clearTimeout(timer);
    search();
  });
  drawTask();
  if (report.captions.length) choose(0);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);
  document.body.dataset.ready = "true";
}

start().catch((error) => {
  byId("failure").hidden = false;
  byId("failure").textContent = `The charts and the search cannot be shown: ${error.message}. A browser of 2023 or later is needed.`;
  console.error(error);
});
