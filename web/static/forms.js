// What pages with a form need: their head follows the lock, and typed text survives a login. Loaded by those pages only.
import { holds } from "./app.js";

// The head of a form is that of the page of its lock, below a heading of its own.
export function merge(head, page) {
  const fresh = page.querySelector(".lock-head");
  if (holds(head)) return;
  head.className = fresh.className;
  head.querySelector(".badge")?.replaceWith(fresh.querySelector(".badge"));
  head.replaceChildren(head.firstElementChild, ...[...fresh.children].slice(1), ...page.querySelectorAll("#main > .note"));
}

// What is typed into a form stays in this tab, and for two minutes after it was sent: the login may have ended.
try {
  const kept = sessionStorage, sent = "sent" + location;
  for (const box of document.querySelectorAll("#reason, #ticket")) {
    const key = box.id + location;
    if (!(Date.now() - kept[sent] > 120000)) box.value ||= kept[key] || "";
    box.addEventListener("input", () => (kept[key] = box.value));
    box.form.addEventListener("submit", () => (kept[sent] = Date.now()));
  }
} catch {
  // Storage is switched off.
}
