// The beam lattice of the paper's figure 3: columns are steps, rows are beams. It grows with the stream; a drawn column is
// drawn again only if it, or the column before it, gets another row.

import { rejectedCard, rowCard } from "./card.js";
import { HEIGHT, SPACE, TOP, headOf, linesOf, nodeOf, slotsOf } from "./column.js";
import { LatticeModel, eventsOf } from "./model.js";
import { prefersReducedMotion, el, uniqueId, legend, plural } from "../viewkit.js";

const COLUMN_MAX = 200; // maximum width of a column in pixels
const FRAME_MS = 8; // drawing time between two frames, so that the page stays responsive
const ROWS = [8, 16, 64, 512];
const TREE_ROWS_MAX = 4; // up to this many beams are ordered by parent, as in the figure
const LEGEND = [
  ["swatch-chosen", "chosen"], ["swatch-selected", "selected"], ["swatch-rejected", "probable, but rejected"],
  ["swatch-pruned", "dropped"], ["swatch-ended", "finished"],
];
const ALGORITHMS = {
  abs: { word: "score", pushes: true }, banked: { word: "estimate", pushes: false }, sample: { word: "log-prob", pushes: false, logProbOnly: true },
};

export class LatticeView {
  constructor(container, { onSelect = () => {}, explain = async () => "" } = {}) {
    Object.assign(this, { container, onSelect, explain });
    this.explanations = new Map();
    this.build();
    this.reset({ algorithm: "banked", maxTokens: 0 });
  }

  build() {
    const button = (label, sign, by) => el("button", { type: "button", class: "tool", "aria-label": label, click: () => this.slide(Number(this.slider.value) + by) }, sign);
    const ids = { slider: uniqueId("step"), rows: uniqueId("rows"), order: uniqueId("order") };
    this.slider = el("input", { type: "range", min: "0", max: "0", value: "0", id: ids.slider, input: () => this.slide(Number(this.slider.value)) });
    this.output = el("output", { for: ids.slider, class: "lattice-at" });
    this.rowsSelect = el("select", { id: ids.rows, change: () => this.redraw() }, ...ROWS.map((count) => el("option", { value: count }, `best ${count}`)));
    this.orderSelect = el("select", { id: ids.order, change: () => this.reorder() }, el("option", { value: "parent" }, "by parent"), el("option", { value: "score" }, "by score"));
    this.tools = el("div", { class: "view-tools lattice-tools" },
      el("label", { for: ids.slider }, "Step"), button("One step back", "‹", -1), this.slider, button("One step on", "›", 1), this.output,
      el("label", { for: ids.rows }, "Rows"), this.rowsSelect, el("label", { for: ids.order, class: "out-of-sight" }, "Order of the rows"), this.orderSelect);
    const hint = uniqueId("keys");
    this.plane = el("div", { class: "lattice-plane" });
    this.scroll = el("div", { class: "lattice-scroll", tabindex: "0", role: "region", "aria-label": "Beam lattice: columns are steps, rows are beams", "aria-describedby": hint }, this.plane);
    this.card = el("div", { class: "lattice-card", "aria-live": "off" });
    this.container.classList.add("lattice-view");
    this.legend = legend("Marks of the lattice", LEGEND);
    this.container.replaceChildren(this.tools, this.scroll, this.legend, this.card,
      el("p", { class: "out-of-sight", id: hint }, "Tab enters the lattice. Arrow left goes to the parent, right to the best child, up and down within a step. Enter selects the path."));
    for (const name of ["wheel", "pointerdown", "keydown"]) this.scroll.addEventListener(name, () => { this.userScrolled = true; }, { passive: true });
    this.plane.addEventListener("click", (event) => this.selectNode(event.target));
    for (const name of ["pointerover", "focusin"]) this.plane.addEventListener(name, (event) => this.describe(event.target));
    this.plane.addEventListener("pointerleave", () => this.showSelected());
    this.plane.addEventListener("keydown", (event) => this.key(event));
  }

  reset({ algorithm, maxTokens }) {
    Object.assign(this, { algorithm, maxTokens, model: new LatticeModel(), columnViews: [], queue: [], maxDistance: 1 });
    this.traits = ALGORITHMS[algorithm] ?? ALGORITHMS.banked;
    this.answerPath = []; // the path of the selected answer, a row index per column
    this.selectedPath = []; // the path of the selected node
    this.currentIndex = -1;
    this.following = true;
    this.userScrolled = false; // no automatic scrolling after the user has scrolled
    this.tabStop = null;
    this.plane.replaceChildren();
    this.card.replaceChildren();
    this.container.classList.remove("is-done");
    for (const part of [this.tools, this.scroll, this.legend]) part.hidden = true;
  }

  reorder() {
    this.userOrdered = true;
    this.redraw();
  }

  /** Adds a `step` event. */
  step(event) {
    const column = this.model.add(event);
    if (!column) return;
    if (column.columnIndex === 0 && !this.userOrdered) this.orderSelect.value = column.rows.length <= TREE_ROWS_MAX ? "parent" : "score";
    this.maxDistance = Math.max(this.maxDistance, ...column.rows.map((row) => row.distance));
    this.queue.push(column);
    for (const part of [this.tools, this.scroll, this.legend]) part.hidden = false;
    this.scheduleFlush();
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
    this.answerPath = this.model.pathTo(row);
    this.selectedPath = this.answerPath;
    this.drawPath(this.answerPath);
    this.slide(row.columnIndex, false);
  }

  /** Shows the search at a step, or at the nearest received one before it. */
  show(t) {
    this.flush(Infinity);
    const columnIndex = this.model.columns.findLastIndex((column) => column.t <= t);
    this.slide(Math.max(0, columnIndex));
  }

  /** Scrolls to the shown step; called when a hidden lattice appears. */
  settle() {
    if (this.currentIndex >= 0 && !this.following) this.reveal(this.currentIndex);
  }

  scheduleFlush() {
    this.frameRequest ??= requestAnimationFrame(() => {
      this.frameRequest = null;
      this.flush(FRAME_MS);
      if (this.queue.length) this.scheduleFlush();
    });
  }

  flush(ms) {
    const ends = performance.now() + ms;
    while (this.queue.length && performance.now() < ends) this.append(this.queue.shift());
    if (this.following && !this.userScrolled) this.scroll.scrollLeft = this.plane.children.length * COLUMN_MAX;
  }

  append(column) {
    const previous = this.columnViews.at(-1) ?? null;
    const options = { rowsMax: Number(this.rowsSelect.value), byParent: this.orderSelect.value === "parent", requiredRows: [this.answerPath[column.columnIndex] ?? -1, this.selectedPath[column.columnIndex] ?? -1] };
    const view = { column, ...slotsOf(column, previous, options) };
    const frame = el("div", { class: "lattice-column", role: "group", "aria-label": `Step ${column.t}, ${plural(column.budget, "token")} left` });
    view.element = frame;
    this.columnViews.push(view);
    this.fill(view, previous);
    this.plane.append(frame);
    if (previous) this.fade(previous);
    this.slider.max = String(this.columnViews.length - 1);
    if (this.following) this.follow(column.columnIndex);
    this.tabStop ??= this.setTabStop(view.element.querySelector(".beam"));
  }

  fill(view, previous) {
    const { slots, hiddenRows, hiddenRejected, column, element } = view;
    const height = TOP + slots.length * (HEIGHT + SPACE) + 22;
    const more = [hiddenRows > 0 && `+${hiddenRows} rows`, hiddenRejected > 0 && `+${hiddenRejected} rejected`].filter(Boolean).join(", ");
    const note = more ? el("p", { class: "lattice-more" }, more) : "";
    if (note) note.style.top = `${height - 20}px`;
    element.style.minHeight = `${height}px`;
    view.nodes = slots.map((item, order) => nodeOf(item, order, this.maxDistance, this.traits));
    element.replaceChildren(headOf(column, this.traits.pushes), linesOf(slots, previous, height), ...view.nodes, note);
    this.paint(view);
  }

  /** Fades the nodes of a column that have no child in the next one. */
  fade({ slots, nodes }) {
    slots.forEach((item, order) => nodes[order].classList.toggle("pruned", this.isPruned(item)));
  }

  isPruned(item) {
    return item.kind === "row" && !item.children && !item.finished && item.columnIndex < this.model.columns.length - 1;
  }

  /** Draws the rows of a path, whatever their rank. */
  drawPath(path) {
    path.forEach((index, columnIndex) => {
      const view = this.columnViews[columnIndex];
      if (!view || index < 0 || view.slots.some((slot) => slot.kind === "row" && slot.index === index)) return;
      view.slots.push(view.column.rows[index]);
      view.hiddenRows -= 1;
      this.fill(view, this.columnViews[columnIndex - 1] ?? null);
      this.fade(view);
      const next = this.columnViews[columnIndex + 1];
      if (next) this.fill(next, view);
      if (next) this.fade(next);
    });
    this.tabStop = this.setTabStop(this.plane.querySelector('.beam[tabindex="0"]') ?? this.plane.querySelector(".beam"));
  }

  redraw() {
    this.flush(Infinity);
    this.columnViews = [];
    this.plane.replaceChildren();
    this.tabStop = null;
    this.queue = [...this.model.columns];
    const index = this.currentIndex;
    this.flush(FRAME_MS * 4);
    this.currentIndex = index;
    if (this.queue.length) this.scheduleFlush();
    this.columnViews.forEach((view) => this.paint(view));
  }

  follow(columnIndex) {
    this.currentIndex = columnIndex;
    this.slider.value = String(columnIndex);
    this.caption();
    this.showSelected();
  }

  slide(columnIndex, notify = true) {
    const last = this.columnViews.length - 1;
    this.currentIndex = Math.max(0, Math.min(last, columnIndex));
    if (last < 0) return;
    this.following = this.currentIndex === last && !this.container.classList.contains("is-done");
    this.slider.value = String(this.currentIndex);
    this.caption();
    this.columnViews.forEach((view) => this.paint(view));
    this.reveal(this.currentIndex);
    this.showSelected();
    const row = this.currentRow();
    if (row && notify) this.onSelect(row, row.t);
  }

  caption() {
    const { column } = this.columnViews[this.currentIndex];
    const words = `t ${column.t}, ${column.budget} left`;
    this.output.replaceChildren(words);
    this.slider.setAttribute("aria-valuetext", `step ${column.t}, ${plural(column.budget, "token")} left`);
  }

  /** The row shown below the lattice: the current one of the selected path, else the best. */
  currentRow() {
    const column = this.model.columns[this.currentIndex];
    return column?.rows[this.selectedPath[this.currentIndex] ?? -1] ?? column?.rows[0] ?? null;
  }

  reveal(columnIndex) {
    const frame = this.columnViews[columnIndex].element;
    const left = frame.offsetLeft - this.scroll.clientWidth + frame.offsetWidth + 60;
    const order = this.columnViews[columnIndex].slots.findIndex((slot) => slot.kind === "row" && slot.index === this.currentRow()?.index);
    const y = TOP + Math.max(0, order) * (HEIGHT + SPACE);
    const top = Math.min(y - TOP, Math.max(this.scroll.scrollTop, y + HEIGHT + 30 - this.scroll.clientHeight));
    const isVisible = frame.offsetLeft >= this.scroll.scrollLeft && left <= this.scroll.scrollLeft + 60;
    this.scroll.scrollTo({ left: isVisible ? this.scroll.scrollLeft : Math.max(0, left), top: Math.max(0, top), behavior: prefersReducedMotion() ? "auto" : "smooth" });
  }

  paint({ column, element, slots, nodes }) {
    const { columnIndex } = column;
    element.classList.toggle("now", columnIndex === this.currentIndex && !this.following);
    element.classList.toggle("future", columnIndex > this.currentIndex && !this.following);
    const answerRow = this.answerPath[columnIndex] ?? -1;
    const selectedRow = this.selectedPath[columnIndex] ?? -1;
    slots.forEach((item, order) => {
      const isRow = item.kind === "row";
      nodes[order].classList.toggle("chosen", isRow && item.index === answerRow);
      nodes[order].classList.toggle("selected", isRow && item.index === selectedRow && selectedRow !== answerRow);
      if (isRow) nodes[order].setAttribute("aria-pressed", String(item.index === selectedRow));
    });
    for (const line of element.querySelectorAll(".line[data-row]")) {
      const index = Number(line.dataset.row);
      line.classList.toggle("chosen", index === answerRow);
      line.classList.toggle("selected", index === selectedRow && selectedRow !== answerRow);
    }
  }

  /** The row or rejected token of a node. */
  itemOf(target) {
    const node = target.closest?.(".beam");
    const view = node && this.columnViews.find((entry) => entry.element === node.parentElement);
    return view ? { node, view, item: view.slots[view.nodes.indexOf(node)] } : null;
  }

  selectNode(target) {
    const hit = this.itemOf(target);
    if (!hit) return;
    this.setTabStop(hit.node);
    if (hit.item.kind === "rejected") {
      this.describe(hit.node);
      return;
    }
    const path = this.model.pathTo(hit.item);
    const isAnswerPath = this.answerPath.length > path.length && path.every((index, columnIndex) => index === this.answerPath[columnIndex]);
    this.selectedPath = isAnswerPath ? this.answerPath : path;
    this.drawPath(this.selectedPath);
    this.slide(hit.item.columnIndex);
  }

  describe(target) {
    const hit = this.itemOf(target);
    if (!hit) return;
    const { item, node } = hit;
    if (item.kind === "row") this.showRow(item);
    else this.showRejected(item, node);
  }

  showSelected() {
    const row = this.currentRow();
    if (row) this.showRow(row);
  }

  showRow(row) {
    this.card.replaceChildren(rowCard(row, this.traits, this.statusOf(row), this.model.rejectedAfter(row)));
  }

  statusOf(row) {
    if (row.index === this.answerPath[row.columnIndex]) return "on the chosen path";
    if (row.finished) return "finished";
    return this.isPruned(row) ? "dropped at the next step" : "kept";
  }

  async showRejected(token, node) {
    const prefix = this.model.prefix(token);
    const key = JSON.stringify([prefix, token.text]);
    const show = (violation) => this.card.replaceChildren(rejectedCard(token, prefix, violation));
    this.shownToken = key;
    if (token.reason !== "violates") return show(null);
    if (!this.explanations.has(key)) this.explanations.set(key, this.explain(prefix, token.text).catch(() => ""));
    show("…");
    const violation = await this.explanations.get(key);
    if (violation) node.setAttribute("aria-label", `${node.getAttribute("aria-label").split(". ")[0]}. ${violation}`);
    if (this.shownToken === key && this.card.querySelector(".rejected")) show(violation || null);
  }

  setTabStop(node) {
    this.plane.querySelector('.beam[tabindex="0"]')?.setAttribute("tabindex", "-1");
    node?.setAttribute("tabindex", "0");
    return node;
  }

  key(event) {
    const hit = this.itemOf(event.target);
    const next = hit && this.neighbour(hit, event.key);
    if (!next) return;
    event.preventDefault();
    this.setTabStop(next).focus();
  }

  neighbour({ view, item, node }, key) {
    const order = view.nodes.indexOf(node);
    const rowNode = (entry, index) => entry?.nodes[entry.slots.findIndex((slot) => slot.kind === "row" && slot.index === index)];
    const before = this.columnViews[view.column.columnIndex - 1];
    const after = this.columnViews[view.column.columnIndex + 1];
    if (key === "ArrowUp") return view.nodes[order - 1];
    if (key === "ArrowDown") return view.nodes[order + 1];
    if (key === "ArrowLeft") return rowNode(before, item.parent);
    if (key === "ArrowRight" && item.kind === "row") return after?.nodes[after.slots.findIndex((slot) => slot.parent === item.index)];
    if (key === "Home") return this.columnViews[0].nodes[0];
    if (key === "End") return this.columnViews.at(-1).nodes[0];
    return undefined;
  }
}
