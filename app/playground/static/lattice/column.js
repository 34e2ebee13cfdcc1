// One column of the lattice: the rows to draw, their positions, nodes and lines.

import { reasonText, shortReason } from "./card.js";
import { distanceClass, el, formatFigure, plural, svg, tokenName } from "../viewkit.js";

export const GAP = 34; // between two columns
export const HEIGHT = 40;
export const SPACE = 6;
export const TOP = 54; // height of the column's head
const REJECTED_MAX = 6;
const REJECTED_PER_PARENT = 2; // number drawn; the card of the parent lists all

/** The items of a column in order: the best rows and the required ones, by parent or by score. */
export function slotsOf(column, previous, { rowsMax, byParent, requiredRows }) {
  const rows = column.rows.filter((row) => row.index < rowsMax);
  const orderOfParent = new Map((previous?.slots ?? []).map((slot, order) => [slot.kind === "row" ? slot.index : -1, order]));
  const orderOf = (item) => orderOfParent.get(item.parent) ?? Infinity;
  const rejected = bestRejected(column.rejected.filter((token) => column.columnIndex === 0 || orderOfParent.has(token.parent)));
  let slots = [...rows, ...rejected];
  if (byParent) slots = slots.map((item, order) => ({ item, order })).sort((a, b) => compare(orderOf(a.item), orderOf(b.item)) || a.order - b.order).map(({ item }) => item);
  const extraRows = column.rows.filter((row) => row.index >= rowsMax && requiredRows.includes(row.index));
  return { slots: [...slots, ...extraRows], hiddenRows: column.rows.length - rows.length - extraRows.length, hiddenRejected: column.rejected.length - rejected.length };
}

/** The best rejected tokens, at most two of each parent. */
function bestRejected(rejected) {
  const counts = new Map();
  const ranked = [...rejected].sort((a, b) => b.before - a.before);
  const selected = ranked.filter((token) => {
    counts.set(token.parent, (counts.get(token.parent) ?? 0) + 1);
    return counts.get(token.parent) <= REJECTED_PER_PARENT;
  });
  return selected.slice(0, REJECTED_MAX);
}

function compare(a, b) {
  return a === b ? 0 : a < b ? -1 : 1;
}

export function middleY(order) {
  return TOP + order * (HEIGHT + SPACE) + HEIGHT / 2;
}

/** The head of a column: the step, the remaining budget, the push-up. */
export function headOf(column, pushes) {
  const alphas = column.rows.filter((row) => !row.carried).map((row) => row.alpha);
  const [min, max] = [Math.min(...alphas), Math.max(...alphas)];
  const alpha = !pushes || !alphas.length ? null : formatFigure(min, 2) === formatFigure(max, 2) ? `α ${formatFigure(max, 2)}` : `α ${formatFigure(min, 2)}–${formatFigure(max, 2)}`;
  const t = column.skipped ? `t ${column.t - column.skipped}–${column.t}` : `t ${column.t}`;
  return el("div", { class: "lattice-head" }, el("strong", {}, t), el("span", {}, `${column.budget} left`), alpha && el("span", { class: "alpha" }, alpha));
}

/** A node for a row or a rejected token. */
export function nodeOf(item, order, maxDistance, traits) {
  const node = item.kind === "row" ? rowNode(item, maxDistance, traits) : rejectedNode(item);
  node.style.top = `${TOP + order * (HEIGHT + SPACE)}px`;
  return node;
}

function rowNode(row, maxDistance, traits) {
  const name = row.carried ? "ended" : row.finished && row.token === "" ? "■ end" : tokenName(row.token);
  const after = formatFigure(row.score);
  const scores = formatFigure(row.before) === after || traits.logProbOnly ? after : `${formatFigure(row.before)} → ${after}`;
  return el("button", {
    type: "button", class: `beam ${row.finished ? "ended" : ""}`, tabindex: "-1",
    "aria-label": rowLabel(row, name, traits), "data-row": row.index,
  },
  line(el("span", { class: "beam-token" }, name), el("span", { class: `beam-state ${distanceClass(row.distance, maxDistance)}` }, `q${row.state} d${row.distance}`)),
  line(el("span", { class: "beam-score" }, scores), el("span", { class: "beam-rank" }, `#${row.index + 1}`)));
}

function line(...parts) {
  return el("span", { class: "beam-line" }, ...parts);
}

function rowLabel(row, name, traits) {
  const left = row.finished ? "finished" : `${plural(row.distance, "token")} to the end`;
  const scores = traits.logProbOnly ? `log-prob ${formatFigure(row.log_prob)}` : `${traits.word} ${formatFigure(row.before)} before, ${formatFigure(row.score)} after`;
  return `${name}, beam ${row.index + 1} at step ${row.t}, ${scores}, state q${row.state}, ${left}`;
}

function rejectedNode(token) {
  const name = tokenName(token.text);
  return el("button", {
    type: "button", class: "beam rejected", tabindex: "-1", "data-rejected": token.index,
    "aria-label": `rejected at step ${token.t}: ${name}, log-prob ${formatFigure(token.log_prob)}; ${reasonText(token)}`,
  },
  line(el("span", { class: "beam-token" }, name), el("span", { class: "beam-why" }, shortReason(token))),
  line(el("span", { class: "beam-score" }, `${formatFigure(token.before)} → −∞`), el("span", { class: "beam-rank" }, "✗")));
}

/** The lines from the previous column; a row whose parent is not drawn gets a stub. */
export function linesOf(slots, previous, height) {
  const orderOfParent = new Map((previous?.slots ?? []).map((slot, order) => [slot.kind === "row" ? slot.index : -1, order]));
  const lines = svg("svg", { class: "lattice-lines", width: GAP, height, "aria-hidden": "true", focusable: "false" });
  slots.forEach((item, order) => {
    const y = middleY(order);
    const origin = previous === null ? TOP + HEIGHT / 2 : orderOfParent.has(item.parent) ? middleY(orderOfParent.get(item.parent)) : null;
    const path = origin === null ? `M${GAP - 12} ${y}H${GAP}` : `M0 ${origin}C${GAP / 2} ${origin} ${GAP / 2} ${y} ${GAP} ${y}`;
    const kind = item.kind === "rejected" ? "rejected" : origin === null ? "stub" : "kept";
    lines.append(svg("path", { d: path, class: `line ${kind}`, [item.kind === "row" ? "data-row" : "data-rejected"]: item.index }));
  });
  return lines;
}
