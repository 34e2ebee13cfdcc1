// The beam lattice of the paper's figure 3: columns are steps, rows are beams. It grows with the stream; a drawn column is
// not drawn again, except for the lines into a column that gets another row.

import { refusedCard, rowCard } from "./card.js";
import { HEIGHT, SPACE, TOP, headOf, linesOf, nodeOf, slotsOf } from "./column.js";
import { LatticeModel, eventsOf } from "./model.js";
import { calm, el, freshId, legend, plural } from "../viewkit.js";

const COLUMN_MAX = 200; // maximum width of a column in pixels
const FRAME_MS = 8; // drawing time between two frames, so that the page stays responsive
const ROWS = [8, 16, 64, 512];
const TREE_ROWS_MAX = 4; // up to this many beams are ordered by parent, as in the figure
const LEGEND = [
  ["swatch-chosen", "chosen"], ["swatch-picked", "selected"], ["swatch-refused", "wanted, but refused"],
  ["swatch-pruned", "dropped"], ["swatch-ended", "finished"],
];
const KINDS = {
  abs: { word: "score", pushes: true }, banked: { word: "estimate", pushes: false }, sample: { word: "log-prob", pushes: false, logProbOnly: true },
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
    for (const name of ["wheel", "pointerdown", "keydown"]) this.scroll.addEventListener(name, () => { this.userScrolled = true; }, { passive: true });
    this.plane.addEventListener("click", (event) => this.chosenNode(event.target));
    for (const name of ["pointerover", "focusin"]) this.plane.addEventListener(name, (event) => this.describe(event.target));
    this.plane.addEventListener("pointerleave", () => this.tellSelected());
    this.plane.addEventListener("keydown", (event) => this.key(event));
  }

  reset({ algorithm, maxTokens }) {
    Object.assign(this, { algorithm, maxTokens, model: new LatticeModel(), drawn: [], waiting: [], furthest: 1 });
    this.kinds = KINDS[algorithm] ?? KINDS.banked;
    this.good = []; // the path of the selected answer, a row index per column
    this.picked = []; // the path of the selected node
    this.at = -1;
    this.following = true;
    this.userScrolled = false; // no automatic scrolling after the user has scrolled
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

  /** Adds a `step` event. */
  step(event) {
    const column = this.model.add(event);
    if (!column) return;
    if (column.columnIndex === 0 && !this.ordered) this.orderChoice.value = column.rows.length <= TREE_ROWS_MAX ? "parent" : "score";
    this.furthest = Math.max(this.furthest, ...column.rows.map((row) => row.distance));
    this.waiting.push(column);
    for (const part of [this.tools, this.scroll, this.legend]) part.hidden = false;
    this.soon();
  }

  /** Marks the path of the first choice of the answer. */
  done(response) {
    const choice = response.choices[0];
    if (choice && !this.model.last && choice.trace) eventsOf(choice, this.maxTokens).forEach((event) => this.step(event));
    this.flush(Infinity);
    this.container.classList.add("is-done");
    this.choices = response.choices;
    this.choose(0);
  }

  /** Marks the path of another choice. */
  choose(index) {
    const row = this.choices?.[index] && this.model.rowOf(this.choices[index].text);
    if (!row) return;
    this.good = this.model.pathTo(row);
    this.picked = this.good;
    this.ensure(this.good);
    this.slide(row.columnIndex, false);
  }

  /** Shows the search at a step, or at the nearest received one before it. */
  show(t) {
    this.flush(Infinity);
    const columnIndex = this.model.columns.findLastIndex((column) => column.t <= t);
    this.slide(Math.max(0, columnIndex));
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
    if (this.following && !this.userScrolled) this.scroll.scrollLeft = this.plane.children.length * COLUMN_MAX;
  }

  append(column) {
    const above = this.drawn.at(-1) ?? null;
    const options = { rowsMax: Number(this.rowsChoice.value), byParent: this.orderChoice.value === "parent", needed: [this.good[column.columnIndex] ?? -1, this.picked[column.columnIndex] ?? -1] };
    const drawn = { column, ...slotsOf(column, above, options) };
    const frame = el("div", { class: "lattice-column", role: "group", "aria-label": `Step ${column.t}, ${plural(column.budget, "token")} left` });
    drawn.element = frame;
    this.drawn.push(drawn);
    this.fill(drawn, above);
    this.plane.append(frame);
    if (above) this.fade(above);
    this.slider.max = String(this.drawn.length - 1);
    if (this.following) this.follow(column.columnIndex);
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

  /** Fades the nodes of a column that have no child in the next one. */
  fade({ slots, nodes }) {
    slots.forEach((item, order) => nodes[order].classList.toggle("pruned", this.isPruned(item)));
  }

  isPruned(item) {
    return item.kind === "row" && !item.children && !item.finished && item.columnIndex < this.model.columns.length - 1;
  }

  /** Draws the rows of a path, whatever their rank. */
  ensure(path) {
    path.forEach((index, columnIndex) => {
      const drawn = this.drawn[columnIndex];
      if (!drawn || index < 0 || drawn.slots.some((slot) => slot.kind === "row" && slot.index === index)) return;
      drawn.slots.push(drawn.column.rows[index]);
      drawn.hiddenRows -= 1;
      this.fill(drawn, this.drawn[columnIndex - 1] ?? null);
      this.fade(drawn);
      const next = this.drawn[columnIndex + 1];
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

  follow(columnIndex) {
    this.at = columnIndex;
    this.slider.value = String(columnIndex);
    this.caption();
    this.tellSelected();
  }

  slide(columnIndex, notify = true) {
    const last = this.drawn.length - 1;
    this.at = Math.max(0, Math.min(last, columnIndex));
    if (last < 0) return;
    this.following = this.at === last && !this.container.classList.contains("is-done");
    this.slider.value = String(this.at);
    this.caption();
    this.drawn.forEach((drawn) => this.paint(drawn));
    this.reveal(this.at);
    this.tellSelected();
    const row = this.selected();
    if (row && notify) this.onSelect(row, row.t);
  }

  caption() {
    const { column } = this.drawn[this.at];
    const words = `t ${column.t}, ${column.budget} left`;
    this.output.replaceChildren(words);
    this.slider.setAttribute("aria-valuetext", `step ${column.t}, ${plural(column.budget, "token")} left`);
  }

  /** The row that is described at the current step: of the selected path, else the best. */
  selected() {
    const column = this.model.columns[this.at];
    return column?.rows[this.picked[this.at] ?? -1] ?? column?.rows[0] ?? null;
  }

  reveal(columnIndex) {
    const frame = this.drawn[columnIndex].element;
    const left = frame.offsetLeft - this.scroll.clientWidth + frame.offsetWidth + 60;
    const order = this.drawn[columnIndex].slots.findIndex((slot) => slot.kind === "row" && slot.index === this.selected()?.index);
    const y = TOP + Math.max(0, order) * (HEIGHT + SPACE);
    const top = Math.min(y - TOP, Math.max(this.scroll.scrollTop, y + HEIGHT + 30 - this.scroll.clientHeight));
    const seen = frame.offsetLeft >= this.scroll.scrollLeft && left <= this.scroll.scrollLeft + 60;
    this.scroll.scrollTo({ left: seen ? this.scroll.scrollLeft : Math.max(0, left), top: Math.max(0, top), behavior: calm() ? "auto" : "smooth" });
  }

  paint({ column, element, slots, nodes }) {
    const { columnIndex } = column;
    element.classList.toggle("now", columnIndex === this.at && !this.following);
    element.classList.toggle("future", columnIndex > this.at && !this.following);
    const good = this.good[columnIndex] ?? -1;
    const picked = this.picked[columnIndex] ?? -1;
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

  /** The row or rejected token of a node. */
  itemOf(target) {
    const node = target.closest?.(".beam");
    const drawn = node && this.drawn.find((entry) => entry.element === node.parentElement);
    return drawn ? { node, drawn, item: drawn.slots[drawn.nodes.indexOf(node)] } : null;
  }

  chosenNode(target) {
    const hit = this.itemOf(target);
    if (!hit) return;
    this.focusable(hit.node);
    if (hit.item.kind === "refused") {
      this.describe(hit.node);
      return;
    }
    const path = this.model.pathTo(hit.item);
    const same = this.good.length > path.length && path.every((index, columnIndex) => index === this.good[columnIndex]);
    this.picked = same ? this.good : path;
    this.ensure(this.picked);
    this.slide(hit.item.columnIndex);
  }

  describe(target) {
    const hit = this.itemOf(target);
    if (!hit) return;
    const { item, node } = hit;
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
    if (row.index === this.good[row.columnIndex]) return "on the chosen path";
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
    const hit = this.itemOf(event.target);
    const next = hit && this.neighbour(hit, event.key);
    if (!next) return;
    event.preventDefault();
    this.focusable(next).focus();
  }

  neighbour({ drawn, item, node }, key) {
    const order = drawn.nodes.indexOf(node);
    const rowNode = (entry, index) => entry?.nodes[entry.slots.findIndex((slot) => slot.kind === "row" && slot.index === index)];
    const before = this.drawn[drawn.column.columnIndex - 1];
    const after = this.drawn[drawn.column.columnIndex + 1];
    if (key === "ArrowUp") return drawn.nodes[order - 1];
    if (key === "ArrowDown") return drawn.nodes[order + 1];
    if (key === "ArrowLeft") return rowNode(before, item.parent);
    if (key === "ArrowRight" && item.kind === "row") return after?.nodes[after.slots.findIndex((slot) => slot.parent === item.index)];
    if (key === "Home") return this.drawn[0].nodes[0];
    if (key === "End") return this.drawn.at(-1).nodes[0];
    return undefined;
  }
}
