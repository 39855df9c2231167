// Keeps times and the list up to date, and adds a few keys. Everything works without it. It inserts only text, and
// documents of our own server, which the policy "mutexdash" lets through.

const rules = { createHTML: (s) => s }, html = self.trustedTypes?.createPolicy("mutexdash", rules) || rules;
const $ = (id, page = document) => page.getElementById(id);
const one = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];

// Time is the server's, continued between its answers by the browser's monotonic clock.
const arrival = performance.getEntriesByType("navigation")[0]?.responseStart || performance.now();
let offset = document.body.dataset.now - performance.timeOrigin - arrival;
const now = () => performance.timeOrigin + performance.now() + offset;

// Same texts as internal/text and dashboard/app/time_text.go, so that nothing jumps at the first tick.
const two = (a, unitA, b, unitB) => a + unitA + (b ? ` ${b}${unitB}` : "");

function short(ms) {
  const s = Math.max(0, Math.floor(ms / 1000)), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (m < 1) return `${s}s`;
  if (h < 1) return `${m}m`;
  if (d < 1) return two(h, "h", m % 60, "m");
  return d < 10 ? two(d, "d", h % 24, "h") : `${d}d`;
}

const digits = (s) => `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}`;
const countdown = (ms) => (ms >= 120000 ? short(ms + (ms < 864e5 ? 3e4 : 18e5)) : digits(Math.ceil(Math.max(0, ms) / 1000)));

// A passed deadline is due until the server confirms it.
const ahead = (t, after) => (t < 0 ? `in ${countdown(-t)}` : after);
const words = {
  age: short,
  alert: (t) => ahead(t, `${short(t)} ago`),
  next: (t) => ahead(t, "due"),
  then: (t) => ahead(t, "was due"),
  over: (t) => "+" + (t < 120000 ? digits(Math.floor(Math.max(0, t) / 1000)) : short(t)),
};

// Screen-reader text for countdowns.
const spoken = (t) => (t < -60000 ? "under 2 minutes" : t < 0 ? "under a minute" : `${short(t)} late`);
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
const withoutSeconds = (text) => text.replace(/\d+s\b/, "<1m").replace(/(\d):\d\d\b/, (_, m) => `<${+m + 1}m`);

const stored = (name, value) => {
  try {
    if (value === undefined) return localStorage.getItem(name);
    value ? localStorage.setItem(name, value) : localStorage.removeItem(name);
  } catch {
    // Storage is disabled: the setting lasts as long as this page.
  }
};

const onScreen = new WeakSet();
const watcher = new IntersectionObserver((entries) => {
  for (const e of entries) e.isIntersecting ? onScreen.add(e.target) : onScreen.delete(e.target);
  if (every) tick();
});

let times = [], bars = [];
function findTimes() {
  watcher.disconnect();
  times = all("time[data-k]").map((el) => {
    watcher.observe(el);
    return { el, at: Date.parse(el.dateTime), say: words[el.dataset.k], out: one("[aria-hidden]", el) || el, spokenEl: one(".vh", el) };
  });
  bars = all("[data-at]");
  for (const bar of bars) watcher.observe(bar);
  if (local) absolutes();
}

const write = (el, text) => el.textContent === text || (el.textContent = text);

function tick() {
  const t = now();
  for (const { el, at, say, out, spokenEl } of times) {
    if (!onScreen.has(el) || el.extended > t) continue;
    write(out, reducedMotion.matches ? withoutSeconds(say(t - at)) : say(t - at));
    if (spokenEl) write(spokenEl, spoken(t - at));
  }
  for (const bar of bars) if (onScreen.has(bar)) move(bar, t - Date.parse(bar.dataset.at));
  write($("clock").previousSibling, zone(t) + " ");
  write($("clock"), stamp(t).slice(11, reducedMotion.matches ? 16 : 19));
  write($("day"), stamp(t).slice(0, 10));
  if (failures > 1) write($("lost"), `Lost contact with the dashboard ${short(Date.now() - contacted)} ago, retrying in ${short(Math.max(1000, retryAt - Date.now()))}.`);
}

// Moves the bar of a hold, which ends at its auto-unlock, or grows. at is where a part begins, times 100.
function move(bar, age) {
  bar.length ??= bar.dataset.s * 1000;
  if (age < bar.next) return;
  bar.next = age + bar.length / 500;
  for (const part of bar.children) {
    part.at ??= parseFloat(part.getAttribute("x")) * bar.length || 0;
    if (part.matches(".n")) part.at = 100 * age;
    part.setAttribute("x", part.at / Math.max(bar.length, age) + "%");
  }
}

let timer;
function run() {
  clearTimeout(timer);
  if (document.hidden || !every) return;
  tick();
  applyRowOrder();
  timer = setTimeout(run, 1000 - (now() % 1000) + 2);
}

// UTC or local time, with the name of its zone, because an hour comes twice when clocks change.
const zones = new Intl.DateTimeFormat([], { timeZoneName: "short" });
const zone = (t) => (local ? zones.formatToParts(t).find((part) => part.type === "timeZoneName").value : "UTC");
let local = stored("zone") === "local";
function stamp(t) {
  return new Date(t - local * new Date(t).getTimezoneOffset() * 60000).toISOString().slice(0, 19).replace("T", " ");
}
const full = (t) => `${stamp(t)} ${zone(t)}`;

// The time of a tick in a chart, with its zone only if the same time comes twice.
function hour(t) {
  const twice = [-36e5, 36e5].some((ms) => stamp(t + ms) === stamp(t));
  return stamp(t).slice(11, 16) + (twice ? ` ${zone(t).replace("GMT", "")}` : "");
}

function absolutes() {
  $("zone").ariaPressed = local;
  for (const el of all(".abs, [data-clock]")) {
    el.at ??= Date.parse(el.dataset.hour || el.dateTime || el.textContent.replace(" UTC", "Z").replace(" ", "T"));
    write(el, el.dataset.hour ? hour(el.at) : full(el.at).slice(el.dateTime ? 11 : 0));
  }
  for (const el of all(".zone")) write(el, zone(now()));
  for (const el of all("time[title]")) el.removeAttribute("title");
}
function nextZone() {
  local = !local;
  stored("zone", local && "local");
  absolutes();
  tick();
}

// Polling: requests the same address again, with the version that is shown.
const least = +document.body.dataset.least;
let every = Math.max(stored("every") || 5, least), before = every, etag = "", failures = 0, pollTimer, polling = false, contacted = Date.now(), retryAt, signedOut = false;
const list = () => $("live");
const follows = () => list() || one("[data-follows]");

// The way back from a lock leads to the list as it was seen last.
if (list()) stored("view", location.search);
const leadBack = (page) => all("[data-view]", page).forEach((el) => (el.search = stored("view") || ""));
leadBack(document);

function schedule(ms) {
  clearTimeout(pollTimer);
  if (!follows() || !every || document.hidden || signedOut) return;
  const until = list()?.dataset.next - now() + 150;
  if (until > 0) ms = Math.min(ms, until);
  ms = Math.max(ms, least * 1000);
  retryAt = Date.now() + ms;
  pollTimer = setTimeout(poll, ms);
}

async function poll() {
  if (!follows() || polling) return;
  polling = true;
  try {
    const was = every, sent = performance.now(), address = follows().dataset.from || location.href;
    const version = list()?.dataset.etag || etag, headers = version ? { "If-None-Match": version } : {};
    const answer = await fetch(address, { headers, cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(10000) }), text = await answer.text();
    // paused in the meantime
    if (was && !every) return;
    if (answer.type === "opaqueredirect" || answer.status === 401) return signOut();
    if (answer.status === 304) confirmed(answer.headers.get("Mutexdash-Heard"));
    else if (answer.ok) await apply(text, (sent + performance.now()) / 2, answer.headers.get("ETag"));
    else throw answer.status;
    failures = 0;
    contacted = Date.now();
    banner("lost");
    schedule(every * (950 + 100 * Math.random()));
  } catch {
    failures++;
    if (failures > 1) {
      banner("lost", " ", "now", poll);
      document.body.className = "stale lost";
    }
    schedule(Math.min(30000, 1000 * 2 ** failures) * (0.8 + 0.4 * Math.random()));
    tick();
  } finally {
    polling = false;
  }
}

const reload = () => location.reload();
function signOut() {
  signedOut = true;
  banner("out", "Signed out.", "reload", reload);
  document.body.className = "stale lost";
}

// Nothing has changed: the page is up to date.
function confirmed(when) {
  const heard = one("#fresh time");
  if (heard && when) heard.dateTime = when;
  document.body.className = list().dataset.level;
  findTimes();
}

// Shows a banner above those of the server; without a text, removes it. Screen readers read it once, although its text
// may change.
function banner(id, text, action, act) {
  const old = $(id);
  if (!text || old) return text || old?.parentElement.remove();
  const p = make("p", "", ""), button = make("button", "", action);
  p.className = "banner contact";
  p.role = "alert";
  button.addEventListener("click", act);
  p.append(make("span", id, text), button);
  p.firstChild.ariaLive = "off";
  $("alerts").before(p);
}

const make = (tag, id, textContent) => Object.assign(document.createElement(tag), { id, textContent });

async function apply(text, received, version) {
  const page = new DOMParser().parseFromString(html.createHTML(text), "text/html");
  if (list()) return applyList($("live", page), received);
  if (!$("main", page)) return signOut();
  offset = page.body.dataset.now - performance.timeOrigin - received;
  etag = version || "";
  leadBack(page);
  show(page.body.className, page.title, $("icon", page).getAttribute("href"));
  alerts($("alerts", page));
  $("fresh").replaceWith($("fresh", page));
  one(".force") ? (await forms()).merge(follows(), page) : merge($("main"), $("main", page));
  findTimes();
  tick();
}

function show(level, title, icon) {
  document.body.className = level;
  document.title = title;
  if ($("icon").getAttribute("href") !== icon) $("icon").href = icon;
}

// The server's banner is kept while there is one, so that screen readers read it once.
function alerts(from) {
  if (!from.firstChild !== !$("alerts").firstChild) $("alerts").replaceChildren(...from.childNodes);
}

// Reports whether focus or selection is inside; such parts are not replaced.
function isInUse(el) {
  const s = getSelection();
  return el.contains(document.activeElement) || (!s.isCollapsed && s.containsNode(el, true));
}

// Replaces what has changed, in the smallest parts that both pages have, but nothing that is in use.
function merge(mine, other) {
  if (mine.isEqualNode(other)) return;
  const a = [...mine.children], b = [...other.children];
  const same = a.length && a.length === b.length && a.every((el, i) => el.tagName + el.classList === b[i].tagName + b[i].classList);
  if (same && (mine.id === "main" || mine.className === "halves" || isInUse(mine))) return a.forEach((el, i) => merge(el, b[i]));
  if (isInUse(mine)) return;
  const key = (d, i) => d.dataset.key || i, open = new Map(all("details", mine).map((d, i) => [key(d, i), d.open]));
  all("details", other).forEach((d, i) => (d.open = open.get(key(d, i)) ?? d.open));
  mine.id === "main" ? mine.replaceChildren(...other.childNodes) : mine.replaceWith(other);
}

function applyList(fresh, received) {
  const live = list();
  if (!fresh) return signOut();
  offset = fresh.dataset.now - performance.timeOrigin - received;
  if (fresh.dataset.build !== live.dataset.build) banner("build", "There is a new version of this page.", "reload", reload);
  show(fresh.dataset.level, fresh.dataset.title, fresh.dataset.icon);
  alerts(one("[data-part=banner]", fresh));
  $("fresh").replaceWith(one("[data-part=fresh]", fresh).firstElementChild);
  announce(one(".headline", fresh), one(".headline", live), live.dataset.title);
  Object.assign(live.dataset, fresh.dataset);
  for (const part of all("[data-part]", live)) {
    const other = one(`[data-part="${part.dataset.part}"]`, fresh);
    if (other && !part.hidden && !isInUse(part) && !part.isEqualNode(other)) part.replaceWith(other);
  }
  rows(live, fresh);
  findTimes();
  tick();
}

// Rows are updated in place. Moving, adding and removing rows waits while the table is in use. waiting has the rows that
// should be there, by key. A key names the lock and the hold, or is the id of the heading of a section.
let waiting = null, acted = Date.now();
const named = (row) => one(".name", row);
const key = (row) => row.id || named(row).href || named(row).textContent;
const busy = (table) => Date.now() - acted < 60000 && (table.matches(":hover") || isInUse(table));

const sheet = (el) => el?.querySelector(":scope > .sheet table");

function rows(live, fresh) {
  const table = sheet(live), other = sheet(fresh);
  if (!table || (!other && !busy(table))) {
    const [mine, theirs] = [live, fresh].map((e) => one(":scope > .sheet, .empty, .groups", e));
    merge(mine, theirs);
    waiting = null;
    return count(0);
  }
  if (other) table.caption.textContent = other.caption.textContent;
  waiting = new Map([...(other?.tBodies || [])].map((row) => [key(row), row]));
  for (const mine of [...table.tBodies]) {
    const row = waiting.get(key(mine));
    if (!row) markGone(mine, one(".filter, .paging [rel]", live) ? "gone" : "ended");
    else if (mine.dataset.rev !== row.dataset.rev || mine.left) patch(mine, row);
  }
  applyRowOrder();
}

function patch(mine, row) {
  const deadline = (r) => one("td:nth-child(6) time", r), was = deadline(mine), is = deadline(row);
  if (was?.dateTime < is?.dateTime && was.previousSibling.data === is.previousSibling.data) {
    is.extended = now() + 2000;
    (one("[aria-hidden]", is) || is).textContent = "extended";
  }
  row.classList.add("changed");
  if (!isInUse(mine)) return mine.replaceWith(row);
  mine.className = row.className;
  mine.dataset.rev = row.dataset.rev;
  const cells = [...row.rows[0].cells];
  [...mine.rows[0].cells].forEach((cell, i) => isInUse(cell) || cell.replaceWith(cells[i]));
}

// A removed row stays visible for ten seconds.
function markGone(row, word) {
  if (row.left) return;
  row.left = row.id ? 1 : Date.now();
  if (row.id) return;
  row.className = "gone";
  row.rows[0].cells[4].textContent = word;
}

// Adds, moves and removes rows, unless the table is in use and neither the button nor r was pressed.
function applyRowOrder(ready) {
  const table = sheet(list());
  if (!table) return;
  const left = [...table.tBodies].filter((row) => row.left);
  if (!waiting && !left.length) return;
  const have = new Map([...table.tBodies].filter((row) => !row.left).map((row) => [key(row), row]));
  if (!ready && busy(table)) return count(waiting && changes(left, have));
  for (const row of left) if (ready || Date.now() - row.left > 10000) row.remove();
  const focus = document.activeElement;
  let at = table.tHead;
  for (const [k, row] of waiting || []) {
    const mine = have.get(k) || row;
    let next = at.nextElementSibling;
    while (next?.left) next = next.nextElementSibling;
    if (next !== mine) at.after(mine);
    at = mine;
  }
  if (focus.isConnected && focus !== document.activeElement) focus.focus({ preventScroll: true });
  count(0);
  if (waiting) findTimes();
  waiting = null;
}

// Counts the changes that wait: removed rows, new rows, and one if others move. Headings do not count.
function changes(left, have) {
  const to = [...waiting.keys()].filter((k) => !waiting.get(k).id), stay = to.filter((k) => have.has(k));
  return left.filter((row) => !row.id).length + to.length - stay.length + (stay.join() !== [...have.keys()].filter((k) => stay.includes(k)).join());
}

function count(n) {
  let button = $("changes");
  if (!n) return button?.remove();
  if (!button) {
    button = make("button", "changes", "");
    button.addEventListener("click", () => applyRowOrder(true));
    $("main").append(button);
  }
  write(button, `${n} ${n === 1 ? "change" : "changes"} (r)`);
}

// Tells screen readers when the headline changes, at most every ten seconds, and if the list was stale when opened.
let announcedAt = 0, announcing;
function announce(is, was, title) {
  if (!is || (was?.className === is.className && document.title === title)) return;
  clearTimeout(announcing);
  announcing = setTimeout(() => {
    announcedAt = Date.now();
    write($("news"), is.textContent.trim());
  }, Math.max(0, announcedAt + 10000 - Date.now()));
}

function setEvery(seconds) {
  if (every) before = every;
  every = seconds;
  if (seconds) stored("every", seconds);
  if ($("every")) $("every").value = seconds;
  document.documentElement.classList.toggle("paused", !seconds);
  clearTimeout(pollTimer);
  if (seconds) {
    poll();
    run();
  }
}

// Theme: auto, light, dark.
function nextTheme() {
  const root = document.documentElement, next = { light: "dark", dark: "" }[root.dataset.theme] ?? "light";
  stored("theme", (root.dataset.theme = next));
}

async function copy(text, button) {
  let word = "copied";
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    word = "not possible";
  }
  $("news").textContent = word;
  button.was ??= button.textContent;
  button.textContent = word;
  setTimeout(() => (button.textContent = button.was), 1500);
}

// The list has one button to copy a name: in the row under the pointer.
const copier = make("button", "", "copy");
copier.className = "copy";
function offer(el) {
  const row = el.closest(".locks tbody:not(.part)");
  if (!row) return copier.remove();
  copier.ariaLabel = "copy " + named(row).textContent;
  if (!row.contains(copier)) named(row).after(copier);
  return copier;
}

// The text to copy, for a button without data-copy: what is next to it.
const near = (button) => all(".name, .trace li", button.closest("th, section")).map((e) => e.title || e.textContent).join("\n");

// Keys do nothing while typing, with a modifier, or if disabled. They only change the view.
const names = () => all(".locks .name").filter((a) => a.checkVisibility());
const here = () => document.activeElement.closest(".locks tbody")?.querySelector(".name");
function step(by) {
  const links = names();
  links[Math.max(0, Math.min(links.length - 1, links.indexOf(here()) + by))]?.focus();
}
function go(place) {
  all("nav a").find((a) => (a.pathname + a.search).endsWith("/" + place))?.click();
}

let prefix = "";
const keys = {
  "/": () => $("q").select(),
  j: () => step(1), k: () => step(-1),
  o: () => here() && open(here().href, "_blank", "noopener"),
  c: () => (offer(document.activeElement) || one(".lock-head .copy"))?.click(),
  p: () => follows() && setEvery(every ? 0 : before), r: () => (waiting ? applyRowOrder(true) : poll()),
  t: nextTheme, z: nextZone, g: () => (prefix = "g"), u: () => ($("up") || one(".brand")).click(),
  gl: () => go(""), gw: () => go("waiting"), gh: () => go("history"), go: () => go("?group=owner"), gs: () => go("status"),
  "?": () => go("help"),
};

document.addEventListener("keydown", (e) => {
  acted = Date.now();
  const typing = e.target.closest("input:not([type=checkbox]), textarea, select"), name = prefix + e.key;
  if (e.key === "Escape" && typing) return typing.blur();
  if (typing || e.ctrlKey || e.metaKey || e.altKey || stored("keys") === "off") return;
  prefix = "";
  if (!Object.hasOwn(keys, name)) return;
  e.preventDefault();
  keys[name]();
});
for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, () => (acted = Date.now()));
document.addEventListener("click", (e) => {
  const button = e.target.closest("button");
  keys[button?.dataset.key]?.();
  if (button?.matches(".copy")) copy(button.dataset.copy || near(button), button);
});
document.addEventListener("change", (e) => {
  if (e.target.id === "every") setEvery(+e.target.value);
  if (e.target.id === "keys") stored("keys", e.target.checked ? "" : "off");
});
document.addEventListener("mouseover", (e) => {
  offer(e.target);
  const el = e.target.closest("time");
  if (el && !el.title) el.title = full(Date.parse(el.dateTime));
});
document.addEventListener("visibilitychange", () => {
  run();
  document.hidden ? clearTimeout(pollTimer) : poll();
});

if ($("every")) $("every").value = every;
if ($("keys")) $("keys").checked = stored("keys") !== "off";
findTimes();
run();
schedule(every * 1000);
announce(one(".headline.stale"));

// Only pages with a form load what forms need.
const forms = () => import("./forms.js");
if (one("textarea")) forms();

export { full, hour, isInUse, tick, words };
