// The few ways in which the shell's modules make, find and name parts of the page.

import { el as element, freshId, plural } from "./viewkit.js";

export { freshId, plural };

const PROPERTIES = ["value", "checked", "disabled", "hidden", "open"];

/** An element, as viewkit makes it; what a form holds is set as a property, and children may be lists or absent. */
export function el(tag, attributes = {}, ...children) {
  const plain = Object.entries(attributes).filter(([name]) => !PROPERTIES.includes(name));
  const made = element(tag, Object.fromEntries(plain), ...children.flat().filter((child) => child || child === ""));
  for (const name of PROPERTIES) if (name in attributes) made[name] = attributes[name];
  return made;
}

export const byId = (id) => document.getElementById(id);

/** A control with its label above it. */
export function labelled(text, control, attributes = {}) {
  control.id ||= freshId("control");
  return el("div", { class: "field", ...attributes }, el("label", { for: control.id }, text), control);
}

/** A check box with its label behind it. */
export function ticked(text, change) {
  const box = el("input", { type: "checkbox", id: freshId("tick"), change });
  return { box, element: el("span", { class: "tick" }, box, el("label", { for: box.id }, text)) };
}

/** Calls `act` once nothing has asked for it for `ms`; `.off()` forgets what was asked. */
export function later(ms, act) {
  let timer = 0;
  const asked = () => {
    clearTimeout(timer);
    timer = setTimeout(act, ms);
  };
  asked.off = () => clearTimeout(timer);
  return asked;
}

/** The place in a JavaScript string of a character that the service counts: it counts code points, not UTF-16 units. */
export function unitsAt(text, points) {
  let units = 0;
  for (const character of text) {
    if (points-- <= 0) break;
    units += character.length;
  }
  return units;
}

/** How many characters a text has, as the service counts them. */
export const pointsOf = (text) => [...text].length;

/** A number for people: digits in groups. */
export const shown = (value, digits = 2) => Number(value).toLocaleString("en-US", { maximumFractionDigits: digits });

/** Puts a text on the clipboard; where the browser has none for this page, by way of a selection. */
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
