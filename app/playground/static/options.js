// How to generate: the fields of a request beside prompt and constraint, those of the chosen algorithm alone.

import { el, freshId, labelled } from "./dom.js";

const SEARCHES = ["banked", "abs"];
const SCOPES = [["answer", "the answer"], ["full", "prompt and answer"]];
const RANKS = [["log_prob", "log-probability"], ["score", "score with the push"]];
export const DEFAULTS = {
  max_tokens: 24, algorithm: "banked", beams: 8, n: 3, length_penalty: 0.5, alpha_min: 0.5, gamma: 1, rank_by: "log_prob",
  temperature: 1, top_p: 1, seed: null, scope: "answer",
};
const whole = (least, most) => ({ type: "number", min: least, max: most, step: 1, inputmode: "numeric" });
const real = (least, most, step) => ({ type: "number", min: least, max: most, step, inputmode: "decimal" });
const FIELDS = [  // name, label, input, the algorithms that use it
  ["max_tokens", "max_tokens", whole(1), null],
  ["algorithm", "algorithm", [["banked", "banked: most probable"], ["abs", "abs: the paper's"], ["sample", "sample"]], null],
  ["beams", "beams", whole(1), SEARCHES],
  ["n", "answers", whole(1, 3), null],
  ["length_penalty", "length_penalty", real(0, 2, 0.1), ["banked"]],
  ["alpha_min", "alpha_min", real(0, 1, 0.05), ["abs"]],
  ["gamma", "gamma", real(0.01, 100, 0.1), ["abs"]],
  ["rank_by", "rank_by", RANKS, ["abs"]],
  ["temperature", "temperature", real(0, 100, 0.1), ["sample"]],
  ["top_p", "top_p", real(0.01, 1, 0.05), ["sample"]],
  ["seed", "seed", { ...whole(0), placeholder: "drawn" }, ["sample"]],
  ["scope", "what satisfies", SCOPES, null],
];

export class Options {
  constructor(place, change) {
    this.summary = el("summary", {});
    this.controls = new Map();
    const grid = el("div", { class: "grid-fields" });
    for (const [name, label, input] of FIELDS) {
      const control = Array.isArray(input)
        ? el("select", {}, ...input.map(([value, text]) => el("option", { value }, text)))
        : el("input", input);
      control.id = freshId("option");
      control.addEventListener("input", () => (this.#fit(), change()));  // not `change`, which also comes as a click elsewhere begins
      this.controls.set(name, { control, row: labelled(label, control) });
      grid.append(this.controls.get(name).row);
    }
    place.append(this.summary, grid);
    this.place = place;
    this.write({});
  }

  /** The fields of POST /generate that the algorithm takes, whether they are in range or not: the service judges. */
  read() {
    const values = {};
    for (const [name, , input, users] of FIELDS) {
      if (users && !users.includes(this.#value("algorithm"))) continue;
      const value = Array.isArray(input) ? this.#value(name) : this.#number(name);
      if (value !== null) values[name] = value;
    }
    if (values.beams) values.n = Math.min(values.n, values.beams);
    return values;
  }

  write(given) {
    const values = { ...DEFAULTS, ...given };
    for (const [name, { control }] of this.controls) control.value = values[name] ?? "";
    this.#fit();
  }

  /** What differs from how the page begins. */
  changed() {
    return Object.fromEntries(Object.entries(this.read()).filter(([name, value]) => value !== DEFAULTS[name]));
  }

  set(name, value) {
    this.controls.get(name).control.value = value;
    this.#fit();
  }

  #value(name) { return this.controls.get(name).control.value; }

  #number(name) {
    const text = this.#value(name);
    return text === "" || Number.isNaN(Number(text)) ? DEFAULTS[name] : Number(text);
  }

  /** Show the fields that the algorithm uses, and what is chosen where they are folded away. */
  #fit() {
    const algorithm = this.#value("algorithm");
    for (const [name, , , users] of FIELDS) this.controls.get(name).row.hidden = Boolean(users) && !users.includes(algorithm);
    const told = [`${this.#value("max_tokens")} tokens`, algorithm];
    if (algorithm !== "sample") told.push(`${this.#value("beams")} beams`);
    this.summary.replaceChildren("Options", el("span", { class: "soft" }, ` ${told.join(" · ")}`));
  }
}
