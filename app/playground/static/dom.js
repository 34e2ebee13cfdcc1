// Helpers of the page's modules: create, find and label elements; count characters.

import { el as element, freshId, plural } from "./viewkit.js";

export { freshId, plural };

const PROPERTIES = ["value", "checked", "disabled", "hidden", "open"];

/** An element as in viewkit; values of form fields are set as properties, and children may be lists or absent. */
export function el(tag, attributes = {}, ...children) {
  const attributePairs = Object.entries(attributes).filter(([name]) => !PROPERTIES.includes(name));
  const made = element(tag, Object.fromEntries(attributePairs), ...children.flat().filter((child) => child || child === ""));
  for (const name of PROPERTIES) if (name in attributes) made[name] = attributes[name];
  return made;
}

export const byId = (id) => document.getElementById(id);

/** A control below its label. */
export function labelled(text, control, attributes = {}) {
  control.id ||= freshId("control");
  return el("div", { class: "field", ...attributes }, el("label", { for: control.id }, text), control);
}

/** A check box before its label. */
export function ticked(text, change) {
  const box = el("input", { type: "checkbox", id: freshId("tick"), change });
  return { box, element: el("span", { class: "tick" }, box, el("label", { for: box.id }, text)) };
}

/** Debounces: calls `act` when `ms` have passed since the last call; `.off()` cancels. */
export function later(ms, act) {
  let timer = 0;
  const schedule = () => {
    clearTimeout(timer);
    timer = setTimeout(act, ms);
  };
  schedule.off = () => clearTimeout(timer);
  return schedule;
}

/** The UTF-16 offset of a character position of the service, which counts code points. */
export function unitsAt(text, points) {
  let units = 0;
  for (const character of text) {
    if (points-- <= 0) break;
    units += character.length;
  }
  return units;
}

/** The number of characters of a text, in code points as in the service. */
export const pointsOf = (text) => [...text].length;

/** A number with grouped digits. */
export const formatNumber = (value, digits = 2) => Number(value).toLocaleString("en-US", { maximumFractionDigits: digits });

/** Copies a text to the clipboard; without clipboard access it copies a selection. */
export async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = el("textarea", { class: "out-of-sight", "aria-hidden": "true", value: text });
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
