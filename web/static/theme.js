// Applied before the first paint: the chosen theme, and that there are scripts at all.
(function () {
  var root = document.documentElement;
  root.className = "scripted";
  try {
    var theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch (e) { /* storage is switched off: automatic */ }
})();
