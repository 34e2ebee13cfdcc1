// What the constraint means: read back in words, with texts that it accepts.

import { RequestError, askJson } from "./api.js";
import { byId, el, formatNumber } from "./dom.js";

const SENTENCES_MAX = 8;

export class Meaning {
  /** `onExample(text)` is called when a text is selected. */
  constructor(container, onExample) {
    Object.assign(this, { container, onExample });
  }

  hide() { byId("meaning").hidden = true; }

  /** Explains a compiled constraint; the explanation is optional, so a rejected request shows none. */
  async explain(constraint, compilation, signal) {
    try {
      const { explanation } = await askJson("POST", "/compile", { body: { constraint, explain: true }, signal });
      if (!signal.aborted && explanation) this.#render(explanation, compilation);
    } catch (error) {
      if (!signal.aborted && !(error instanceof RequestError)) throw error;
    }
  }

  #render({ sentences, shortest, samples }, { compile_ms, cached }) {
    const texts = [...(shortest === null ? [] : [["shortest", shortest]]), ...samples.map((sample) => ["sample", sample])];
    this.container.replaceChildren(
      el("p", { class: "read-back" }, sentences[0]),
      el("ul", { class: "samples", "aria-label": "Texts that are accepted" }, ...texts.map(([kind, text]) => this.#example(kind, text))),
      el("details", {}, el("summary", {}, "More"),
        ...sentences.slice(1, SENTENCES_MAX).map((text) => el("p", {}, text)),
        el("p", {}, `Compiled in ${formatNumber(compile_ms, 1)} ms${cached ? ", cached" : ""}.`)));
    byId("meaning").hidden = false;
  }

  #example(kind, text) {
    return el("li", {},
      el("button", { type: "button", class: "sample", title: "Put it into the checker", click: () => this.onExample(text) },
        el("span", { class: "soft small" }, kind), " ", el("span", { class: "mono" }, text || "(the empty text)")));
  }
}
