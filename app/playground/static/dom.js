// Helpers of the page's modules: create, find and label elements; count characters.

import { el as createElement, uniqueId, plural } from "./viewkit.js";

export { uniqueId, plural };

const PROPERTIES = ["value", "checked", "disabled", "hidden", "open"];

/** An element as in viewkit; values of form fields are set as properties, and children may be lists or absent. */
export function el(tag, attributes = {}, ...children) {
  const attributePairs = Object.entries(attributes).filter(([name]) => !PROPERTIES.includes(name));
  const element = createElement(tag, Object.fromEntries(attributePairs), ...children.flat().filter((child) => child || child === ""));
  for (const name of PROPERTIES) if (name in attributes) element[name] = attributes[name];
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A control below its label. */
export function labelField(text, control, attributes = {}) {
  control.id ||= uniqueId("control");
  return el("div", { class: "field", ...attributes }, el("label", { for: control.id }, text), control);
}

/** A check box before its label. */
export function checkBox(text, change) {
  const box = el("input", { type: "checkbox", id: uniqueId("tick"), change });
  return { box, element: el("span", { class: "tick" }, box, el("label", { for: box.id }, text)) };
}

/** Debounces: calls `action` when `ms` have passed since the last call; `.cancel()` cancels it. */
export function debounce(ms, action) {
  let timer = 0;
  const schedule = () => {
    clearTimeout(timer);
    timer = setTimeout(action, ms);
  };
  schedule.cancel = () => clearTimeout(timer);
  return schedule;
}

/** The UTF-16 offset of a character position of the service, which counts code points. */
export function utf16Offset(text, characters) {
  let units = 0;
  for (const character of text) {
    if (characters-- <= 0) break;
    units += character.length;
  }
  return units;
}

/** The number of characters of a text, in code points as in the service. */
export const countCharacters = (text) => [...text].length;

/** A number with grouped digits. */
export const formatNumber = (value, digits = 2) => Number(value).toLocaleString("en-US", { maximumFractionDigits: digits });

/** Copies a text to the clipboard; without clipboard access it copies a selection. */
export async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = el("textarea", { class: "out-of-sight", "aria-hidden": "true", value: text });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
