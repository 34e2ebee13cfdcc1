// Tabs: one tab stop, arrow keys between the tabs, and panels of which one is shown.

/** The tab that a key leads to from `current`, or undefined. */
export function tabByKey(key, names, current) {
  const at = names.indexOf(current);
  const last = names.length - 1;
  return {
    ArrowRight: names[at === last ? 0 : at + 1], ArrowLeft: names[at === 0 ? last : at - 1], Home: names[0], End: names[last],
  }[key];
}

/** Marks a tab as selected or not. */
export function markTab(tab, isSelected) {
  tab.setAttribute("aria-selected", String(isSelected));
  tab.tabIndex = isSelected ? 0 : -1;
}

/** The tabs of a list in the page; each names its panel by `aria-controls`. */
export class Tabs {
  /** `onShow(id)` is called with the id of the panel after it appears. */
  constructor(list, onShow) {
    this.tabs = new Map([...list.querySelectorAll("[role=tab]")].map((tab) => [tab.getAttribute("aria-controls"), tab]));
    this.onShow = onShow;
    for (const [id, tab] of this.tabs) tab.addEventListener("click", () => this.show(id));
    list.addEventListener("keydown", (event) => {
      const id = tabByKey(event.key, [...this.tabs.keys()], this.shown);
      if (!id) return;
      event.preventDefault();
      this.show(id);
      this.tabs.get(id).focus();
    });
    this.show([...this.tabs.keys()][0]);
  }

  /** Shows the panel with this id. */
  show(id) {
    this.shown = id;
    for (const [name, tab] of this.tabs) {
      markTab(tab, name === id);
      document.getElementById(name).hidden = name !== id;
    }
    this.onShow(id);
  }
}
