// The model of the page's requests. Where the service has several, they are chosen from a list.

import { el, plural } from "./dom.js";

const PATHS = ["/generate", "/compile", "/v1/completions"];  // of requests in which a model takes part
let cards = [];
let chosen = null;  // by name; null for the default, which requests need not name

/** The body of a request to a path, with the chosen model. */
export const withModel = (path, body) => (chosen && body && PATHS.includes(path) ? { model: chosen, ...body } : body);

/** The name of the chosen model; null for the default. */
export const chosenModel = () => chosen;

/** Chooses a model by name before `showModels` shows it; a name that is not served chooses the default then. */
export function preferModel(id) {
  chosen = id ?? null;
}

/** The names of the models that are not chosen. */
export const otherModels = () => cards.map((card) => card.id).filter((id) => id !== (chosen ?? cards[0].id));

/** Shows the models of /v1/models, and calls `onChoice(card)` for the first and for each that is chosen. */
export function showModels(container, served, onChoice) {
  cards = served;
  const kept = cards.find((card) => card.id === chosen) ?? cards[0];
  const context = el("span", {});
  const name = cards.length > 1 ? chooser((card) => select(card)) : el("span", {}, kept.id);
  const select = (card) => {
    chosen = card === cards[0] ? null : card.id;
    context.textContent = card.context_tokens ? `, reads ${plural(card.context_tokens, "token")}` : "";
    onChoice(card);
  };
  container.replaceChildren("model ", name, context);
  if (name.value !== undefined) name.value = kept.id;
  select(kept);
}

function chooser(select) {
  const list = el("select", { id: "model", "aria-label": "Model" }, ...cards.map(({ id }) => el("option", { value: id }, id)));
  list.addEventListener("change", () => select(cards.find((card) => card.id === list.value)));
  return list;
}
