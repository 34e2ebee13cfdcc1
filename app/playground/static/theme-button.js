// The button that cycles through the colour schemes: system, light, dark.

const NAMES = { "": "Auto", light: "Light", dark: "Dark" };
const NEXT = { "": "light", light: "dark", dark: "" };

export function startTheme(button) {
  const { dataset } = document.documentElement;
  const show = () => {
    const chosen = dataset.theme ?? "";
    button.textContent = `◐ ${NAMES[chosen]}`;
    button.setAttribute("aria-label", `Colours: ${NAMES[chosen]}. Change to ${NAMES[NEXT[chosen]]}`);
  };
  button.addEventListener("click", () => {
    const next = NEXT[dataset.theme ?? ""];
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
