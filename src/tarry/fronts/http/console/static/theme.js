// Before the first paint: the theme that somebody chose in this browser, if any, and that scripts run.
"use strict";
(() => {
  document.documentElement.dataset.scripts = "";
  let theme = null;
  try { theme = localStorage.getItem("tarry-theme"); } catch { /* storage is off: as the system has it */ }
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
})();
