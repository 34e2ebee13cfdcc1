// One column of the lattice: the rows to draw, their positions, nodes and lines.

import { reasonWords, shortReason } from "./card.js";
import { distanceClass, el, figure, plural, svg, tokenName } from "../viewkit.js";

export const GAP = 34; // between two columns
export const HEIGHT = 40;
export const SPACE = 6;
export const TOP = 54; // height of the column's head
const REFUSED_MAX = 6;
const REFUSED_OF_ONE = 2; // rejected tokens drawn per parent; the card of the parent lists all

/** The items of a column in order: the best rows and the needed ones, by parent or by score. */
export function slotsOf(column, above, { rowsMax, byParent, needed }) {
  const rows = column.rows.filter((row) => row.index < rowsMax);
  const columnIndex = new Map((above?.slots ?? []).map((slot, order) => [slot.kind === "row" ? slot.index : -1, order]));
  const orderOf = (item) => columnIndex.get(item.parent) ?? Infinity;
  const refused = wantedMost(column.refused.filter((token) => column.columnIndex === 0 || columnIndex.has(token.parent)));
  let slots = [...rows, ...refused];
  if (byParent) slots = slots.map((item, order) => ({ item, order })).sort((a, b) => cmp(orderOf(a.item), orderOf(b.item)) || a.order - b.order).map(({ item }) => item);
  const late = column.rows.filter((row) => row.index >= rowsMax && needed.includes(row.index));
  return { slots: [...slots, ...late], hiddenRows: column.rows.length - rows.length - late.length, hiddenRefused: column.refused.length - refused.length };
}

/** The best rejected tokens, at most two of each parent. */
function wantedMost(refused) {
  const taken = new Map();
  const ranked = [...refused].sort((a, b) => b.before - a.before);
  const selected = ranked.filter((token) => {
    taken.set(token.parent, (taken.get(token.parent) ?? 0) + 1);
    return taken.get(token.parent) <= REFUSED_OF_ONE;
  });
  return selected.slice(0, REFUSED_MAX);
}

function cmp(a, b) {
  return a === b ? 0 : a < b ? -1 : 1;
}

export function middleOf(order) {
  return TOP + order * (HEIGHT + SPACE) + HEIGHT / 2;
}

/** The head of a column: the step, the remaining budget, the push-up. */
export function headOf(column, pushes) {
  const alphas = column.rows.filter((row) => !row.carried).map((row) => row.alpha);
  const [least, most] = [Math.min(...alphas), Math.max(...alphas)];
  const alpha = !pushes || !alphas.length ? null : figure(least, 2) === figure(most, 2) ? `α ${figure(most, 2)}` : `α ${figure(least, 2)}–${figure(most, 2)}`;
  const t = column.skipped ? `t ${column.t - column.skipped}–${column.t}` : `t ${column.t}`;
  return el("div", { class: "lattice-head" }, el("strong", {}, t), el("span", {}, `${column.budget} left`), alpha && el("span", { class: "alpha" }, alpha));
}

/** A node for a row or a rejected token. */
export function nodeOf(item, order, furthest, kinds) {
  const node = item.kind === "row" ? rowNode(item, furthest, kinds) : refusedNode(item);
  node.style.top = `${TOP + order * (HEIGHT + SPACE)}px`;
  return node;
}

function rowNode(row, furthest, kinds) {
  const ended = row.finished;
  const name = row.carried ? "ended" : ended && row.token === "" ? "■ end" : tokenName(row.token);
  const after = figure(row.score);
  const scores = figure(row.before) === after || kinds.logProbOnly ? after : `${figure(row.before)} → ${after}`;
  return el("button", {
    type: "button", class: `beam ${row.carried ? "carried" : ""} ${ended ? "ended" : ""}`, tabindex: "-1",
    "aria-label": rowWords(row, name, kinds), "data-row": row.index,
  },
  line(el("span", { class: "beam-token" }, name), el("span", { class: `beam-state ${distanceClass(row.distance, furthest)}` }, `q${row.state} d${row.distance}`)),
  line(el("span", { class: "beam-score" }, scores), el("span", { class: "beam-rank" }, `#${row.index + 1}`)));
}

function line(...parts) {
  return el("span", { class: "beam-line" }, ...parts);
}

function rowWords(row, name, kinds) {
  const left = row.finished ? "finished" : `${plural(row.distance, "token")} to the end`;
  const scores = kinds.logProbOnly ? `log-prob ${figure(row.log_prob)}` : `${kinds.word} ${figure(row.before)} before, ${figure(row.score)} after`;
  return `${name}, beam ${row.index + 1} at step ${row.t}, ${scores}, state q${row.state}, ${left}`;
}

function refusedNode(token) {
  const name = tokenName(token.text);
  return el("button", {
    type: "button", class: "beam refused", tabindex: "-1", "data-refused": token.index,
    "aria-label": `refused at step ${token.t}: ${name}, log-prob ${figure(token.log_prob)}; ${reasonWords(token)}`,
  },
  line(el("span", { class: "beam-token" }, name), el("span", { class: "beam-why" }, shortReason(token))),
  line(el("span", { class: "beam-score" }, `${figure(token.before)} → −∞`), el("span", { class: "beam-rank" }, "✗")));
}

/** The lines from the previous column; a row whose parent is not drawn gets a stub. */
export function linesOf(slots, above, height) {
  const from = new Map((above?.slots ?? []).map((slot, order) => [slot.kind === "row" ? slot.index : -1, order]));
  const lines = svg("svg", { class: "lattice-lines", width: GAP, height, "aria-hidden": "true", focusable: "false" });
  slots.forEach((item, order) => {
    const y = middleOf(order);
    const origin = above === null ? TOP + HEIGHT / 2 : from.has(item.parent) ? middleOf(from.get(item.parent)) : null;
    const path = origin === null ? `M${GAP - 12} ${y}H${GAP}` : `M0 ${origin}C${GAP / 2} ${origin} ${GAP / 2} ${y} ${GAP} ${y}`;
    const kind = item.kind === "refused" ? "refused" : origin === null ? "stub" : "kept";
    lines.append(svg("path", { d: path, class: `line ${kind}`, [item.kind === "row" ? "data-row" : "data-refused"]: item.index }));
  });
  return lines;
}
