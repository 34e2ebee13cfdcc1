// Side by side: the same prompt without the constraint, and under it by both searches.

import { Refusal, askJson } from "../api.js";
import { el, pointsOf, shown } from "../dom.js";
import { marked } from "../explain.js";
import { sentence } from "../problems.js";
import { figure } from "../viewkit.js";

const ANYTHING = { regex: "[\\s\\S]*" };  // every text, so that the search differs in the constraint alone
const COLUMNS = [
  { title: "Without the constraint", note: "— the same search, free", of: () => ({ constraint: ANYTHING, algorithm: "banked" }) },
  { title: "abs", note: "— the paper's search", of: (constraint) => ({ constraint, algorithm: "abs" }) },
  { title: "banked", note: "— the most probable", of: (constraint) => ({ constraint, algorithm: "banked" }) },
];
const SHARED = ["max_tokens", "beams", "scope"];
const OWN = { abs: ["alpha_min", "gamma", "rank_by"], banked: ["length_penalty"] };

export class Comparison {
  /** `request()` gives {prompt, constraint, options}, or null where there is nothing to ask for. */
  constructor(place, button, request) {
    Object.assign(this, { place, button, request, control: null });
    button.addEventListener("click", () => this.run());
  }

  /** Ask for the three, one after the other so that the seconds can be compared. */
  async run() {
    const asked = await this.request();
    if (!asked) return;
    this.control?.abort();
    this.control = new AbortController();
    const { signal } = this.control;
    const columns = COLUMNS.map(({ title, note }) => {
      const body = el("div", { class: "compared-body", "aria-live": "polite" }, el("p", { class: "soft" }, "…"));
      return { body, element: el("section", { class: "compared" }, el("h3", {}, title, el("span", { class: "small" }, ` ${note}`)), body) };
    });
    this.place.replaceChildren(...columns.map((column) => column.element));
    this.button.disabled = true;
    for (const [number, { of }] of COLUMNS.entries()) {
      if (signal.aborted) break;
      columns[number].body.replaceChildren(...await this.#column(asked, of(asked.constraint), signal));
    }
    this.button.disabled = false;
  }

  async #column({ prompt, constraint, options }, own, signal) {
    const names = [...SHARED, ...OWN[own.algorithm]].filter((name) => options[name] !== undefined);
    const body = { prompt, ...Object.fromEntries(names.map((name) => [name, options[name]])), ...own };
    try {
      const answer = await askJson("POST", "/generate", { body, signal });
      const [choice] = answer.choices;
      const text = options.scope === "full" ? prompt + choice.text : choice.text;
      const check = await askJson("POST", "/check", { body: { constraint, text }, signal });
      return told(text, choice, check, answer);
    } catch (error) {
      if (!(error instanceof Refusal)) return [el("p", { class: "soft" }, "Stopped.")];
      return [el("p", { class: "bad" }, sentence(error.problem))];
    }
  }
}

function told(text, choice, check, { usage, timings }) {
  const early = !check.satisfied && check.violated_at >= pointsOf(text);
  const verdict = check.satisfied ? "✓ satisfies the constraint" : early ? "✗ ends before it satisfies" : "✗ breaks the constraint";
  return [
    el("p", { class: "compared-text" }, ...marked(text, check)),
    el("p", { class: check.satisfied ? "good" : "bad" }, verdict),
    el("p", { class: "soft small" },
      `log-prob ${figure(choice.log_prob, 2)} · ${shown(usage.completion_tokens)} tokens · ${figure(timings.decode_ms / 1000, 2)} s`),
  ];
}
