// Before anything is drawn, so that nothing flashes.
try {
  const chosen = localStorage.getItem("equipoise-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* a browser that keeps nothing: the system's choice stays */ }
