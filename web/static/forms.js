// For pages with a form: their head follows the lock, and typed text survives a login. Only those pages load it.
import { isInUse } from "./app.js";

// Updates the head of a form, which is that of the lock's page below a heading of its own.
export function merge(head, page) {
  const fresh = page.querySelector(".lock-head");
  if (isInUse(head)) return;
  head.className = fresh.className;
  head.querySelector(".badge")?.replaceWith(fresh.querySelector(".badge"));
  head.replaceChildren(head.firstElementChild, ...[...fresh.children].slice(1));
}

// Typed text is kept in this tab until two minutes after the form was sent, because the login may have expired.
try {
  const kept = sessionStorage, sent = "sent" + location;
  for (const box of document.querySelectorAll("#reason, #ticket")) {
    const key = box.id + location;
    if (!(Date.now() - kept[sent] > 120000)) box.value ||= kept[key] || "";
    box.addEventListener("input", () => (kept[key] = box.value));
    box.form.addEventListener("submit", () => (kept[sent] = Date.now()));
  }
} catch {
  // Storage is disabled.
}
