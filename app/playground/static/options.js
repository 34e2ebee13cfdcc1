// The options of a generation; only those of the selected algorithm are shown.

import { el, uniqueId, labelField } from "./dom.js";

const SEARCHES = ["banked", "abs"];
const SCOPES = [["answer", "the answer"], ["full", "prompt and answer"]];
const RANKS = [["log_prob", "log-probability"], ["score", "score with the push"]];
export const DEFAULTS = {
  max_tokens: 24, algorithm: "banked", beams: 8, n: 3, length_penalty: 0.5, alpha_min: 0.5, gamma: 1, rank_by: "log_prob",
  temperature: 1, top_p: 1, seed: null, scope: "answer",
};
const integer = (min, max) => ({ type: "number", min, max, step: 1, inputmode: "numeric" });
const real = (min, max, step) => ({ type: "number", min, max, step, inputmode: "decimal" });
const FIELDS = [  // name, label, input, algorithms that use it (null: all)
  ["max_tokens", "max_tokens", integer(1), null],
  ["algorithm", "algorithm", [["banked", "banked: best score"], ["abs", "abs: the paper's"], ["sample", "sample"]], null],
  ["beams", "beams", integer(1), SEARCHES],
  ["n", "answers", integer(1, 3), null],
  ["length_penalty", "length_penalty", real(0, 2, 0.1), ["banked"]],
  ["alpha_min", "alpha_min", real(0, 1, 0.05), ["abs"]],
  ["gamma", "gamma", real(0.01, 100, 0.1), ["abs"]],
  ["rank_by", "rank_by", RANKS, ["abs"]],
  ["temperature", "temperature", real(0, 100, 0.1), ["sample"]],
  ["top_p", "top_p", real(0.01, 1, 0.05), ["sample"]],
  ["seed", "seed", { ...integer(0), placeholder: "drawn" }, ["sample"]],
  ["scope", "what satisfies", SCOPES, null],
];

/** The options that one algorithm alone uses. */
export function optionsOf(algorithm) {
  return FIELDS.filter(([, , , algorithms]) => algorithms?.length === 1 && algorithms[0] === algorithm).map(([name]) => name);
}

export class Options {
  /** `budget` is the element that holds max_tokens. */
  constructor(container, budget, change) {
    this.summary = el("summary", {});
    this.controls = new Map();
    const grid = el("div", { class: "grid-fields" });
    for (const [name, label, input] of FIELDS) {
      const control = Array.isArray(input)
        ? el("select", {}, ...input.map(([value, text]) => el("option", { value }, text)))
        : el("input", input);
      control.id = uniqueId("option");
      control.addEventListener("input", () => (this.#update(), this.change()));  // not `change`, which fires only on blur
      this.controls.set(name, { control, row: labelField(label, control) });
      (name === "max_tokens" ? budget : grid).append(this.controls.get(name).row);
    }
    container.append(this.summary, grid);
    this.change = change;
    this.write({});
  }

  /** The fields of POST /generate that the algorithm uses; the service checks their range. */
  read() {
    const values = {};
    for (const [name, , input, algorithms] of FIELDS) {
      if (algorithms && !algorithms.includes(this.#value("algorithm"))) continue;
      const value = Array.isArray(input) ? this.#value(name) : this.#number(name);
      if (value !== null) values[name] = value;
    }
    if (values.beams) values.n = Math.min(values.n, values.beams);
    return values;
  }

  write(values) {
    const all = { ...DEFAULTS, ...values };
    for (const [name, { control }] of this.controls) control.value = all[name] ?? "";
    this.#update();
  }

  /** The options that differ from the defaults of the page. */
  changes() {
    return Object.fromEntries(Object.entries(this.read()).filter(([name, value]) => value !== DEFAULTS[name]));
  }

  set(name, value) {
    this.controls.get(name).control.value = value;
    this.#update();
    this.change();
  }

  #value(name) { return this.controls.get(name).control.value; }

  #number(name) {
    const text = this.#value(name);
    return text === "" || Number.isNaN(Number(text)) ? DEFAULTS[name] : Number(text);
  }

  /** Shows the fields of the algorithm, and a summary of their values while they are folded. */
  #update() {
    const algorithm = this.#value("algorithm");
    for (const [name, , , algorithms] of FIELDS) this.controls.get(name).row.hidden = Boolean(algorithms) && !algorithms.includes(algorithm);
    const parts = [algorithm];
    if (algorithm !== "sample") parts.push(`${this.#value("beams")} beams`);
    this.summary.replaceChildren("Options", el("span", { class: "soft" }, ` ${parts.join(" · ")}`));
  }
}
