// The step events of a search as a tree: columns are steps, rows are the texts of a step.

/** The growing tree. After a missed step the parent of a text is found by its prefix. */
export class LatticeModel {
  constructor() {
    this.columns = [];
  }

  get last() {
    return this.columns.at(-1) ?? null;
  }

  /** Adds a step event; returns its column, or null if it has nothing new. */
  add(event) {
    const before = this.last;
    if (before && event.step <= before.t) return null;
    if (!event.rows.length && !(event.rejected_tokens ?? []).length) return null; // the search is over
    const columnIndex = this.columns.length;
    const next = event.step === (before?.t ?? 0) + 1;
    const texts = new Map((before?.rows ?? []).map((row, index) => [row.text, index]));
    const parentOf = (row) => (before ? findParent(before.rows, texts, row, next) : -1);
    const rows = event.rows.map((row, index) => this.row(row, index, before, parentOf(row), event, columnIndex));
    for (const row of rows) if (row.parent >= 0) before.rows[row.parent].children += 1;
    const rejected = (event.rejected_tokens ?? []).map((token, index) => ({
      ...token, kind: "rejected", index, columnIndex, t: event.step, budget: event.budget_after,
      parent: next && before && before.rows[token.parent] ? token.parent : -1,
      before: (next && before?.rows[token.parent] ? before.rows[token.parent].score : 0) + token.log_prob,
    }));
    const column = { t: event.step, skipped: event.step - (before?.t ?? 0) - 1, budget: event.budget_after, rows, rejected, columnIndex };
    this.columns.push(column);
    return column;
  }

  row(row, index, before, parent, event, columnIndex) {
    const parentRow = parent >= 0 ? before.rows[parent] : { text: "", score: 0, log_prob: 0, finished: false };
    const tokenLogProb = row.log_prob - parentRow.log_prob;
    return {
      ...row, kind: "row", index, columnIndex, t: event.step, budget: event.budget_after, parent, tokenLogProb, children: 0,
      token: row.text.startsWith(parentRow.text) ? row.text.slice(parentRow.text.length) : row.text,
      carried: parentRow.finished && row.finished && row.text === parentRow.text,
      before: parentRow.score + tokenLogProb,
    };
  }

  /** The tokens rejected after a row. */
  rejectedAfter(row) {
    return (this.columns[row.columnIndex + 1]?.rejected ?? []).filter((token) => token.parent === row.index);
  }

  /** The text before a rejected token. */
  prefix(rejected) {
    return rejected.parent >= 0 ? this.columns[rejected.columnIndex - 1].rows[rejected.parent].text : "";
  }

  /** The path to a row: a row index for each column up to its own, -1 if unknown. */
  pathTo(row) {
    const path = Array(row.columnIndex + 1).fill(-1);
    for (let at = row; at; at = at.parent >= 0 ? this.columns[at.columnIndex - 1].rows[at.parent] : null) path[at.columnIndex] = at.index;
    return path;
  }

  /** The row of an answer: the row that finished it, else the latest row that is a prefix of it. */
  rowOf(text) {
    const same = (rowText) => rowText === text || rowText === ` ${text}`;
    for (const { rows } of this.columns) {
      const finishedRow = rows.find((row) => row.finished && same(row.text));
      if (finishedRow) return finishedRow;
    }
    for (const { rows } of [...this.columns].reverse()) {
      const prefixRow = rows.find((row) => !row.finished && row.text && (text.startsWith(row.text) || ` ${text}`.startsWith(row.text)));
      if (prefixRow) return prefixRow;
    }
    return null;
  }
}

function findParent(rows, texts, row, next) {
  const parent = rows[row.parent];
  if (next && parent) return row.parent;
  for (let length = row.text.length; length >= 0; length -= 1) {
    const candidate = texts.get(row.text.slice(0, length));
    if (candidate !== undefined && (!rows[candidate].finished || row.finished)) return candidate;
  }
  return -1;
}

/** The step events of a trace, for an answer that arrived without them. */
export function eventsOf(choice, maxTokens) {
  let text = "";
  let logProb = 0;
  let score = 0;
  return choice.trace.map((step, columnIndex) => {
    text += step.text;
    logProb += step.log_prob;
    score += step.score;
    const row = { text, parent: 0, state: step.state, distance: step.distance, alpha: step.alpha, score, log_prob: logProb, finished: step.text === "" };
    return { step: columnIndex + 1, budget_after: maxTokens - columnIndex - 1, rows: [row] };
  });
}
