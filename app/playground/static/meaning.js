// What the constraint means: read back in words, with texts that it accepts and one near to them that it rejects.

import { RequestError, askJson } from "./api.js";
import { byId, el, formatNumber } from "./dom.js";

const SENTENCES_MAX = 8;
const SAMPLES_MAX = 2;
const TRIALS_MAX = 8;  // texts that are checked for a rejected one
const WORDS = /\s+/u;
const ALL_LETTERS = "The quick brown fox jumps over the lazy dog, twice: 1 2 3 4 5 6 7 8 9 0!";
const SHOWN_CHARS_MAX = 120;  // of a text

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
      if (signal.aborted || !explanation) return;
      this.#render(explanation, compilation);
      const rejected = await rejectedText(constraint, explanation, signal);
      if (rejected !== null && !signal.aborted) this.examples.append(this.#example("rejected", rejected));
    } catch (error) {
      if (!signal.aborted && !(error instanceof RequestError)) throw error;
    }
  }

  #render({ sentences, shortest, samples }, { compile_ms, cached }) {
    const texts = [...(shortest === null ? [] : [["shortest", shortest]]), ...samples.slice(0, SAMPLES_MAX).map((sample) => ["another", sample])];
    this.examples = el("ul", { class: "samples", "aria-label": "Texts that are accepted, and one that is rejected" }, ...texts.map(([kind, text]) => this.#example(kind, text)));
    this.container.replaceChildren(
      el("p", { class: "read-back" }, sentences[0]),
      this.examples,
      el("details", {}, el("summary", {}, "More"),
        ...sentences.slice(1, SENTENCES_MAX).map((text) => el("p", {}, text)),
        el("p", {}, `Compiled in ${formatNumber(compile_ms, 1)} ms${cached ? ", cached" : ""}.`)));
    byId("meaning").hidden = false;
  }

  #example(kind, text) {
    const shown = text.length > SHOWN_CHARS_MAX ? `${text.slice(0, SHOWN_CHARS_MAX - 1)}…` : text;
    return el("li", {},
      el("button", { type: "button", class: "sample", title: "Put it into the checker", click: () => this.onExample(text) },
        el("span", { class: kind === "rejected" ? "bad small" : "soft small" }, kind), " ", el("span", { class: "mono" }, shown || "(the empty text)")));
  }
}

/** A text that the constraint rejects and that differs little from one that it accepts; null if none is found. */
async function rejectedText(constraint, explanation, signal) {
  for (const text of nearTexts(explanation)) {
    const { satisfied } = await askJson("POST", "/check", { body: { constraint, text }, signal });
    if (!satisfied) return text;
  }
  return null;
}

/**
 * Texts near an accepted one: with one more proposition, a word less, two words exchanged, or a character less. Then
 * texts that are not near, for constraints that accept all of those: all propositions, all letters, and many words.
 */
function nearTexts({ shortest, samples, letters }) {
  const text = [shortest, ...samples].find(Boolean) ?? "";
  const words = text.split(WORDS).filter(Boolean);
  const without = (index) => words.filter((_, other) => other !== index).join(" ");
  const exchanged = (index) => [...words.slice(0, index), words[index + 1], words[index], ...words.slice(index + 2)].join(" ");
  const names = letters.flatMap(({ holds }) => (holds?.length === 1 ? holds : []));
  const texts = [
    ...names.map((name) => `${text} ${name}`.trim()), ...(words.length > 1 ? [exchanged(words.length - 2)] : []),
    ...(words.length > 1 ? words.map((_, index) => without(words.length - 1 - index)) : []), text.slice(0, -1), "",
  ];
  const near = [...new Set(texts)].filter((other) => other !== text).slice(0, TRIALS_MAX);
  return [...near, names.join(" "), ALL_LETTERS, Array(10).fill(ALL_LETTERS).join(" ")];
}
