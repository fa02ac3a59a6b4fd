// Dark or light: the system's choice, or that of the button `theme`, which is remembered.

export function stored(store, name, fallback) {
  try { return JSON.parse(store.getItem(name)) ?? fallback; } catch { return fallback; }
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

document.getElementById("theme").addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", JSON.stringify(next));
});

const theme = stored(localStorage, "theme", null);
if (theme) document.documentElement.dataset.theme = theme;
