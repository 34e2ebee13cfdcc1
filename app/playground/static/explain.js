// Which part of the constraint a token breaks that the model wanted and may not have, and where a text breaks it.

import { Refusal, askJson } from "./api.js";
import { el, pointsOf, unitsAt } from "./dom.js";
import { sentence } from "./problems.js";

const KEPT_MAX = 256;

/** The text as the constraint reads it: a model writes a space before its first word, which is no part of an answer. */
const answerOf = (written) => written.replace(/^ /, "");

/** Makes `explain(prefix, token)`, which promises a sentence. `constraint()` gives the one that was searched under. */
export function explainer(constraint) {
  const kept = new Map();
  return async (prefix, token) => {
    const asked = constraint();
    const name = JSON.stringify([asked, prefix, token]);
    if (!kept.has(name)) {
      if (kept.size >= KEPT_MAX) kept.delete(kept.keys().next().value);
      kept.set(name, why(asked, answerOf(prefix + token)));
    }
    try {
      return await kept.get(name);
    } catch (error) {
      kept.delete(name);
      if (error instanceof Refusal) return sentence(error.problem);
      throw error;
    }
  };
}

async function why(constraint, text) {
  const { parts } = await askJson("POST", "/check", { body: { constraint, text, parts: true } });
  const broken = parts.filter((part) => !part.satisfied && part.violated_at < pointsOf(text)).map((part) => `“${part.summary}”`);
  if (!broken.length) return "After this the parts of the constraint can no longer be met together.";
  const names = broken.length === 1 ? broken[0] : `${broken.slice(0, -1).join(", ")} and ${broken.at(-1)}`;
  return `After this ${names} can no longer be met.`;
}

/** A text with what follows its first fault marked; at its end a sign where it only ends too early. */
export function marked(text, answer) {
  if (answer.satisfied || answer.violated_at === null) return [text];
  const place = unitsAt(text, answer.violated_at);
  const rest = text.slice(place);
  return [text.slice(0, place), rest ? el("mark", { class: "broken" }, rest) : el("mark", { class: "early", title: "It ends too early" }, "…")];
}
