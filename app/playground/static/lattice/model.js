// What the step events of a search say, linked into a tree: columns are steps, rows the texts that were kept.

/** The tree that grows. A reader may miss steps: then texts find their parents by what they begin with. */
export class LatticeModel {
  constructor() {
    this.columns = [];
  }

  get last() {
    return this.columns.at(-1) ?? null;
  }

  /** Take a step event; returns its column, or null where it tells nothing new. */
  add(event) {
    const before = this.last;
    if (before && event.step <= before.t) return null;
    if (!event.rows.length && !(event.rejected_tokens ?? []).length) return null; // the search is over
    const place = this.columns.length;
    const next = event.step === (before?.t ?? 0) + 1;
    const texts = new Map((before?.rows ?? []).map((row, index) => [row.text, index]));
    const parentOf = (row) => (before ? parentAmong(before.rows, texts, row, next) : -1);
    const rows = event.rows.map((row, index) => this.row(row, index, before, parentOf(row), event, place));
    for (const row of rows) if (row.parent >= 0) before.rows[row.parent].children += 1;
    const refused = (event.rejected_tokens ?? []).map((token, index) => ({
      ...token, kind: "refused", index, place, t: event.step, budget: event.budget_after,
      parent: next && before && before.rows[token.parent] ? token.parent : -1,
      before: (next && before?.rows[token.parent] ? before.rows[token.parent].score : 0) + token.log_prob,
    }));
    const column = { t: event.step, skipped: event.step - (before?.t ?? 0) - 1, budget: event.budget_after, rows, refused, place };
    this.columns.push(column);
    return column;
  }

  row(row, index, before, parent, event, place) {
    const above = parent >= 0 ? before.rows[parent] : { text: "", score: 0, log_prob: 0, finished: false };
    const own = row.log_prob - above.log_prob;
    return {
      ...row, kind: "row", index, place, t: event.step, budget: event.budget_after, parent, own, children: 0,
      token: row.text.startsWith(above.text) ? row.text.slice(above.text.length) : row.text,
      carried: above.finished && row.finished && row.text === above.text,
      before: above.score + own,
      orphan: parent < 0 && place > 0,
    };
  }

  /** What the model wanted after a row, and may not have. */
  refusedAfter(row) {
    return (this.columns[row.place + 1]?.refused ?? []).filter((token) => token.parent === row.index);
  }

  /** The text that a refused token would have gone on from. */
  prefix(refused) {
    return refused.parent >= 0 ? this.columns[refused.place - 1].rows[refused.parent].text : "";
  }

  /** The rows from the first step to this one: an index for each column up to its own, -1 where it is not known. */
  pathTo(row) {
    const path = Array(row.place + 1).fill(-1);
    for (let at = row; at; at = at.parent >= 0 ? this.columns[at.place - 1].rows[at.parent] : null) path[at.place] = at.index;
    return path;
  }

  /** The row whose text an answer is: the one that finished it, else the latest that it begins with. */
  rowOf(text) {
    const same = (written) => written === text || written === ` ${text}`;
    for (const { rows } of this.columns) {
      const ended = rows.find((row) => row.finished && same(row.text));
      if (ended) return ended;
    }
    for (const { rows } of [...this.columns].reverse()) {
      const begun = rows.find((row) => !row.finished && row.text && (text.startsWith(row.text) || ` ${text}`.startsWith(row.text)));
      if (begun) return begun;
    }
    return null;
  }
}

function parentAmong(rows, texts, row, next) {
  const named = rows[row.parent];
  if (next && named) return row.parent;
  for (let length = row.text.length; length >= 0; length -= 1) {
    const found = texts.get(row.text.slice(0, length));
    if (found !== undefined && (!rows[found].finished || row.finished)) return found;
  }
  return -1;
}

/** The step events that a trace would have been told by, for an answer that came without them. */
export function eventsOf(choice, maxTokens) {
  let text = "";
  let logProb = 0;
  let score = 0;
  return choice.trace.map((step, place) => {
    text += step.text;
    logProb += step.log_prob;
    score += step.score;
    const row = { text, parent: 0, state: step.state, distance: step.distance, alpha: step.alpha, score, log_prob: logProb, finished: step.text === "" };
    return { step: place + 1, budget_after: maxTokens - place - 1, rows: [row] };
  });
}
