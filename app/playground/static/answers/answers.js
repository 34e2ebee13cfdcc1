// The list of a generation's answers, one of which is selected.

import { el, freshId } from "../dom.js";
import { figure, tokenName } from "../viewkit.js";

export class Answers {
  /** `choose(choice, number)` is called for the first answer at once, then for each selected one. */
  constructor(container, choose) {
    Object.assign(this, { container, choose });
  }

  clear() { this.container.replaceChildren(); }

  show(choices) {
    const spaced = choices.every((choice) => choice.text.startsWith(" "));  // a word constraint keeps the model's leading space
    const name = freshId("answer");
    const items = choices.map((choice, number) => {
      const id = freshId("choice");
      const radio = el("input", { type: "radio", name, id, checked: number === 0, change: () => this.choose(choice, number) });
      return el("li", {}, radio, el("label", { for: id },
        el("span", { class: "answer-text" }, choice.text ? tokenName(choice.text.slice(spaced ? 1 : 0)) : "(the empty text)"),
        el("span", { class: "soft small" }, `${choice.satisfied ? "✓ satisfied" : "✗ not satisfied"} · log-prob ${figure(choice.log_prob, 2)}`)));
    });
    this.container.replaceChildren(el("fieldset", {}, el("legend", { class: "out-of-sight" }, "Answers, best first"), el("ul", {}, ...items)));
    this.choose(choices[0], 0);
  }
}
