// Why a token that the model wanted was refused: which conjunct can no longer be met, or how far it is from the end.

import { Refusal, askJson } from "./api.js";
import { el, pointsOf, unitsAt } from "./dom.js";
import { sentence } from "./problems.js";
import { told } from "./told.js";

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
  const answer = await askJson("POST", "/check", { body: { constraint, text, parts: true } });
  const dead = (one) => !one.satisfied && one.violated_at !== null && one.violated_at < pointsOf(text);
  const broken = (answer.parts ?? []).filter(dead).map((part) => `“${told(part.constraint)}”`);
  if (broken.length === 1) return `After this ${broken[0]} can no longer be met.`;
  if (broken.length) return `After this ${broken.slice(0, -1).join(", ")} and ${broken.at(-1)} can no longer be met.`;
  if (dead(answer)) return "After this the parts of the constraint cannot be met together.";
  const open = (answer.parts ?? []).filter((part) => !part.satisfied).map((part) => `“${told(part.constraint)}”`);
  return open.length ? `It could still be met, but not within the tokens left: ${open.join(", ")} ${open.length === 1 ? "is" : "are"} not satisfied yet.`
    : "The text could go on, but not within the tokens left.";
}

/** A text with what follows its first fault marked; at its end a sign where it only ends too early. */
export function marked(text, answer) {
  if (answer.satisfied || answer.violated_at === null) return [text];
  const place = unitsAt(text, answer.violated_at);
  const rest = text.slice(place);
  return [text.slice(0, place), rest ? el("mark", { class: "broken" }, rest) : el("mark", { class: "early", title: "It ends too early" }, "…")];
}
