// The automaton of a constraint: drawn by Graphviz, coloured by distance, with the live states and the selected path
// marked. A large automaton is folded to a path, and a table lists all of it.

import {
  DRAWN_EDGES_MAX, DRAWN_STATES_MAX, READABLE_EDGES, READABLE_STATES, edgeLabel, visibleStates, pathEdges, toDot,
} from "./graph.js";
import { layout } from "./layout.js";
import { PanZoom } from "./panzoom.js";
import { distanceClass, distanceLegend, el, uniqueId, legend, plural, svg } from "../viewkit.js";

const TABLE_ROWS_MAX = 300;
const LEVELS_MAX = 4; // of neighbours around the path of a folded picture
const REDRAW_MS = 700; // minimum time between two pictures while a folded one follows a search

export class AutomatonView {
  constructor(container) {
    this.container = container;
    this.version = 0; // of the requested picture; an older layout is discarded
    this.drawLoop = null;
    this.build();
    this.clear();
  }

  build() {
    const button = (label, text, onClick) => el("button", { type: "button", class: "tool", "aria-label": label, title: label, click: onClick }, text);
    this.dead = el("input", { type: "checkbox", id: uniqueId("dead"), change: () => this.draw() });
    this.unfold = el("input", { type: "checkbox", id: uniqueId("all"), change: () => this.draw() });
    this.deadLabel = el("label", { for: this.dead.id }, this.dead, " dead states");
    this.unfoldLabel = el("label", { for: this.unfold.id }, this.unfold, " all states");
    this.levels = el("select", { id: uniqueId("levels"), change: () => this.draw() },
      ...Array.from({ length: LEVELS_MAX + 1 }, (_, level) => el("option", { value: level }, level === 0 ? "the path alone" : plural(level, "level"))));
    this.levelsLabel = el("label", { for: this.levels.id }, "around it ", this.levels);
    this.search = el("input", { type: "search", id: uniqueId("find"), placeholder: "q12", size: 6, autocomplete: "off", input: () => this.find(this.search.value) });
    this.searchLabel = el("label", { for: this.search.id }, "find a state ", this.search);
    this.tools = el("div", { class: "view-tools" },
      button("Zoom in", "+", () => this.zoom?.zoom(1.25)), button("Zoom out", "−", () => this.zoom?.zoom(0.8)),
      button("Fit the whole picture", "⤢", () => this.zoom?.fit()), this.deadLabel, this.unfoldLabel, this.levelsLabel, this.searchLabel);
    const hint = uniqueId("keys");
    this.frame = el("div", { class: "automaton-frame", tabindex: "0", role: "group", "aria-label": "Picture of the automaton", "aria-describedby": hint });
    this.hint = el("p", { class: "out-of-sight", id: hint }, "Arrow keys move the picture, plus and minus zoom, zero fits it. The same is in the table below.");
    this.info = el("p", { class: "automaton-info", "aria-live": "off" });
    this.summary = el("p", { class: "automaton-summary" });
    this.legendContainer = el("div", { class: "legend-place" });
    this.tableContainer = el("div");
    this.container.classList.add("automaton-view");
    this.container.replaceChildren(this.summary, this.tools, this.frame, this.hint, this.legendContainer, this.tableContainer);
    for (const name of ["pointerover", "focusin"]) this.frame.addEventListener(name, (event) => this.showInfo(event.target));
    for (const name of ["pointerleave", "focusout"]) this.frame.addEventListener(name, () => this.showInfo(null));
  }

  clear() {
    this.version += 1; // discards a layout in progress
    this.automaton = null;
    this.live = new Set();
    this.textPath = [];
    this.texts = [];
    this.trail = [];
    this.found = null;
    this.clearPicture();
    for (const part of [this.summary, this.info, this.legendContainer, this.tableContainer]) part.replaceChildren();
    this.tools.hidden = true;
    this.frame.hidden = true;
  }

  clearPicture() {
    this.zoom?.end();
    this.zoom = null;
    this.edges = new Map();
    this.visible = new Set();
    this.frame.replaceChildren(this.info);
  }

  /** Shows an automaton as returned by GET /automata/{hash}. */
  async show(automaton) {
    this.clear();
    this.automaton = automaton;
    const live = automaton.states.filter((state) => state.distance !== null);
    this.maxDistance = Math.max(1, ...live.map((state) => state.distance));
    const edges = automaton.transitions.filter((edge) => automaton.states[edge.to].distance !== null && automaton.states[edge.from].distance !== null);
    this.foldable = live.length > READABLE_STATES || edges.length > READABLE_EDGES;
    this.drawable = live.length <= DRAWN_STATES_MAX && edges.length <= DRAWN_EDGES_MAX;
    this.counts = { live: live.length, dead: automaton.states.length - live.length };
    this.deadLabel.hidden = this.counts.dead === 0;
    this.unfoldLabel.hidden = !(this.foldable && this.drawable);
    this.dead.checked = false;
    this.unfold.checked = false;
    this.levels.value = "1";
    this.search.value = "";
    this.searchLabel.hidden = live.length <= 1;
    this.tools.hidden = false;
    this.frame.hidden = false;
    this.tableContainer.replaceChildren(automatonTable(automaton));
    await this.draw();
  }

  get folded() {
    return this.foldable && !this.unfold.checked;
  }

  /** Draws the current picture. One layout runs at a time; afterwards only the latest requested one starts. */
  draw() {
    this.version += 1;
    this.drawLoop ??= Promise.resolve().then(() => this.drawLatest());
    return this.drawLoop;
  }

  async drawLatest() {
    try {
      for (let version = null; version !== this.version && this.automaton;) {
        version = this.version;
        await this.drawVersion(version);
      }
    } finally {
      this.drawLoop = null;
    }
  }

  async drawVersion(current) {
    const automaton = this.automaton;
    const trail = this.textPath.length ? this.textPath : this.trail;
    this.levelsLabel.hidden = !this.folded;
    const options = { dead: this.dead.checked, folded: this.folded, trail, levels: Number(this.levels.value), found: this.found };
    const visible = visibleStates(automaton, options);
    const steps = this.folded ? pathEdges(visible, trail, this.textPath.length ? this.texts : []) : [];
    const { dot, edges } = toDot(automaton, visible, this.maxDistance, distanceClass, steps);
    this.frame.setAttribute("aria-busy", "true");
    this.drawTime = performance.now();
    try {
      const text = await layout(dot);
      if (current !== this.version) return;
      this.clearPicture();
      Object.assign(this, { visible, edges });
      this.insert(text);
    } catch (error) {
      if (current !== this.version) return;
      this.clearPicture();
      this.frame.prepend(el("p", { class: "view-note" }, `No picture: ${error.message}. The table below has all of it.`));
    }
    this.frame.removeAttribute("aria-busy");
    this.describe();
  }

  /** Copies Graphviz's SVG into the page: only shapes, texts and our classes. */
  insert(text) {
    const parsed = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    const picture = document.importNode(parsed, true);
    for (const title of picture.querySelectorAll("title")) title.remove();
    for (const element of [picture, ...picture.querySelectorAll("[style]")]) element.removeAttribute("style");
    picture.removeAttribute("width");
    picture.removeAttribute("height");
    picture.setAttribute("class", "automaton-picture");
    for (const [name, edge] of this.edges) {
      const element = picture.querySelector(`[id="${name}"]`);
      element?.prepend(svg("title", {}, this.edgeWords(edge)));
      if (element && edge.collapsed) Object.entries({ tabindex: "0", role: "img", "aria-label": this.edgeWords(edge) }).forEach(([key, value]) => element.setAttribute(key, value));
    }
    for (const id of this.visible) picture.querySelector(`[id="state-${id}"]`)?.prepend(svg("title", {}, this.stateWords(id)));
    this.picture = picture;
    this.frame.replaceChildren(picture, this.info);
    this.zoom = new PanZoom(this.frame, picture);
    this.paint();
    this.settle();
  }

  /** Shows the whole picture, or the part around a live state; called again when a hidden picture appears. */
  settle() {
    if (!this.zoom || !this.frame.clientWidth) return;
    const first = this.found ?? [...this.live].find((id) => this.visible.has(id)) ?? this.textPath.at(-1) ?? this.automaton.start;
    this.zoom.settle(...this.positionOf(first));
  }

  /** The position of a state in user units of the picture. */
  positionOf(id) {
    const circle = this.picture?.querySelector(`[id="state-${id}"] ellipse`);
    const matrix = this.picture?.querySelector("g.graph")?.transform.baseVal.consolidate()?.matrix;
    if (!circle) return [0, 0];
    return [circle.cx.baseVal.value + (matrix?.e ?? 0), circle.cy.baseVal.value + (matrix?.f ?? 0)];
  }

  stateWords(id) {
    const { distance, accepting } = this.automaton.states[id];
    const start = id === this.automaton.start ? ", the start" : "";
    if (distance === null) return `q${id}${start}: dead, no text can be finished from here`;
    return `q${id}${start}: at least ${plural(distance, "token")} to the end${accepting ? "; the text may end here" : ""}`;
  }

  edgeWords(edge) {
    return `q${edge.from} → q${edge.to}: ${edge.full}`;
  }

  /** Shows the state with this number, with or without a "q" before it; a folded picture is drawn around it. */
  find(text) {
    const id = Number(/^\s*q?(\d+)\s*$/i.exec(text)?.[1] ?? NaN);
    const before = this.found;
    this.found = this.automaton?.states[id] ? id : null;
    this.search.setAttribute("aria-invalid", String(text.trim() !== "" && this.found === null));
    if (this.found !== null && this.visible.has(this.found)) this.settle();
    else if (this.found !== before) this.draw();
    this.paint();
    this.info.replaceChildren(this.found === null ? "" : this.stateWords(this.found));
  }

  /** Marks the states of a search's texts, the best first; `trail` has the path of the best one. */
  mark(states, trail = null) {
    if (!this.automaton) return;
    const liveStates = states.filter((id) => this.automaton.states[id]);
    this.live = new Set(liveStates);
    if (trail) this.trail = trail.filter((id) => this.automaton.states[id]);
    if (this.folded && !this.textPath.length && liveStates.length && !this.visible.has(liveStates[0]) && performance.now() - this.drawTime > REDRAW_MS) this.draw();
    this.paint();
    const first = liveStates.find((id) => this.visible.has(id));
    if (this.zoom && first !== undefined && this.frame.classList.contains("zoomed")) this.zoom.reach(...this.positionOf(first));
    this.describe();
  }

  /** Marks the states along a text; `texts` has the text of each step. */
  path(states, texts = []) {
    if (!this.automaton) return;
    this.textPath = states.filter((id) => this.automaton.states[id]);
    this.texts = texts;
    if (this.folded && this.textPath.some((id) => !this.visible.has(id))) this.draw();
    this.paint();
    this.describe();
  }

  paint() {
    if (!this.picture) return;
    const edgeNames = new Set(this.textPath.slice(1).map((id, index) => `edge-${this.textPath[index]}-${id}`));
    const onPath = new Set([...this.textPath, ...(this.textPath.length ? [this.automaton.start] : [])]);
    for (const id of this.visible) {
      const classes = this.picture.querySelector(`[id="state-${id}"]`)?.classList;
      classes?.toggle("live", this.live.has(id));
      classes?.toggle("on-path", onPath.has(id));
      classes?.toggle("found", id === this.found);
    }
    for (const name of this.edges.keys()) this.picture.querySelector(`[id="${name}"]`)?.classList.toggle("on-path", edgeNames.has(name));
  }

  describe() {
    if (!this.automaton) return;
    const { live, dead } = this.counts;
    const parts = [`${plural(live + dead, "state")}${dead ? `, ${dead} of them dead` : ""}; the shortest answer takes ${plural(this.automaton.min_tokens, "token")}.`];
    if (this.folded) {
      const left = live - [...this.visible].filter((id) => this.automaton.states[id].distance !== null).length;
      const around = this.found !== null ? `a path to q${this.found}` : this.textPath.length ? "the path of the text" : this.trail.length ? "the path of the best text so far" : "a shortest path";
      parts.push(`Too many to read, so drawn is ${around} and its neighbours; ${plural(left, "more state")} folded away.`);
    }
    const hidden = [...this.live].filter((id) => !this.visible.has(id));
    if (hidden.length) parts.push(`Live, but not drawn: ${hidden.slice(0, 5).map((id) => `q${id}`).join(", ")}${hidden.length > 5 ? " and others" : ""}.`);
    this.summary.replaceChildren(parts.join(" "));
    const distances = this.automaton.states.map((state) => state.distance);
    const marks = [["swatch-accepting", "the text may end here"], ["swatch-live", "live now"], ["swatch-path", "the text's path"]];
    if (dead && this.dead.checked) marks.push(["dead", "dead"]);
    this.legendContainer.replaceChildren(legend("Colours of states", [...distanceLegend(distances).map(([name, words]) => [name, `d ${words}`]), ...marks]));
  }

  showInfo(target) {
    const group = target?.closest?.("[id^=edge-], [id^=state-]");
    const words = !group ? (this.found === null ? "" : this.stateWords(this.found)) : group.id.startsWith("edge") ? this.edgeWords(this.edges.get(group.id)) : this.stateWords(Number(group.id.slice(6)));
    this.info.replaceChildren(words);
  }
}

/** A closed <details> element whose table is built when it is first opened. */
function automatonTable(automaton) {
  const details = el("details", { class: "automaton-table" }, el("summary", {}, "States and transitions as a table"));
  details.addEventListener("toggle", () => details.open && details.append(tableElement(automaton)), { once: true });
  return details;
}

function tableElement(automaton) {
  const edgesFrom = new Map(automaton.states.map((state) => [state.id, []]));
  for (const edge of automaton.transitions) edgesFrom.get(edge.from).push(edge);
  const head = ["state", "tokens to the end", "may end", "leads to"].map((name) => el("th", { scope: "col" }, name));
  const rows = automaton.states.slice(0, TABLE_ROWS_MAX).map((state) => row(automaton, state, edgesFrom.get(state.id)));
  const more = automaton.states.length - rows.length;
  return el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "States and transitions" },
    el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)),
    more > 0 ? el("p", { class: "view-note" }, `${plural(more, "more state")}: GET /automata/${automaton.automaton} has all of them.`) : null);
}

function row(automaton, state, edges) {
  const isLive = (edge) => automaton.states[edge.to].distance !== null;
  const items = edges.filter(isLive).map((edge) => el("li", {}, `${edgeLabel(automaton, edge.letters).full} → q${edge.to}`));
  const deadCount = edges.length - items.length;
  if (deadCount && state.distance !== null) items.push(el("li", { class: "muted" }, "all else → dead"));
  return el("tr", {},
    el("th", { scope: "row" }, `q${state.id}${state.id === automaton.start ? " (start)" : ""}`),
    el("td", {}, state.distance === null ? "dead" : String(state.distance)),
    el("td", {}, state.accepting ? "yes" : "no"),
    el("td", {}, items.length ? el("ul", {}, ...items) : "–"));
}
