// The colour scheme that was chosen, before the first paint: this file alone is no module, so that it can run that early.
"use strict";
try {
  const chosen = localStorage.getItem("abs.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // a browser that keeps nothing follows the system
}
