// Light and dark: TensorBoard does not tell its plugins, but its page is of the same origin.

const watchers = new Set();

export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function onTheme(changed) {
  watchers.add(changed);
  return () => watchers.delete(changed);
}

function isDark() {
  try {
    if (window.parent !== window) return window.parent.document.body.classList.contains("dark-mode");
  } catch {
    // A host of another origin tells nothing.
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

function apply() {
  const theme = isDark() ? "dark" : "light";
  if (document.documentElement.dataset.theme === theme) return;
  document.documentElement.dataset.theme = theme;
  for (const changed of [...watchers]) changed();
}

export function followTheme() {
  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  try {
    if (window.parent !== window) {
      new MutationObserver(apply).observe(window.parent.document.body, { attributes: true, attributeFilter: ["class"] });
    }
  } catch {
    // As above.
  }
}
