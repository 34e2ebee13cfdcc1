// Explains a rejected token by the conjunct it violates, and marks the first violation in a text.

import { RequestError, askJson } from "./api.js";
import { countCharacters, el, utf16Offset } from "./dom.js";
import { sentence } from "./problems.js";

const CACHE_MAX = 256;

/** The answer in a generated text: the model writes a space before its first word, which is not part of the answer. */
const withoutLeadingSpace = (text) => text.replace(/^ /, "");

/** Returns `explain(prefix, token)`, which resolves to a sentence. `constraint()` returns the constraint of the search. */
export function explainer(constraint) {
  const cache = new Map();
  return async (prefix, token) => {
    const current = constraint();
    const key = JSON.stringify([current, prefix, token]);
    if (!cache.has(key)) {
      if (cache.size >= CACHE_MAX) cache.delete(cache.keys().next().value);
      cache.set(key, explanationOf(current, withoutLeadingSpace(prefix + token)));
    }
    try {
      return await cache.get(key);
    } catch (error) {
      cache.delete(key);
      if (error instanceof RequestError) return sentence(error.problem);
      throw error;
    }
  };
}

async function explanationOf(constraint, text) {
  const { conjuncts } = await askJson("POST", "/check", { body: { constraint, text, conjuncts: true } });
  const violations = conjuncts.filter((part) => !part.satisfied && part.violated_at < countCharacters(text)).map((part) => `“${part.summary}”`);
  if (!violations.length) return "After this the parts of the constraint can no longer be met together.";
  const names = violations.length === 1 ? violations[0] : `${violations.slice(0, -1).join(", ")} and ${violations.at(-1)}`;
  return `After this ${names} can no longer be met.`;
}

/** A text with everything after its first violation marked; a text that ends too early gets a mark at its end. */
export function markViolation(text, answer) {
  if (answer.satisfied || answer.violated_at === null) return [text];
  const offset = utf16Offset(text, answer.violated_at);
  const remainder = text.slice(offset);
  return [text.slice(0, offset), remainder ? el("mark", { class: "broken" }, remainder) : el("mark", { class: "early", title: "It ends too early" }, "…")];
}
