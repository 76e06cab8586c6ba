"use strict";

const element = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value;
    else if (key in node && typeof value !== "string") node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
};
const byId = (id) => document.getElementById(id);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// Plotly reads a few tags in texts.
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

async function inflate(name) {
  const packed = atob(byId(`blob-${name}`).textContent);
  const bytes = Uint8Array.from(packed, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}
const inflateText = async (name) => new TextDecoder().decode(await inflate(name));

function wrap(text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    if (lines.at(-1).length + word.length > width && lines.at(-1)) lines.push("");
    lines[lines.length - 1] += (lines.at(-1) ? " " : "") + word;
  }
  return lines.map(escaped).join("<br>");
}

// A long name may be broken after `_`, so that columns stay narrow.
const breakable = (name) => name.split(/(?<=_)/).flatMap((part, i) => (i ? [element("wbr"), part] : [part]));

const TASKS = {
  sits: "caption and image",
  sts: "two captions",
  sis: "two images",
};
const KINDS = { same_image: "one image", neighbours: "neighbours, two images", random: "random" };
const SUBSETS = { all: "All pairs", two_images: "Pairs of two images (non-GT)" };
const SHOWN = 8; // matches of a search that are listed

class Report {
  constructor(data, searched) {
    Object.assign(this, data);
    this.searched = searched;
    this.task = Object.keys(this.judged)[0];
    this.order = { key: "gap", sign: -1, absolute: true };
    this.image = new Int32Array(this.captions.length);
    for (let i = 0; i + 1 < this.starts.length; i++) this.image.fill(i, this.starts[i], this.starts[i + 1]);
    this.lower = this.captions.map((text) => text.toLowerCase());
  }

  variable(name) {
    let number = 0;
    for (const label of this.labels) {
      if (label.name === name) return label.baseline ? "--baseline" : `--label-${number % 8}`;
      if (!label.baseline) number += 1;
    }
    return "--ink";
  }
  colour(name) { return style(this.variable(name)); }
  chip(name, ...rest) {
    const dot = element("span", { class: "dot", style: `--colour: var(${this.variable(name)})`, "aria-hidden": "true" });
    return element("span", { class: "chip" }, dot, element("b", {}, name), ...rest);
  }
  score(name, value) { return value.toFixed(this.labels.find((label) => label.name === name).decimals); }

  // The texts of one side of a pair: a caption, or the captions of an image.
  texts(side, number) {
    return side === "caption" ? [this.captions[number]] : this.captions.slice(this.starts[number], this.starts[number + 1]);
  }

  layout(extra) {
    const axis = { gridcolor: style("--line"), linecolor: style("--line"), zeroline: false, automargin: true, fixedrange: true };
    const { xaxis = {}, yaxis = {}, ...rest } = extra;
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 46, r: 10, t: 8, b: 40 },
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: style("--muted") },
      hoverlabel: { bgcolor: style("--surface"), bordercolor: style("--muted"), font: { color: style("--ink"), size: 12 }, align: "left" },
      showlegend: false, xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis }, ...rest,
    };
  }
  plot(node, traces, layout) {
    Plotly.react(node, traces, this.layout(layout), { displayModeBar: false, responsive: true });
  }
  panel(parent, name, description) {
    const plot = element("div", { class: "plot", role: "img", "aria-label": `${name}: ${description}` });
    parent.append(element("div", { class: "panel" }, element("h4", {}, this.chip(name)), plot));
    return plot;
  }

  legend() {
    byId("legend").append(...this.labels.map((label) => element("li", {}, this.chip(label.name, element("span", {}, label.description)))));
  }

  drawHeadline() {
    if (!this.headline.length) return;
    byId("headline").hidden = false;
    const node = byId("headline-chart");
    node.style.height = `${60 + 30 * new Set(this.headline.map((row) => row.label)).size}px`;
    const traces = ["all", "two_images"].map((subset) => {
      const rows = this.headline.filter((row) => row.subset === subset && row.r !== null);
      const colours = rows.map((row) => this.colour(row.label));
      return {
        type: "scatter", mode: "markers", x: rows.map((row) => row.r), y: rows.map((row) => row.label),
        marker: { size: 11, color: subset === "all" ? colours : style("--surface"), line: { color: colours, width: 2 } },
        error_x: {
          type: "data", symmetric: false, array: rows.map((row) => (row.high ?? row.r) - row.r),
          arrayminus: rows.map((row) => row.r - (row.low ?? row.r)), color: style("--muted"), thickness: 1.2, width: 4,
        },
        hovertemplate: `%{y}, ${SUBSETS[subset].toLowerCase()}: %{x:.3f}<extra></extra>`,
      };
    });
    const names = [...new Set(this.headline.map((row) => row.label))].reverse();
    this.plot(node, traces, {
      margin: { l: 10, r: 16, t: 4, b: 40 }, xaxis: { title: { text: "Pearson's r" }, rangemode: "tozero" },
      yaxis: { type: "category", categoryorder: "array", categoryarray: names, range: [-0.6, names.length - 0.4], tickfont: { color: style("--ink") } },
    });
  }

  chooseTask() {
    for (const task of Object.keys(this.judged)) {
      const radio = element("input", { type: "radio", name: "task", value: task, checked: task === this.task });
      radio.addEventListener("change", () => { this.task = task; this.drawTask(); });
      byId("tasks").append(element("label", {}, radio, TASKS[task]));
    }
  }
  drawTask() {
    if (!this.task) return;
    this.drawScatter();
    this.drawMatrices();
    this.drawWorst();
  }

  drawScatter() {
    const { sample, sides, n, calibration } = this.judged[this.task];
    const grid = byId("scatter");
    grid.replaceChildren();
    const one = sample.one_image.some((flag) => flag) ? " Hollow: pairs of one image." : "";
    byId("sample-note").textContent = `A random sample of ${sample.human.length.toLocaleString("en")} of ${n.toLocaleString("en")} ` +
      `pairs, the same for every label (seed 0).${one} Line: mean human score of all pairs of two images, by relevance.`;
    const width = window.innerWidth < 700 ? 34 : 56;
    const texts = sample.human.map((_, i) => ["left", "right"].map((side, s) => {
      const all = this.texts(sides[s], sample[side][i]);
      const more = all.length > 1 ? ` (+${all.length - 1})` : "";
      return `<b>${sides[s]}</b> ${wrap(all[0] + more, width)}`;
    }).join("<br>"));
    // All panels are made before the first chart, which is as wide as its column.
    const shown = this.labels.filter((label) => sample.relevance[label.name]);
    const nodes = shown.map((label) => this.panel(grid, label.name, "relevance against human score"));
    shown.forEach((label, panel) => {
      const values = sample.relevance[label.name];
      // A label of few values is spread by a fixed pattern, so that its points do not cover each other.
      const few = new Set(values).size <= 10;
      const x = values.map((value, i) => value + (few ? 0.12 * (((i * 0.618034) % 1) - 0.5) : 0));
      const points = (flag) => sample.human.flatMap((_, i) => (sample.one_image[i] === flag ? [i] : []));
      const trace = (index, marker) => ({
        type: "scatter", mode: "markers", x: index.map((i) => x[i]), y: index.map((i) => sample.human[i]),
        text: index.map((i) => `human ${sample.human[i]}, ${escaped(label.name)} ${this.score(label.name, values[i])}<br>${texts[i]}`),
        hovertemplate: "%{text}<extra></extra>", marker,
      });
      const colour = this.colour(label.name);
      const line = calibration[label.name] ?? [];
      this.plot(nodes[panel], [
        trace(points(0), { size: 4.5, color: colour, opacity: 0.45 }),
        trace(points(1), { size: 5, color: "rgba(0,0,0,0)", opacity: 0.7, line: { color: colour, width: 1 } }),
        { type: "scatter", mode: "lines", x: line.map((p) => p[0]), y: line.map((p) => p[1]), line: { color: style("--ink"), width: 2 }, hoverinfo: "skip" },
      ], {
        hovermode: "closest", xaxis: { title: { text: "relevance", standoff: 6 } },
        yaxis: { title: { text: "human score (0 to 5)", standoff: 6 }, range: [-0.2, 5.2], dtick: 1 },
      });
    });
  }

  drawMatrices() {
    const { agreement, sample } = this.judged[this.task];
    const names = [...Object.keys(sample.relevance), "people"];
    byId("matrices").replaceChildren(...Object.entries(agreement).map(([subset, rho]) => {
      const title = this.task === "sis" ? "Pairs of two images" : SUBSETS[subset];
      const head = element("tr", {}, element("td"), ...names.map((name) => element("th", { scope: "col" }, ...breakable(name))));
      const rows = names.map((name, i) => element("tr", {}, element("th", { scope: "row" }, name), ...rho[i].map((value, j) => {
        const shade = value === null || i === j ? 0 : Math.max(0, value) ** 2 * 0.55;
        const attributes = { style: `background: rgba(var(--heat), ${shade.toFixed(3)})`, class: i === j ? "self" : "" };
        return element("td", attributes, value === null ? "-" : value.toFixed(2));
      })));
      const table = element("table", { class: "matrix" }, element("caption", {}, title), element("thead", {}, head), element("tbody", {}, ...rows));
      return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Agreement between labels: ${title}` }, table);
    }));
  }

  chooseLabel() {
    const select = byId("worst-label");
    const names = this.task ? Object.keys(this.judged[this.task].worst) : [];
    select.append(...names.map((name) => element("option", { value: name }, name)));
    // The baseline is the first label; its disagreements are those of a binary label.
    select.value = names.find((name) => !this.labels.find((label) => label.name === name).baseline) ?? names[0] ?? "";
    select.addEventListener("change", () => this.drawWorst());
  }
  drawWorst() {
    const { worst, sides } = this.judged[this.task];
    const name = byId("worst-label").value;
    const pairs = worst[name];
    const columns = [
      { key: "gap", title: "gap", value: (i) => pairs.gap[i], show: (i) => (pairs.gap[i] > 0 ? "+" : "\u2212") + Math.abs(pairs.gap[i]).toFixed(1) },
      { key: "relevance", title: name, value: (i) => pairs.relevance[name][i], show: (i) => this.score(name, pairs.relevance[name][i]) },
      { key: "human", title: "human", value: (i) => pairs.human[i], show: (i) => pairs.human[i].toFixed(2) },
      ...["left", "right"].map((side, s) => ({
        key: side, title: sides[s], text: true, value: (i) => this.texts(sides[s], pairs[side][i])[0], show: (i) => this.texts(sides[s], pairs[side][i]),
      })),
    ];
    const { key, sign, absolute } = this.order;
    const by = columns.find((column) => column.key === key).value;
    const measure = (i) => (absolute ? Math.abs(by(i)) : by(i));
    const rows = pairs.human.map((_, i) => i).sort((a, b) => {
      const [x, y] = [measure(a), measure(b)];
      return sign * (typeof x === "string" ? x.localeCompare(y, "en") : x - y) || a - b;
    });
    const heads = columns.map((column) => {
      const button = element("button", { type: "button" }, column.title);
      button.addEventListener("click", () => {
        const same = this.order.key === column.key && !this.order.absolute;
        this.order = { key: column.key, sign: same ? -this.order.sign : column.text ? 1 : -1, absolute: false };
        this.drawWorst();
        byId("worst").querySelector(`th[data-key=${column.key}] button`).focus();
      });
      const state = column.key !== key ? "none" : sign > 0 ? "ascending" : "descending";
      const attributes = { scope: "col", role: "columnheader", class: column.text ? "text" : "", "aria-sort": state, "data-key": column.key };
      return element("th", attributes, button);
    });
    const cells = (i) => columns.map((column) => {
      if (!column.text) return element("td", { role: "cell" }, column.show(i));
      const [first, ...more] = column.show(i);
      const tag = column.key === "left" && pairs.one_image[i] ? [element("span", { class: "tag" }, "one image")] : [];
      return element("td", { class: "text", role: "cell" }, first, ...tag, ...more.map((text) => element("span", { class: "more" }, text)));
    });
    // Narrow windows show rows as blocks, in which elements of a table lose their roles.
    const row = (...children) => element("tr", { role: "row" }, ...children);
    byId("worst").replaceChildren(
      element("caption", {}, `${name}: the ${rows.length} pairs of the largest disagreement, ${TASKS[this.task]}`),
      element("thead", { role: "rowgroup" }, row(...heads)),
      element("tbody", { role: "rowgroup" }, ...rows.map((i) => row(...cells(i)))),
    );
  }

  drawDistributions() {
    const grid = byId("distributions");
    grid.replaceChildren();
    const entries = Object.entries(this.distributions);
    const nodes = entries.map(([name]) => this.panel(grid, name, "distribution of relevance by kind of pair"));
    entries.forEach(([name, { edges, shares }], panel) => {
      const colours = { same_image: this.colour(name), neighbours: style("--ink"), random: style("--baseline") };
      const traces = Object.entries(shares).map(([kind, values]) => ({
        type: "scatter", mode: "lines", name: KINDS[kind], x: edges, y: [...values, values.at(-1)],
        line: { shape: "hv", color: colours[kind], width: 2, dash: kind === "neighbours" ? "dot" : "solid" },
        fill: kind === "same_image" ? "tozeroy" : "none", fillcolor: `${colours[kind]}33`,
        hovertemplate: `${KINDS[kind]}: %{y:.1%} at %{x:.2f}<extra></extra>`,
      }));
      // Most random pairs of a label of n-grams share none: their bin would flatten all others.
      const top = Math.max(...Object.entries(shares).flatMap(([kind, values]) => (kind === "random" ? [] : values)), 0.02);
      this.plot(nodes[panel], traces, {
        xaxis: { title: { text: "relevance", standoff: 6 } },
        yaxis: { title: { text: "share of pairs", standoff: 6 }, tickformat: ".0%", range: [0, 1.15 * top] },
      });
    });
  }

  // Numbers of matching captions: all words occur, those at the start of a word; an id matches alone.
  find(query) {
    const id = this.ids.indexOf(query);
    if (id >= 0) return [id];
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const patterns = words.map((word) => new RegExp(`(?<![\\p{L}\\p{N}])${word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}`, "u"));
    if (!words.length) return [];
    return this.lower.flatMap((text, i) => (patterns.every((pattern) => pattern.test(text)) ? [i] : []));
  }
  search(query) {
    const matches = this.find(query.trim());
    const count = matches.length === 1 ? "1 caption matches" : `${matches.length.toLocaleString("en")} captions match`;
    byId("matches").textContent = query.trim() ? `${count}${matches.length > SHOWN ? `; the first ${SHOWN} are shown` : ""}.` : "";
    byId("results").replaceChildren(...matches.slice(0, SHOWN).map((i) => {
      const button = element("button", { type: "button", "data-number": String(i) }, this.captions[i]);
      button.addEventListener("click", () => this.choose(i));
      return element("li", {}, button);
    }));
    if (matches.length) this.choose(matches[0]);
    else byId("chosen").hidden = true;
  }
  choose(number) {
    for (const button of byId("results").querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.number === String(number)));
    byId("chosen").hidden = false;
    byId("chosen-title").replaceChildren(`\u201c${this.captions[number]}\u201d `, element("span", { class: "id" }, this.ids[number]));
    byId("columns").replaceChildren(...this.searched.map((one) => {
      const hits = [];
      for (let rank = 0, value = 0; rank < one.k; rank++) {
        const other = one.numbers[number * one.k + rank];
        value += one.steps[rank * this.captions.length + number];
        if (other < this.captions.length) hits.push([other, value]);
      }
      const decimals = this.labels.find((label) => label.name === one.label).decimals;
      const items = hits.map(([other, value]) => {
        const button = element("button", { type: "button", title: this.ids[other] }, this.captions[other]);
        button.addEventListener("click", () => { this.choose(other); byId("chosen").scrollIntoView({ block: "nearest" }); });
        const same = this.image[other] === this.image[number] ? [element("span", { class: "tag" }, "same image")] : [];
        return element("li", {}, element("span", {}, (value / 10 ** decimals).toFixed(decimals)), element("div", {}, button, ...same));
      });
      const list = items.length ? element("ol", {}, ...items) : element("p", { class: "lead" }, "No caption: it has no encoding.");
      const tag = one.reranked ? [element("span", { class: "tag" }, "re-ranked")] : [];
      return element("div", { style: `--colour: var(${this.variable(one.label)})` }, element("h4", {}, this.chip(one.label, ...tag)), list);
    }));
  }
  startSearch() {
    let timer = 0;
    byId("query").addEventListener("input", (event) => {
      clearTimeout(timer);
      timer = setTimeout(() => this.search(event.target.value), 120);
    });
    byId("search-form").addEventListener("submit", (event) => {
      event.preventDefault();
      // A search that is still due would replace the results, and with them a caption chosen meanwhile.
      clearTimeout(timer);
      this.search(byId("query").value);
    });
    if (this.captions.length) this.choose(0);
  }

  drawCharts() {
    this.drawHeadline();
    this.drawTask();
    this.drawDistributions();
  }
}

async function neighbours(one, number, count) {
  const [numbers, planes] = await Promise.all([inflate(`numbers-${number}`), inflate(`scores-${number}`)]);
  const bytes = new Uint8Array(planes), steps = new Int16Array(count * one.k);
  // Low bytes come before high bytes.
  for (let i = 0; i < steps.length; i++) steps[i] = bytes[i] | (bytes[steps.length + i] << 8);
  return { ...one, numbers: count < 65536 ? new Uint16Array(numbers) : new Uint32Array(numbers), steps };
}

async function start() {
  const script = element("script");
  const [library, text] = await Promise.all([inflateText("plotly"), inflateText("data")]);
  script.textContent = library;
  document.head.append(script);
  const data = JSON.parse(text);
  const listed = JSON.parse(byId("searched").textContent);
  const report = new Report(data, await Promise.all(listed.map((one, i) => neighbours(one, i, data.captions.length))));
  report.legend();
  report.startSearch();
  report.chooseTask();
  report.chooseLabel();
  report.drawCharts();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => report.drawCharts());
  document.body.dataset.ready = "true";
}

start().catch((error) => {
  byId("failure").hidden = false;
  byId("failure").textContent = `The charts and the search cannot be shown: ${error.message}. A browser of 2023 or later is needed.`;
  console.error(error);
});
