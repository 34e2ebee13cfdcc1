// The parts that all pages of the playground share: the button for the colours, and the form for a key.

import { isKey, onKeyNeeded, setKey } from "./api.js";
import { byId } from "./dom.js";

const THEME_NAMES = { "": "Auto", light: "Light", dark: "Dark" };
const NEXT_THEME = { "": "light", light: "dark", dark: "" };

/** Lets a button cycle through the colour schemes: system, light, dark. */
export function initThemeButton(button) {
  const { dataset } = document.documentElement;
  const show = () => {
    const theme = dataset.theme ?? "";
    button.textContent = `◐ ${THEME_NAMES[theme]}`;
    button.setAttribute("aria-label", `Colours: ${THEME_NAMES[theme]}. Change to ${THEME_NAMES[NEXT_THEME[theme]]}`);
  };
  button.addEventListener("click", () => {
    const next = NEXT_THEME[dataset.theme ?? ""];
    if (next) dataset.theme = next;
    else delete dataset.theme;
    try {
      if (next) localStorage.setItem("abs.theme", next);
      else localStorage.removeItem("abs.theme");
    } catch {
      // without storage the choice lasts for this page
    }
    show();
  });
  show();
}

/** Shows the form for a key when a request needs one. `onProblem(problem)` gets a text that is no key, `onKey()` follows. */
export function initKeyForm(onProblem, onKey) {
  onKeyNeeded(() => (byId("key-form").hidden = false));
  byId("key-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const key = byId("key").value.trim();
    if (!isKey(key)) return onProblem({ code: "unauthorized" });
    setKey(key);
    byId("key-form").hidden = true;
    byId("key").value = "";
    await onKey();
  });
}
