// The beam lattice, as in the paper's figure 3: columns are steps, rows are beams. It grows as events stream in; nothing
// that stands is drawn again, but for the lines into a column that got a row more.

import { refusedCard, rowCard } from "./card.js";
import { HEIGHT, SPACE, TOP, headOf, linesOf, nodeOf, slotsOf } from "./column.js";
import { LatticeModel, eventsOf } from "./model.js";
import { calm, el, freshId, legend, plural } from "../viewkit.js";

const COLUMN_MAX = 200; // pixels that no column is wider than
const FRAME_MS = 8; // of drawing between two frames, so that the page stays quick
const ROWS = [8, 16, 64, 512];
const TREE_ROWS_MAX = 4; // few beams stand under their parents as in the figure; many would lose their places
const LEGEND = [
  ["swatch-chosen", "chosen"], ["swatch-picked", "selected"], ["swatch-refused", "wanted, but refused"],
  ["swatch-pruned", "dropped"], ["swatch-ended", "finished"],
];
const KINDS = {
  abs: { word: "score", pushes: true }, banked: { word: "estimate", pushes: false }, sample: { word: "log-prob", pushes: false, plain: true },
};

export class LatticeView {
  constructor(container, { onSelect = () => {}, explain = async () => "" } = {}) {
    Object.assign(this, { container, onSelect, explain });
    this.explained = new Map();
    this.build();
    this.reset({ algorithm: "banked", maxTokens: 0 });
  }

  build() {
    const button = (label, sign, by) => el("button", { type: "button", class: "tool", "aria-label": label, click: () => this.slide(Number(this.slider.value) + by) }, sign);
    const ids = { slider: freshId("step"), rows: freshId("rows"), order: freshId("order") };
    this.slider = el("input", { type: "range", min: "0", max: "0", value: "0", id: ids.slider, input: () => this.slide(Number(this.slider.value)) });
    this.output = el("output", { for: ids.slider, class: "lattice-at" });
    this.rowsChoice = el("select", { id: ids.rows, change: () => this.redraw() }, ...ROWS.map((count) => el("option", { value: count }, `best ${count}`)));
    this.orderChoice = el("select", { id: ids.order, change: () => this.reorder() }, el("option", { value: "parent" }, "by parent"), el("option", { value: "score" }, "by score"));
    this.tools = el("div", { class: "view-tools lattice-tools" },
      el("label", { for: ids.slider }, "Step"), button("One step back", "‹", -1), this.slider, button("One step on", "›", 1), this.output,
      el("label", { for: ids.rows }, "Rows"), this.rowsChoice, el("label", { for: ids.order, class: "out-of-sight" }, "Order of the rows"), this.orderChoice);
    const hint = freshId("keys");
    this.plane = el("div", { class: "lattice-plane" });
    this.scroll = el("div", { class: "lattice-scroll", tabindex: "0", role: "region", "aria-label": "Beam lattice: columns are steps, rows are beams", "aria-describedby": hint }, this.plane);
    this.card = el("div", { class: "lattice-card", "aria-live": "off" });
    this.container.classList.add("lattice-view");
    this.legend = legend("Marks of the lattice", LEGEND);
    this.container.replaceChildren(this.tools, this.scroll, this.legend, this.card,
      el("p", { class: "out-of-sight", id: hint }, "Tab enters the lattice. Arrow left goes to the parent, right to the best child, up and down within a step. Enter selects the path."));
    for (const name of ["wheel", "pointerdown", "keydown"]) this.scroll.addEventListener(name, () => { this.held = true; }, { passive: true });
    this.plane.addEventListener("click", (event) => this.chosenNode(event.target));
    for (const name of ["pointerover", "focusin"]) this.plane.addEventListener(name, (event) => this.tell(event.target));
    this.plane.addEventListener("pointerleave", () => this.tellSelected());
    this.plane.addEventListener("keydown", (event) => this.key(event));
  }

  reset({ algorithm, maxTokens }) {
    Object.assign(this, { algorithm, maxTokens, model: new LatticeModel(), drawn: [], waiting: [], furthest: 1 });
    this.kinds = KINDS[algorithm] ?? KINDS.banked;
    this.good = []; // the chosen path, an index for each column
    this.picked = []; // the selected one
    this.at = -1;
    this.following = true;
    this.held = false; // by whoever scrolls back while it grows
    this.stop = null;
    this.plane.replaceChildren();
    this.card.replaceChildren();
    this.container.classList.remove("is-done");
    for (const part of [this.tools, this.scroll, this.legend]) part.hidden = true;
  }

  reorder() {
    this.ordered = true;
    this.redraw();
  }

  /** Take a `step` event. */
  step(event) {
    const column = this.model.add(event);
    if (!column) return;
    if (column.place === 0 && !this.ordered) this.orderChoice.value = column.rows.length <= TREE_ROWS_MAX ? "parent" : "score";
    this.furthest = Math.max(this.furthest, ...column.rows.map((row) => row.distance));
    this.waiting.push(column);
    for (const part of [this.tools, this.scroll, this.legend]) part.hidden = false;
    this.soon();
  }

  /** Take the answer: its first choice's path becomes green. */
  done(response) {
    const choice = response.choices[0];
    if (choice && !this.model.last && choice.trace) eventsOf(choice, this.maxTokens).forEach((event) => this.step(event));
    this.flush(Infinity);
    this.container.classList.add("is-done");
    this.choices = response.choices;
    this.choose(0);
  }

  /** Make the path of another choice of the answer the green one. */
  choose(index) {
    const row = this.choices?.[index] && this.model.rowOf(this.choices[index].text);
    if (!row) return;
    this.good = this.model.pathTo(row);
    this.picked = this.good;
    this.ensure(this.good);
    this.slide(row.place, false);
  }

  /** Show the state of the search at a step, the nearest one that was told. */
  show(t) {
    this.flush(Infinity);
    const place = this.model.columns.findLastIndex((column) => column.t <= t);
    this.slide(Math.max(0, place));
  }

  soon() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.flush(FRAME_MS);
      if (this.waiting.length) this.soon();
    });
  }

  flush(ms) {
    const ends = performance.now() + ms;
    while (this.waiting.length && performance.now() < ends) this.append(this.waiting.shift());
    if (this.following && !this.held) this.scroll.scrollLeft = this.plane.children.length * COLUMN_MAX;
  }

  append(column) {
    const above = this.drawn.at(-1) ?? null;
    const options = { rowsMax: Number(this.rowsChoice.value), byParent: this.orderChoice.value === "parent", needed: [this.good[column.place] ?? -1, this.picked[column.place] ?? -1] };
    const drawn = { column, ...slotsOf(column, above, options) };
    const frame = el("div", { class: "lattice-column", role: "group", "aria-label": `Step ${column.t}, ${plural(column.budget, "token")} left` });
    drawn.element = frame;
    this.drawn.push(drawn);
    this.fill(drawn, above);
    this.plane.append(frame);
    if (above) this.fade(above);
    this.slider.max = String(this.drawn.length - 1);
    if (this.following) this.follow(column.place);
    this.stop ??= this.focusable(drawn.element.querySelector(".beam"));
  }

  fill(drawn, above) {
    const { slots, hiddenRows, hiddenRefused, column, element } = drawn;
    const height = TOP + slots.length * (HEIGHT + SPACE) + 22;
    const more = [hiddenRows > 0 && `+${hiddenRows} rows`, hiddenRefused > 0 && `+${hiddenRefused} refused`].filter(Boolean).join(", ");
    const note = more ? el("p", { class: "lattice-more" }, more) : "";
    if (note) note.style.top = `${height - 20}px`;
    element.style.minHeight = `${height}px`;
    drawn.nodes = slots.map((item, order) => nodeOf(item, order, this.furthest, this.kinds));
    element.replaceChildren(headOf(column, this.kinds.pushes), linesOf(slots, above, height), ...drawn.nodes, note);
    this.paint(drawn);
  }

  /** Nodes of a column that have no child in the next one stand back. */
  fade({ slots, nodes }) {
    slots.forEach((item, order) => nodes[order].classList.toggle("pruned", this.isPruned(item)));
  }

  isPruned(item) {
    return item.kind === "row" && !item.children && !item.finished && item.place < this.model.columns.length - 1;
  }

  /** See to it that a path's rows are drawn, whatever their rank. */
  ensure(path) {
    path.forEach((index, place) => {
      const drawn = this.drawn[place];
      if (!drawn || index < 0 || drawn.slots.some((slot) => slot.kind === "row" && slot.index === index)) return;
      drawn.slots.push(drawn.column.rows[index]);
      drawn.hiddenRows -= 1;
      this.fill(drawn, this.drawn[place - 1] ?? null);
      this.fade(drawn);
      const next = this.drawn[place + 1];
      if (next) this.fill(next, drawn);
      if (next) this.fade(next);
    });
    this.stop = this.focusable(this.plane.querySelector('.beam[tabindex="0"]') ?? this.plane.querySelector(".beam"));
  }

  redraw() {
    this.flush(Infinity);
    this.drawn = [];
    this.plane.replaceChildren();
    this.stop = null;
    this.waiting = [...this.model.columns];
    const at = this.at;
    this.flush(FRAME_MS * 4);
    this.at = at;
    if (this.waiting.length) this.soon();
    this.drawn.forEach((drawn) => this.paint(drawn));
  }

  follow(place) {
    this.at = place;
    this.slider.value = String(place);
    this.caption();
    this.tellSelected();
  }

  slide(place, told = true) {
    const last = this.drawn.length - 1;
    this.at = Math.max(0, Math.min(last, place));
    if (last < 0) return;
    this.following = this.at === last && !this.container.classList.contains("is-done");
    this.slider.value = String(this.at);
    this.caption();
    this.drawn.forEach((drawn) => this.paint(drawn));
    this.reveal(this.at);
    this.tellSelected();
    const row = this.selected();
    if (row && told) this.onSelect(row, row.t);
  }

  caption() {
    const { column } = this.drawn[this.at];
    const words = `t ${column.t}, ${column.budget} left`;
    this.output.replaceChildren(words);
    this.slider.setAttribute("aria-valuetext", `step ${column.t}, ${plural(column.budget, "token")} left`);
  }

  /** The row that speaks for the present step: the selected path's, else the best. */
  selected() {
    const column = this.model.columns[this.at];
    return column?.rows[this.picked[this.at] ?? -1] ?? column?.rows[0] ?? null;
  }

  reveal(place) {
    const frame = this.drawn[place].element;
    const left = frame.offsetLeft - this.scroll.clientWidth + frame.offsetWidth + 60;
    const order = this.drawn[place].slots.findIndex((slot) => slot.kind === "row" && slot.index === this.selected()?.index);
    const y = TOP + Math.max(0, order) * (HEIGHT + SPACE);
    const top = Math.min(y - TOP, Math.max(this.scroll.scrollTop, y + HEIGHT + 30 - this.scroll.clientHeight));
    const seen = frame.offsetLeft >= this.scroll.scrollLeft && left <= this.scroll.scrollLeft + 60;
    this.scroll.scrollTo({ left: seen ? this.scroll.scrollLeft : Math.max(0, left), top: Math.max(0, top), behavior: calm() ? "auto" : "smooth" });
  }

  paint({ column, element, slots, nodes }) {
    const { place } = column;
    element.classList.toggle("now", place === this.at && !this.following);
    element.classList.toggle("future", place > this.at && !this.following);
    const good = this.good[place] ?? -1;
    const picked = this.picked[place] ?? -1;
    slots.forEach((item, order) => {
      const isRow = item.kind === "row";
      nodes[order].classList.toggle("chosen", isRow && item.index === good);
      nodes[order].classList.toggle("picked", isRow && item.index === picked && picked !== good);
      if (isRow) nodes[order].setAttribute("aria-pressed", String(item.index === picked));
    });
    for (const line of element.querySelectorAll(".line[data-row]")) {
      const index = Number(line.dataset.row);
      line.classList.toggle("chosen", index === good);
      line.classList.toggle("picked", index === picked && picked !== good);
    }
  }

  /** The row or refused token of a node. */
  itemOf(target) {
    const node = target.closest?.(".beam");
    const drawn = node && this.drawn.find((one) => one.element === node.parentElement);
    return drawn ? { node, drawn, item: drawn.slots[drawn.nodes.indexOf(node)] } : null;
  }

  chosenNode(target) {
    const found = this.itemOf(target);
    if (!found) return;
    this.focusable(found.node);
    if (found.item.kind === "refused") {
      this.tell(found.node);
      return;
    }
    const path = this.model.pathTo(found.item);
    const same = this.good.length > path.length && path.every((index, place) => index === this.good[place]);
    this.picked = same ? this.good : path;
    this.ensure(this.picked);
    this.slide(found.item.place);
  }

  tell(target) {
    const found = this.itemOf(target);
    if (!found) return;
    const { item, node } = found;
    if (item.kind === "row") this.tellRow(item);
    else this.tellRefused(item, node);
  }

  tellSelected() {
    const row = this.selected();
    if (row) this.tellRow(row);
  }

  tellRow(row) {
    this.card.replaceChildren(rowCard(row, this.kinds, this.fate(row), this.model.refusedAfter(row)));
  }

  fate(row) {
    if (row.index === this.good[row.place]) return "on the chosen path";
    if (row.finished) return "finished";
    return this.isPruned(row) ? "dropped at the next step" : "kept";
  }

  async tellRefused(token, node) {
    const prefix = this.model.prefix(token);
    const key = JSON.stringify([prefix, token.text]);
    const show = (broken) => this.card.replaceChildren(refusedCard(token, prefix, broken));
    this.shownRefused = key;
    if (token.reason !== "violates") return show(null);
    if (!this.explained.has(key)) this.explained.set(key, this.explain(prefix, token.text).catch(() => ""));
    show("…");
    const broken = await this.explained.get(key);
    if (broken) node.setAttribute("aria-label", `${node.getAttribute("aria-label").split(". ")[0]}. ${broken}`);
    if (this.shownRefused === key && this.card.querySelector(".refused")) show(broken || null);
  }

  focusable(node) {
    this.plane.querySelector('.beam[tabindex="0"]')?.setAttribute("tabindex", "-1");
    node?.setAttribute("tabindex", "0");
    return node;
  }

  key(event) {
    const found = this.itemOf(event.target);
    const next = found && this.neighbour(found, event.key);
    if (!next) return;
    event.preventDefault();
    this.focusable(next).focus();
  }

  neighbour({ drawn, item, node }, key) {
    const order = drawn.nodes.indexOf(node);
    const rowNode = (one, index) => one?.nodes[one.slots.findIndex((slot) => slot.kind === "row" && slot.index === index)];
    const before = this.drawn[drawn.column.place - 1];
    const after = this.drawn[drawn.column.place + 1];
    if (key === "ArrowUp") return drawn.nodes[order - 1];
    if (key === "ArrowDown") return drawn.nodes[order + 1];
    if (key === "ArrowLeft") return rowNode(before, item.parent);
    if (key === "ArrowRight" && item.kind === "row") return after?.nodes[after.slots.findIndex((slot) => slot.parent === item.index)];
    if (key === "Home") return this.drawn[0].nodes[0];
    if (key === "End") return this.drawn.at(-1).nodes[0];
    return undefined;
  }
}
