// Explains a rejected token by the conjunct it violates, and marks the first violation in a text.

import { Refusal, askJson } from "./api.js";
import { el, pointsOf, unitsAt } from "./dom.js";
import { sentence } from "./problems.js";

const CACHE_MAX = 256;

/** The answer in a generated text: the model writes a space before its first word, which is not part of the answer. */
const answerOf = (written) => written.replace(/^ /, "");

/** Returns `explain(prefix, token)`, which resolves to a sentence. `constraint()` returns the constraint of the search. */
export function explainer(constraint) {
  const cache = new Map();
  return async (prefix, token) => {
    const current = constraint();
    const key = JSON.stringify([current, prefix, token]);
    if (!cache.has(key)) {
      if (cache.size >= CACHE_MAX) cache.delete(cache.keys().next().value);
      cache.set(key, why(current, answerOf(prefix + token)));
    }
    try {
      return await cache.get(key);
    } catch (error) {
      cache.delete(key);
      if (error instanceof Refusal) return sentence(error.problem);
      throw error;
    }
  };
}

async function why(constraint, text) {
  const { conjuncts } = await askJson("POST", "/check", { body: { constraint, text, conjuncts: true } });
  const broken = conjuncts.filter((part) => !part.satisfied && part.violated_at < pointsOf(text)).map((part) => `“${part.summary}”`);
  if (!broken.length) return "After this the parts of the constraint can no longer be met together.";
  const names = broken.length === 1 ? broken[0] : `${broken.slice(0, -1).join(", ")} and ${broken.at(-1)}`;
  return `After this ${names} can no longer be met.`;
}

/** A text with everything after its first violation marked; a text that ends too early gets a mark at its end. */
export function markFault(text, answer) {
  if (answer.satisfied || answer.violated_at === null) return [text];
  const offset = unitsAt(text, answer.violated_at);
  const remainder = text.slice(offset);
  return [text.slice(0, offset), remainder ? el("mark", { class: "broken" }, remainder) : el("mark", { class: "early", title: "It ends too early" }, "…")];
}
