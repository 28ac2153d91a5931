"use strict";
// The page around the map. Texts of the table become text nodes and are never read as HTML.
window.plmlExplorer = (() => {
  const PLUS = "plus", MINUS = "minus", PATIENCE = 8000;
  let doc, points, facts, asked, answer, live, index, marks;
  let chosen = -1;      // place among the points; -1 for a case that is not on the map
  let here = null;      // the case that is shown: kind, row, label, x, y, and values of a new one
  let pending = null;   // number of the question that the server has not answered
  let waiting = null;   // the question that is to follow
  let number = 0, timer = 0;

  const byId = (id) => document.getElementById(id);

  function el(tag, options = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (name === "class") made.className = value;
      else if (name === "style") Object.assign(made.style, value);
      else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value === true) made.setAttribute(name, "");
      else if (value !== false && value !== null) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  // All and nothing are said of nothing else.
  const percent = (share) => (share < 1 && share >= 0.995 ? ">99%" : share > 0 && share < 0.005 ? "<1%" : `${Math.round(100 * share)}%`);
  const color = (code) => marks[code][0], shape = (code) => marks[code][1];
  const swatch = (code) => el("span", { class: `swatch ${shape(code)}`, style: { background: color(code) } });
  // A short name stays in one line with its colour.
  const named = (code) => el("span", className(code).length <= 20 ? { style: { whiteSpace: "nowrap" } } : {}, swatch(code), className(code));
  // The number of a case, and its label where it has one.
  const caseName = (kind, row) => `case ${row}${facts.names[kind] === null ? "" : ` [${cut(facts.names[kind][row])}]`}`;
  // In the middle: names often differ at the end.
  const cut = (text) => (text.length > 24 ? `${text.slice(0, 15)}…${text.slice(-8)}` : text);
  const className = (code) => facts.classes[code];
  const columnName = (place) => facts.columns[place].name;

  function figures(value) {
    if (value === null) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2);
    return String(Number(value.toPrecision(3)));
  }
  const signed = (value) => (value > 0 ? "+" : "") + figures(value).replace("-", "−");

  // ---- filters ---------------------------------------------------------------------------------

  let visible = [];
  function filter() {
    say("");
    const boxes = new Map([...byId("classes").querySelectorAll("input")].map((b) => [Number(b.value), b.checked]));
    const errors = byId("errors-only").checked, least = Number(byId("doubt").value);
    const { color_class, wrong, doubt, is_new } = points.data;
    const keep = Array.from(doubt, (value, i) => (boxes.get(color_class[i]) ?? true)
      && (!errors || Boolean(wrong[i])) && 100 * value >= least);
    doc.get_model_by_name("training view").booleans = keep.map((yes, i) => yes && !is_new[i]);
    doc.get_model_by_name("new view").booleans = keep.map((yes, i) => yes && Boolean(is_new[i]));
    doc.get_model_by_name("error view").booleans = keep.map((yes, i) => yes && Boolean(wrong[i]));
    visible = keep.flatMap((yes, i) => (yes ? [i] : []));
    byId("doubt-value").textContent = `${least}%`;
    byId("count").textContent = `${visible.length.toLocaleString("en")} of ${keep.length.toLocaleString("en")} shown`;
  }

  function makeFilters() {
    const present = new Set(points.data.color_class);
    for (const code of [...present].sort((a, b) => a - b)) {
      const box = el("input", { type: "checkbox", value: code, checked: true, onchange: filter });
      byId("classes").append(el("label", {}, box, " ", swatch(code), className(code)));
    }
    if (present.size > 2) {
      const all = (yes) => () => {
        byId("classes").querySelectorAll("input").forEach((box) => { box.checked = yes; });
        filter();
      };
      byId("classes").append(el("button", { type: "button", onclick: all(true) }, "all"),
        el("button", { type: "button", onclick: all(false) }, "none"));
    }
    byId("errors-only").addEventListener("change", filter);
    byId("doubt").addEventListener("input", filter);
    filter();
  }

  // ---- choosing --------------------------------------------------------------------------------

  function choose(indices) {
    if (indices.length === 0 || indices[0] === chosen) return;
    chosen = indices[0];
    const { kind, row, x, y, label, record } = points.data;
    say("");
    here = { kind: kind[chosen], row: row[chosen], label: label[chosen], x: x[chosen], y: y[chosen], values: facts.values[chosen] };
    mark(null);
    show(here.label, JSON.parse(record[chosen]), false, here);
    whatIf();
  }

  function select(i) {
    points.selected.indices = [i];
    choose([i]);
    reveal(points.data.x[i], points.data.y[i]);
  }

  function step(by) {
    if (visible.length === 0) return say("No case is shown; loosen the filters.");
    const here = visible.indexOf(chosen);
    select(visible[here < 0 ? (by > 0 ? 0 : visible.length - 1) : (here + by + visible.length) % visible.length]);
  }

  function find(event) {
    event.preventDefault();
    const kind = byId("find-kind").value, text = byId("find-row").value.trim();
    const n = kind === "new" ? facts.n_new : facts.n_training, orLabel = facts.names[kind] === null ? "" : "or the label ";
    const labelled = facts.names[kind] === null ? -1 : facts.names[kind].indexOf(text);
    const numbered = /^\d+$/.test(text) && Number(text) < n ? Number(text) : -1;
    if (numbered < 0 && labelled >= 0) return goTo(kind, labelled);
    if (numbered >= 0) {
      goTo(kind, numbered);
      if (labelled >= 0 && labelled !== numbered) say(`${text} is also the label of ${kind} case ${labelled}: find ${labelled} to see it.`);
    } else if (n === 0) say("There are no new cases.");
    else if (/^\d+$/.test(text)) say(`There are ${n} ${kind} cases, numbered from 0 to ${n - 1}.`);
    else if (text === "") say(`Enter the number ${orLabel}of a row.`);
    else say(`“${text.slice(0, 40)}” is not the number ${orLabel}of a row.`);
  }

  function goTo(kind, row) {
    const i = index.get(`${kind} ${row}`);
    if (i !== undefined) return select(i);
    if (live) return ask({ [kind]: row });
    say(`The ${kind} case ${row} is not among those in this file. The live page finds it: plml explore without --html${
      kind === "new" ? "; or make a page of fewer new cases" : ""}.`);
  }

  function reveal(x, y) {
    const { x_range, y_range } = doc.get_model_by_name("map");
    for (const [range, value] of [[x_range, x], [y_range, y]]) {
      const low = Math.min(range.start, range.end), high = Math.max(range.start, range.end);
      if (value < low || value > high) range.setv({ start: value - (high - low) / 2, end: value + (high - low) / 2 });
    }
  }

  // The chosen place, and lines to the cases that are named.
  function mark(star) {
    doc.get_model_by_name("chosen source").data = { x: [here.x], y: [here.y] };
    doc.get_model_by_name("changed source").data = star === null ? { x: [], y: [] } : { x: [star.x], y: [star.y] };
  }

  function drawLinks(x, y, record) {
    const data = { x0: [], y0: [], x1: [], y1: [], color: [] };
    const rows = new Map(record.neighbors.map(([row, code]) => [row, code]));
    rows.set(record.case_for, record.prediction).set(record.case_against, record.rival);
    for (const [row, code] of rows) {
      const i = index.get(`training ${row}`);
      if (i === undefined) continue;
      data.x0.push(x); data.y0.push(y);
      data.x1.push(points.data.x[i]); data.y1.push(points.data.y[i]);
      data.color.push(color(code));
    }
    doc.get_model_by_name("link source").data = data;
  }

  // ---- the chosen case -------------------------------------------------------------------------

  function show(label, record, changed, place) {
    drawLinks(place.x, place.y, record);
    const p = new Map(record.probabilities);
    const name = `${here.kind === "new" ? "New" : "Training"} ${caseName(here.kind, here.row)}${changed ? ", changed" : ""}`;
    const truth = label < 0 || changed ? null : el("p", {}, "true class ", swatch(label), el("b", {}, className(label)), " ",
      label === record.prediction ? null : el("span", { class: "badge" }, "error"));
    byId("chosen").replaceChildren(...[
      el("h2", {}, `${name}: `, swatch(record.prediction), el("span", { id: "prediction" }, className(record.prediction)),
        ", probability ", el("span", { id: "probability" }, percent(p.get(record.prediction) ?? 0))),
      truth,
      el("p", { class: "note" }, record.probabilities.filter(([, share]) => share >= 0.005).map(([code, share]) => `${className(code)}: ${percent(share)}`).join(" · ")),
      el("h3", {}, "The vote"),
      ...record.votes.map((text) => el("p", { class: "vote" }, text)),
      ...contrast(record),
      ...nearest(record),
      ...metric(record),
    ].filter((part) => part !== null));
  }

  const caseButton = (row) => el("button", { type: "button", class: "case", onclick: () => goTo("training", row) }, caseName("training", row));

  // A bar has the colour of the class that it speaks for.
  function signedBar(part, largest, record) {
    const width = `${50 * Math.min(Math.abs(part) / largest, 1)}%`;
    const side = part >= 0 ? { left: "50%" } : { right: "50%" };
    const style = { ...side, width, backgroundColor: color(part >= 0 ? record.prediction : record.rival) };
    return el("span", { class: "track", "aria-hidden": "true" }, el("span", { class: `bar ${part >= 0 ? PLUS : MINUS}`, style }),
      el("span", { class: "axis", style: { left: "50%" } }));
  }

  function contrast(record) {
    const mine = className(record.prediction), other = className(record.rival);
    if (record.margin === null) {
      return [el("h3", {}, `Why ${mine} and not ${other}`),
        el("p", { class: "note" }, `There is no other case of ${record.case_against < 0 ? other : mine} to compare with.`)];
    }
    const parts = record.contrast.map((line) => line[1]);
    const largest = Math.max(...parts.map(Math.abs), Math.abs(record.rest ?? 0)) || 1;
    const line = (name, part, here, there, against) => el("tr", {}, el("td", {}, name), el("td", { class: "number" }, here),
      el("td", { class: "number" }, there), el("td", { class: "number" }, against),
      el("td", { class: "bars" }, signedBar(part, largest, record)), el("td", { class: "number part" }, signed(part)));
    const rows = record.contrast.map(([column, part, here, there, against]) => line(columnName(column), part, here, there, against));
    if (record.rest !== null) rows.push(line("all others", record.rest, "", "", ""));
    return [
      el("h3", {}, `Why ${mine} and not ${other}`),
      record.margin < 0 ? el("p", { class: "note" }, `The nearest ${other} is nearer than the nearest ${mine}: the vote decides.`) : null,
      el("div", { class: "table" }, el("table", { id: "contrast" },
        el("thead", {}, el("tr", {}, el("th", {}, ""), el("th", { class: "number" }, "here"),
          el("th", { class: "number" }, caseButton(record.case_for), el("br"), named(record.prediction)),
          el("th", { class: "number" }, caseButton(record.case_against), el("br"), named(record.rival)),
          el("th", {}, `◀ for ${other} · for ${mine} ▶`), el("th", {}, ""))),
        el("tbody", {}, ...rows, el("tr", { class: "total" }, el("td", {}, "squared distances"), el("td", {}, ""),
          el("td", { class: "number" }, figures(record.for_squared)), el("td", { class: "number" }, figures(record.against_squared)),
          el("td", {}, "margin"), el("td", { class: "number", id: "margin" }, signed(record.margin)))))),
    ];
  }

  function nearest(record) {
    const rows = record.neighbors.map(([row, code, distance, vote, apart]) => el("tr", {},
      el("td", {}, caseButton(row)), el("td", {}, named(code)),
      el("td", { class: "number" }, figures(distance)), el("td", { class: "number" }, figures(vote)),
      el("td", {}, apart.length === 0 ? "nothing"
        : apart.map(([column, share, value]) => `${columnName(column)} ${value} (${percent(share)})`).join(", "))));
    return [
      el("h3", {}, "Nearest cases"),
      el("div", { class: "table" }, el("table", { id: "nearest" },
        el("thead", {}, el("tr", {}, el("th", {}, ""), el("th", {}, "class"), el("th", { class: "number" }, "distance"),
          el("th", { class: "number" }, "vote"), el("th", {}, "set apart by (there, share of the squared distance)"))),
        el("tbody", {}, ...rows))),
    ];
  }

  function metric(record) {
    const largest = Math.max(...record.metric.flatMap(([, here, average]) => [here, average])) || 1;
    const bar = (kind, share) => el("span", { class: `bar ${kind}`, style: { left: "0", width: `${100 * share / largest}%` } });
    const rows = record.metric.map(([column, here, average]) => el("tr", {}, el("td", {}, columnName(column)),
      el("td", { class: "bars" }, el("span", { class: "track pair", "aria-hidden": "true" }, bar("here", here), bar("average", average))),
      el("td", { class: "number" }, percent(here)), el("td", { class: "number" }, percent(average))));
    const table = el("div", { class: "metric" }, el("table", { id: "metric" },
      el("thead", {}, el("tr", {}, el("th", {}, ""), el("th", {}, ""),
        el("th", { class: "number" }, el("span", { class: "swatch", style: { background: "#0072b2" } }), "here"),
        el("th", { class: "number" }, el("span", { class: "swatch", style: { background: "#999" } }), "average"))),
      el("tbody", {}, ...rows)), direction(record.directions));
    return [el("h3", {}, "What the metric looks at, here and on average"),
      el("div", { class: "local" }, table, record.ellipse === null ? null : ellipses(record.ellipse))];
  }

  function direction(found) {
    if (found === null || found[1].length === 0) return null;
    const [share, loadings] = found;
    return el("p", { class: "note" }, `Leading direction, ${percent(share)} of the local metric: `
      + loadings.map(([name, value]) => `${signed(value)} ${name}`).join(", "));
  }

  // Where z' M z = 1 for a (2, 2) metric: half axes and the angle of the first.
  function ellipse(a, b, c) {
    const middle = (a + c) / 2, apart = Math.hypot((a - c) / 2, b);
    const large = Math.max(middle + apart, 1e-12), small = Math.max(middle - apart, 1e-4 * large);
    return [1 / Math.sqrt(large), 1 / Math.sqrt(small), Math.atan2(2 * b, a - c) / 2];
  }

  function ellipses([first, second, ...entries]) {
    const SIZE = 190, NS = "http://www.w3.org/2000/svg";
    const shapes = [[entries.slice(3), "#777", "5 4"], [entries.slice(0, 3), "#0072b2", ""]]
      .map(([values, color, dashes]) => [ellipse(...values), color, dashes]);
    // Long axes are cut: a metric may not see a direction at all.
    const unit = Math.min(Math.max(...shapes.map(([[, long]]) => long)), 4 * Math.max(...shapes.map(([[short]]) => short)));
    const svg = document.createElementNS(NS, "svg");
    const set = (node, options) => Object.entries(options).forEach(([name, value]) => node.setAttribute(name, value));
    const add = (tag, options, text = "") => {
      const node = document.createElementNS(NS, tag);
      set(node, options);
      node.textContent = text;
      svg.append(node);
    };
    set(svg, { width: SIZE, height: SIZE, viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img",
      "aria-label": `Ellipse of equal distance in ${first} and ${second}; dashed: the average metric` });
    const middle = SIZE / 2 - 6, scale = 0.8 * middle / unit;
    add("line", { x1: 8, x2: SIZE - 8, y1: middle, y2: middle, stroke: "#ccc" });
    add("line", { x1: SIZE / 2, x2: SIZE / 2, y1: 14, y2: 2 * middle - 4, stroke: "#ccc" });
    for (const [[short, long, angle], color, dashes] of shapes) {
      const path = Array.from({ length: 91 }, (_, k) => {
        const t = 2 * Math.PI * k / 90, u = short * Math.cos(t), v = long * Math.sin(t);
        const px = SIZE / 2 + scale * (u * Math.cos(angle) - v * Math.sin(angle));
        const py = middle - scale * (u * Math.sin(angle) + v * Math.cos(angle));
        return `${px.toFixed(1)} ${py.toFixed(1)}`;
      });
      add("path", { d: `M${path.join("L")}Z`, fill: "none", stroke: color, "stroke-width": 2, "stroke-dasharray": dashes });
    }
    // A white edge keeps the names legible on a long ellipse.
    const style = { x: SIZE / 2, "font-size": 12, "text-anchor": "middle", "paint-order": "stroke", stroke: "#fff", "stroke-width": 5 };
    add("text", { ...style, y: SIZE - 3 }, `${cut(first)} →`);
    add("text", { ...style, y: 11 }, `↑ ${cut(second)}`);
    return svg;
  }

  // ---- what if ---------------------------------------------------------------------------------

  function whatIf() {
    const form = byId("values"), note = byId("what-if-note");
    form.replaceChildren();
    byId("what-if-message").textContent = "";
    byId("reset").hidden = true;
    if (!live) { note.textContent = "Values can be changed in the live page, which plml explore opens without --html."; return; }
    if (!facts.can_change) { note.textContent = "A step of this pipeline mixes columns, so their values cannot be changed here."; return; }
    if (here?.kind !== "new") { note.textContent = "Choose a new case to change its values."; return; }
    note.textContent = "Change values; vote, place and contrast follow. Numbers range over the training cases.";
    byId("reset").hidden = false;
    facts.columns.forEach((column, place) => form.append(...fields(column, here.values[place], place)));
  }

  // Where a slider stands for a text; null for what is no number and no date.
  const numberOf = (text) => (text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : null);
  const dayOf = (text) => { const time = Date.parse(`${text.trim().replace(" ", "T")}${text.trim().length > 10 ? "Z" : ""}`); return Number.isNaN(time) ? null : time / 864e5; };
  const dateAt = (day) => new Date(864e5 * Math.floor(day)).toISOString().slice(0, 10);

  function fields(column, value, place) {
    const id = `value-${place}`;
    const label = el("label", { for: id }, column.name);
    const changed = (now) => { label.classList.toggle("changed", now !== value); askChange(); };
    if (column.choices.length > 0) {
      const options = column.choices.includes(value) ? column.choices : [value, ...column.choices];
      const choice = el("select", { id, class: "value" }, ...options.map((text) => el("option", { value: text }, text)));
      choice.value = value;
      choice.addEventListener("input", () => changed(choice.value));
      return [label, choice];
    }
    const placeOf = column.date ? dayOf : numberOf, here = placeOf(value) ?? (column.low + column.high) / 2;
    const low = Math.min(column.low, here), high = Math.max(column.high, here);
    const exact = el("input", { id, class: "value", inputmode: column.date ? "text" : "decimal", autocomplete: "off" });
    const slider = el("input", { type: "range", min: low, max: high, step: column.whole || column.date ? 1 : "any", "aria-label": `${column.name}, slider` });
    exact.value = value;
    slider.value = here;
    const textAt = (place) => (column.date ? dateAt(place) : String(Number(place.toPrecision(column.whole ? 15 : 5))));
    exact.addEventListener("input", () => { slider.value = placeOf(exact.value) ?? slider.value; changed(exact.value); });
    slider.addEventListener("input", () => { exact.value = textAt(Number(slider.value)); changed(exact.value); });
    return [label, exact, slider];
  }

  function askChange() {
    const values = [...byId("values").querySelectorAll(".value")].map((field) => field.value);
    ask({ new: here.row, values });
  }

  // One question at a time; of those that come meanwhile, the last one.
  function ask(question) {
    if (pending !== null) { waiting = question; return; }
    number += 1;
    pending = { number, ...question };
    asked.data = { question: [JSON.stringify(pending)] };
    clearTimeout(timer);
    timer = setTimeout(() => { pending = null; say("The server does not answer; is plml explore still running?"); }, PATIENCE);
  }

  function answered(data) {
    const found = JSON.parse(data.answer[0]);
    if (pending === null || found.number !== pending.number) return;
    const question = pending;
    pending = null;
    clearTimeout(timer);
    if (waiting !== null) { const next = waiting; waiting = null; ask(next); }
    if (question.values === undefined) {
      const kind = question.new === undefined ? "training" : "new";
      return found.message ? say(found.message) : visit(kind, question[kind], found);
    }
    if (here.kind !== "new" || here.row !== question.new) return;
    byId("what-if-message").textContent = found.message ?? "";
    if (found.message) return;
    mark(found);
    show(-1, found.record, true, found);
    byId("chosen").dataset.answer = String(found.number);
  }

  // A case that is not on the map.
  function visit(kind, row, found) {
    chosen = -1;
    here = { kind, row, ...found };
    points.selected.indices = [];
    say(`The ${kind} case ${row} is not one of those on the map; the ring is where it would lie.`);
    mark(null);
    reveal(found.x, found.y);
    show(found.label, found.record, false, found);
    whatIf();
  }

  function say(text) { byId("message").textContent = text; }

  // ---- start -----------------------------------------------------------------------------------

  function start() {
    points = doc.get_model_by_name("points");
    facts = JSON.parse(doc.get_model_by_name("facts").data.facts[0]);
    asked = doc.get_model_by_name("asked");
    answer = doc.get_model_by_name("answer");
    live = facts.live;
    marks = facts.marks;
    if (new Set(marks.map((mark) => mark[1])).size > 1) byId("legend").classList.add("shapes");
    index = new Map(Array.from(points.data.row, (row, i) => [`${points.data.kind[i]} ${row}`, i]));
    byId("about").textContent = `The map shows ${facts.chosen}.`;
    if (facts.names.new !== null || facts.names.training !== null) byId("find-by").textContent = "number or label";
    if (facts.n_new === 0) byId("find-kind").value = "training";
    makeFilters();
    byId("find").addEventListener("submit", find);
    byId("previous").addEventListener("click", () => step(-1));
    byId("next").addEventListener("click", () => step(1));
    byId("map").addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (by !== undefined) { event.preventDefault(); step(by); }
    });
    byId("values").addEventListener("submit", (event) => event.preventDefault());
    byId("reset").addEventListener("click", () => { chosen = -1; waiting = null; goTo(here.kind, here.row); });
    whatIf();
    document.body.dataset.ready = "yes";
  }

  function wait() {
    doc = window.Bokeh?.documents?.[0];
    const there = doc?.get_model_by_name("points") && doc.get_model_by_name("map") && doc.is_idle;
    if (there) start(); else setTimeout(wait, 50);
  }
  document.addEventListener("DOMContentLoaded", wait);

  return { choose: (indices) => { if (points !== undefined) choose(indices); }, answered };
})();
