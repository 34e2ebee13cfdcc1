// The few ways in which modules make and find parts of the page.

/** An element with attributes and children. `on...` are listeners; `class`, `for` and the rest attributes; false leaves one out. */
export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && ["value", "checked", "disabled", "hidden", "open"].includes(name)) made[name] = value;
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export const byId = (id) => document.getElementById(id);

let counted = 0;
/** A fresh id, by which labels and descriptions name a control. */
export const freshId = (stem) => `${stem}-${++counted}`;

/** Calls `act` once nothing has asked for it for `ms`. `.now()` does it at once, `.off()` not at all. */
export function later(ms, act) {
  let timer = 0;
  const asked = () => {
    clearTimeout(timer);
    timer = setTimeout(act, ms);
  };
  asked.now = () => (clearTimeout(timer), act());
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

/** Text for people: digits in groups, at most two behind the point. */
export const shown = (value, digits = 2) => Number(value).toLocaleString("en-US", { maximumFractionDigits: digits });

export const counted1 = (value, noun) => `${shown(value)} ${noun}${value === 1 ? "" : "s"}`;

/** Puts a text on the clipboard; where a browser has none for this page, by way of a selection. */
export async function copy(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const area = el("textarea", { class: "out-of-sight", value: text });
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
