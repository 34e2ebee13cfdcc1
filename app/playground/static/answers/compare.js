// Compares one prompt without the constraint, with it under both searches, and with it by each other model.

import { RequestError, askJson } from "../api.js";
import { el, countCharacters, formatNumber } from "../dom.js";
import { markViolation } from "../explain.js";
import { otherModels } from "../models.js";
import { sentence } from "../problems.js";
import { formatFigure } from "../viewkit.js";
import { optionsOf } from "../options.js";

const ANY_TEXT = { regex: "[\\s\\S]*" };  // accepts every text, so that only the constraint differs
const COLUMNS = [
  { title: "Without the constraint", note: "— the banked search alone", fields: () => ({ constraint: ANY_TEXT, algorithm: "banked" }) },
  { title: "abs", note: "— the paper's search", fields: (constraint) => ({ constraint, algorithm: "abs" }) },
  { title: "banked", note: "— best score", fields: (constraint) => ({ constraint, algorithm: "banked" }) },
];
const modelColumn = (model) => ({ title: model, note: "— another model", fields: (constraint) => ({ constraint, algorithm: "banked", model }) });
const SHARED = ["max_tokens", "beams", "scope"];

export class Comparison {
  /** `request()` returns {prompt, constraint, options}, or null if the constraint does not compile. */
  constructor(container, button, request) {
    Object.assign(this, { container, button, request, control: null });
    button.addEventListener("click", () => this.run());
  }

  /** Sends the requests one after another, so that their times can be compared. */
  async run() {
    const request = await this.request();
    if (!request) return;
    this.control?.abort();
    this.control = new AbortController();
    const { signal } = this.control;
    const compared = [...COLUMNS, ...otherModels().map(modelColumn)];
    const columns = compared.map(({ title, note }) => {
      const body = el("div", { class: "comparison-body", "aria-live": "polite" }, el("p", { class: "soft" }, "…"));
      return { body, element: el("section", { class: "comparison-column" }, el("h3", {}, title, el("span", { class: "small" }, ` ${note}`)), body) };
    });
    this.container.replaceChildren(...columns.map((column) => column.element));
    this.button.disabled = true;
    for (const [number, { fields }] of compared.entries()) {
      if (signal.aborted) break;
      columns[number].body.replaceChildren(...await this.#column(request, fields(request.constraint), signal));
    }
    this.button.disabled = false;
  }

  async #column({ prompt, constraint, options }, fields, signal) {
    const names = [...SHARED, ...optionsOf(fields.algorithm)].filter((name) => options[name] !== undefined);
    const body = { prompt, ...Object.fromEntries(names.map((name) => [name, options[name]])), ...fields };
    try {
      const answer = await askJson("POST", "/generate", { body, signal });
      const [choice] = answer.choices;
      const text = options.scope === "full" ? prompt + choice.text : choice.text;
      const check = await askJson("POST", "/check", { body: { constraint, text }, signal });
      return resultElements(text, choice, check, answer);
    } catch (error) {
      if (!(error instanceof RequestError)) return [el("p", { class: "soft" }, "Stopped.")];
      return [el("p", { class: "bad" }, sentence(error.problem))];
    }
  }
}

function resultElements(text, choice, check, { usage, timings }) {
  const early = !check.satisfied && check.violated_at >= countCharacters(text);
  const verdict = check.satisfied ? "✓ satisfies the constraint" : early ? "✗ ends before it satisfies" : "✗ breaks the constraint";
  return [
    el("p", { class: "comparison-text" }, ...markViolation(text, check)),
    el("p", { class: check.satisfied ? "good" : "bad" }, verdict),
    el("p", { class: "soft small" },
      `log-prob ${formatFigure(choice.log_prob, 2)} · ${formatNumber(usage.completion_tokens)} tokens · ${formatFigure(timings.decode_ms / 1000, 2)} s`),
  ];
}
