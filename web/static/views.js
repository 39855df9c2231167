// Saved views and notifications, the head of forms, and what is typed into them. Loaded by those who open the menu,
// asked for notifications, or have a form.
// A view is a name and an address; both stay in this browser. Names are only ever written as text.
import { every, holds, make, stored } from "./app.js";

const base = new URL(document.querySelector(".brand").href), menu = make("div", "", ""), rows = make("ul", "", "");
const form = make("form", "", ""), input = make("input", "view", ""), save = make("button", "", ""), say = make("p", "", "");
const host = document.getElementById("views"), able = () => isSecureContext && "Notification" in self;

// What is stored was written by a page of ours, but is looked at as if it were not.
function read() {
  try {
    return JSON.parse(stored("views")).filter((v) => typeof v.name === "string" && typeof v.to === "string" &&
      v.to.startsWith(base.pathname) && new URL(v.to, base).origin === base.origin);
  } catch {
    return [];
  }
}

function write(views) {
  stored("views", views.length && JSON.stringify(views));
  stored("watched", views.some((v) => v.seen) && "yes");
}

function change(name, how) {
  write(read().flatMap((v) => (v.name === name ? how(v) : [v])));
  draw();
}

function button(text, label, act) {
  const b = make("button", "", text);
  b.type = "button";
  b.ariaLabel = label;
  b.addEventListener("click", act);
  return b;
}

let renamed = "";
function draw() {
  rows.replaceChildren(...read().map((v) => {
    const row = make("li", "", ""), link = make("a", "", v.name);
    link.href = v.to;
    row.append(link);
    if (able() && new URL(v.to, base).pathname === base.pathname) {
      const bell = button("notify", "Notify: " + v.name, () => (v.seen ? change(v.name, ({ seen, ...w }) => [w]) : begin(v)));
      bell.ariaPressed = !!v.seen;
      row.append(bell);
    }
    row.append(button("rename", "Rename " + v.name, () => {
      renamed = input.value = v.name;
      save.textContent = "Rename";
      input.select();
    }), button("remove", "Remove " + v.name, () => change(v.name, () => []) || input.focus()));
    return row;
  }));
}

form.addEventListener("submit", (e) => {
  e.preventDefault();
  const name = input.value.trim(), here = new URL(location.href), views = read();
  if (!name) return;
  for (const place of ["after", "before"]) if (here.searchParams.has(place)) here.searchParams.delete(place);
  const old = views.find((v) => v.name === (renamed || name)), kept = views.filter((v) => v === old || v.name !== name);
  if (renamed) old && (old.name = name);
  else if (old) Object.assign(old, { to: here.pathname + here.search, seen: undefined });
  else kept.push({ name, to: here.pathname + here.search });
  write(kept);
  renamed = input.value = "";
  save.textContent = "Save this view";
  draw();
});

// Notifications: of each hold that matches a view and did not before, once. One page of all that are open looks.
const visible = (s) => s.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

async function matches(view) {
  const address = new URL("api/v1/locks?limit=1000&fields=name,uuid,summary,description", base);
  address.searchParams.set("q", new URL(view.to, base).searchParams.get("q") || "");
  const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(10000) });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  const { data, meta } = await answer.json();
  return meta.stale ? [] : data;
}

function notify(title, body, name) {
  const n = new Notification(visible(title), { body: visible(body), tag: name || title });
  n.addEventListener("click", () => {
    focus();
    if (name) location.href = new URL("lock?name=" + encodeURIComponent(name), base);
  });
}

const id = (lock) => lock.uuid || lock.name;

async function begin(view) {
  try {
    if ((await Notification.requestPermission()) !== "granted") throw "The browser does not allow notifications here.";
    const seen = (await matches(view)).map(id);
    notify("Notifications are on", `You will hear of each new lock of “${view.name}” while a page of the dashboard is open.`);
    change(view.name, (v) => [{ ...v, seen }]);
    say.textContent = "";
    watch();
  } catch (e) {
    say.textContent = typeof e === "string" ? e : "This browser cannot notify from here.";
  }
}

async function look() {
  for (const view of read().filter((v) => v.seen)) {
    const found = await matches(view), news = found.filter((l) => !view.seen.includes(id(l)));
    if (!news.length) continue;
    change(view.name, (v) => [{ ...v, seen: v.seen && [...news.map(id), ...v.seen].slice(0, 3000) }]);
    if (news.length > 3) notify(`${news.length} new locks: ${view.name}`, news.slice(0, 3).map((l) => l.name).join(", ") + ", …");
    else for (const l of news) notify(l.summary, `${l.description} · ${view.name}`, l.name);
  }
}

let watching = false;
function watch() {
  if (watching || !stored("watched") || !able() || Notification.permission !== "granted") return;
  watching = true;
  navigator.locks.request("mutexdash views", async () => {
    while (stored("watched")) {
      await look().catch(() => {}); // the page itself says that the dashboard is away
      await new Promise((done) => setTimeout(done, Math.max(every, 5) * 1000));
    }
    watching = false;
  });
}

input.maxLength = 80;
input.required = true;
input.ariaLabel = "Name of this view";
input.placeholder = "name";
save.textContent = "Save this view";
form.append(input, save);
say.role = "status";
menu.append(rows, form, say, make("p", "", "Views stay in this browser." + (able() ? " Notifications come while a page of the dashboard is open." : "")));
menu.lastChild.className = "muted";
host.append(menu);
draw();
watch();
addEventListener("storage", draw);
host.addEventListener("keydown", (e) => {
  if (e.key !== "Escape") return;
  host.open = false;
  host.firstElementChild.focus();
});

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
