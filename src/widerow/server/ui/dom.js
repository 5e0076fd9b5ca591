// Elements from data. Rule: text comes in as text nodes; nothing here reads markup, so a device's name is never code.

/** `h("a", {href: "#/", class: "x", onclick: f}, "text", node, [more])`. Attributes that are null or false are left out. */
export function h(tag, attributes, ...children) {
  return fitted(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes, ...children) {
  return fitted(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fitted(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false);
}

/** Replace what an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/** Set text only where it differs: what did not change does not move, and is not read out again. */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

/** A part of a view that has nothing to show: loading, empty or failed, with what to do about it. */
export function state(kind, message, ...more) {
  return h("div", { class: `state ${kind}`, role: kind === "failed" ? "alert" : "status" }, h("p", null, message), more);
}

/** A place for what is loading, as high as what will be there. */
export function skeleton(height) {
  return s("svg", { class: "skeleton", width: "100%", height, "aria-hidden": "true" });
}

export function unit(name) {
  return name ? h("span", { class: "unit" }, name) : null;
}

/** A dot in the colour of a state. The state must be said in words beside it, too. */
export function dot(kind) {
  return h("i", { class: `dot ${kind}`, "aria-hidden": "true" });
}

/** A bar for a share of 0 to 1. Above 80% it warns; at 100% it is bad. */
export function bar(share) {
  const colour = share >= 1 ? "var(--bad)" : share >= 0.8 ? "var(--warn)" : "var(--accent)";
  const rect = s("rect", { width: `${Math.min(1, Math.max(0, share)) * 100}%`, height: "4", fill: colour });
  return h("span", { class: "bar", "aria-hidden": "true" }, s("svg", null, rect));
}

/** A small square in the colour of a line. */
export function swatch(colour) {
  return h("i", { class: "swatch", "aria-hidden": "true" }, s("svg", null, s("rect", { width: 8, height: 8, rx: 2, fill: colour })));
}

/** Buttons of which one is pressed. `choices`: [value, label]; `choose` gets the value. */
export function segments(label, choices, chosen, choose) {
  return h("div", { class: "seg", role: "group", "aria-label": label }, choices.map(([value, name]) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => choose(value) }, name)));
}

/** Ask before something is done; resolves to whether to do it. `lines` say what it means. */
export function confirmed(title, lines, action, danger) {
  return new Promise((resolve) => {
    const close = (answer) => { box.close(); box.remove(); resolve(answer); };
    const box = h("dialog", { "aria-label": title, oncancel: () => close(false) },
      h("h1", null, title), lines.map((line) => h("p", null, line)),
      h("div", { class: "line" },
        h("button", { type: "button", onclick: () => close(false) }, "Cancel"),
        h("button", { type: "button", class: danger ? "danger" : "primary", onclick: () => close(true) }, action)));
    document.body.append(box);
    box.showModal();
  });
}

/** A table. `columns`: {label, number, fit, wide, sort, cell(row)}, where `wide` ones are left out at phone width, and
 *  `words` ones keep room for words; `sorted`: {by, choose(name)} for columns that sort; `bare`: the
 *  columns' names are for screen readers only; `stack`: at phone width a row takes several lines. */
export function table(columns, rows, { caption, pick, sorted, bare, stack } = {}) {
  const head = columns.map((column) => {
    const by = sorted && column.sort && sorted.by.replace("-", "") === column.sort;
    const direction = by ? (sorted.by.startsWith("-") ? "descending" : "ascending") : null;
    const label = sorted && column.sort
      ? h("button", { type: "button", onclick: () => sorted.choose(next(sorted.by, column)) }, column.label, by ? (direction === "ascending" ? " ↑" : " ↓") : "")
      : column.label;
    return h("th", { class: classes(column), scope: "col", "aria-sort": direction }, label);
  });
  const body = rows.map((row) => h("tr", pick ? { class: "pick", onclick: (event) => { if (!event.target.closest("a,button,input")) pick(row); } } : null,
    columns.map((column) => h("td", { class: classes(column) }, column.cell(row)))));
  return h("div", { class: "scroll" }, h("table", { class: stack ? "stack" : null },
    caption ? h("caption", { class: "skip" }, caption) : null, h("thead", { class: bare ? "bare" : null }, h("tr", null, head)), h("tbody", null, body)));
}

function classes(column) {
  return [column.number && "n", column.fit && "fit", column.wide && "phone-off", column.words && "words"].filter(Boolean).join(" ") || null;
}

function next(by, column) {
  if (by === column.sort) return `-${column.sort}`;
  if (by === `-${column.sort}`) return column.sort;
  return column.number || column.down ? `-${column.sort}` : column.sort;
}
