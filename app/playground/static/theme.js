// Applies the stored colour scheme before the first paint: a classic script, because modules run later.
"use strict";
try {
  const chosen = localStorage.getItem("abs.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // without storage the page follows the system
}
