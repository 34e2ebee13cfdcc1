// The answers of a generation, as a list to choose from.

import { el, freshId } from "../dom.js";
import { figure, tokenName } from "../viewkit.js";

export class Answers {
  /** `choose(choice, number)` is called for the first answer at once, and for another when it is chosen. */
  constructor(place, choose) {
    Object.assign(this, { place, choose });
  }

  clear() { this.place.replaceChildren(); }

  show(choices) {
    const led = choices.every((choice) => choice.text.startsWith(" "));  // of a word constraint: the model's own first space
    const name = freshId("answer");
    const items = choices.map((choice, number) => {
      const id = freshId("choice");
      const radio = el("input", { type: "radio", name, id, checked: number === 0, change: () => this.choose(choice, number) });
      return el("li", {}, radio, el("label", { for: id },
        el("span", { class: "answer-text" }, choice.text ? tokenName(choice.text.slice(led ? 1 : 0)) : "(the empty text)"),
        el("span", { class: "soft small" }, `${choice.satisfied ? "✓ satisfied" : "✗ not satisfied"} · log-prob ${figure(choice.log_prob, 2)}`)));
    });
    this.place.replaceChildren(el("fieldset", {}, el("legend", { class: "out-of-sight" }, "Answers, best first"), el("ul", {}, ...items)));
    this.choose(choices[0], 0);
  }
}
