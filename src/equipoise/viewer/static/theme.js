// Before anything is drawn, so that nothing flashes.
const chosen = localStorage.getItem("equipoise-theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
