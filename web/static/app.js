// What the page does by itself: time ticks on, the list follows the locks, a few keys. Everything works without it.
// Text only is ever written, except for whole answers of our own server, which the policy "mutexdash" lets through.

const html = self.trustedTypes
  ? trustedTypes.createPolicy("mutexdash", { createHTML: (s) => s })
  : { createHTML: (s) => s };
const $ = (id) => document.getElementById(id);

// Time. The server's clock counts; between its answers the monotonic clock of the browser goes on.
let offset = Number(document.body.dataset.now) - performance.timeOrigin - arrival();
const now = () => performance.timeOrigin + performance.now() + offset;

function arrival() {
  const page = performance.getEntriesByType("navigation")[0];
  return page && page.responseStart > 0 ? page.responseStart : performance.now();
}

// The words are those of words.go, so that nothing jumps when a text ticks on.
const two = (a, unitA, b, unitB) => (b ? `${a}${unitA} ${b}${unitB}` : `${a}${unitA}`);

function short(ms) {
  const s = Math.max(0, Math.floor(ms / 1000)), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (m < 1) return `${s}s`;
  if (h < 1) return `${m}m`;
  if (d < 1) return two(h, "h", m % 60, "m");
  return d < 10 ? two(d, "d", h % 24, "h") : `${d}d`;
}

const digits = (s) => `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}`;
const countdown = (ms) => (ms >= 120000 ? short(ms) : digits(Math.ceil(Math.max(0, ms) / 1000)));

const words = {
  age: (t) => short(t),
  alert: (t) => (t < 0 ? `in ${countdown(-t)}` : `${short(t)} ago`),
  unlock: (t) => (t < 0 ? countdown(-t) : "due"), // until the server confirms
  last: (t) => (t < 0 ? countdown(-t) : "outcome unknown"),
  over: (t) => (t < 120000 ? `+${digits(Math.floor(Math.max(0, t) / 1000))}` : `+${short(t)}`),
};

// What ears get where the digits change every second.
const spoken = (t) => (t < -60000 ? "under 2 minutes" : t < 0 ? "under a minute" : `${short(t)} late`);

const onScreen = new WeakSet();
const watcher = new IntersectionObserver((entries) => {
  for (const e of entries) e.isIntersecting ? onScreen.add(e.target) : onScreen.delete(e.target);
  if (!paused) tick();
});

let times = [];
function findTimes() {
  watcher.disconnect();
  times = [...document.querySelectorAll("time[data-k]")].map((el) => {
    watcher.observe(el);
    return { el, at: Date.parse(el.dateTime), say: words[el.dataset.k], out: el.querySelector("[aria-hidden]") || el, ears: el.querySelector(".vh") };
  });
}

function tick() {
  const t = now();
  const write = (el, text) => el.textContent === text || (el.textContent = text);
  for (const { el, at, say, out, ears } of times) {
    if (!onScreen.has(el)) continue;
    write(out, say(t - at));
    if (ears) write(ears, spoken(t - at));
  }
  const clock = $("clock");
  if (clock) clock.textContent = new Date(t).toISOString().slice(11, 19);
}

let timer = 0;
function run() {
  clearTimeout(timer);
  if (document.hidden || paused) return;
  tick();
  timer = setTimeout(run, 1000 - (now() % 1000) + 2);
}

// The list follows the locks: the same address is asked for again, with the version that is shown.
const every = 5000;
let paused = false, etag = "", failures = 0, pollTimer = 0, polling = false, lastContact = Date.now();

function schedule(ms) {
  clearTimeout(pollTimer);
  if (!$("live") || paused || document.hidden) return;
  const next = Number($("live").dataset.next), until = next ? next - now() + 150 : Infinity;
  if (until > 0) ms = Math.min(ms, until);
  pollTimer = setTimeout(poll, Math.max(ms, 300));
}

async function poll() {
  const live = $("live");
  if (!live || polling) return;
  polling = true;
  try {
    const sent = performance.now();
    const answer = await fetch(live.dataset.from, {
      headers: { "If-None-Match": etag || live.dataset.etag }, cache: "no-store", redirect: "manual", signal: AbortSignal.timeout(10000),
    });
    if (answer.status === 200) apply(await answer.text(), (sent + performance.now()) / 2);
    else if (answer.status === 304) confirmed(answer.headers.get("Mutexdash-Heard"));
    else throw new Error(answer.type === "opaqueredirect" || answer.status === 401 ? "signed out" : `status ${answer.status}`);
    failures = 0;
    lastContact = Date.now();
    contact("");
    schedule(every);
  } catch (e) {
    failures++;
    const wait = Math.min(30000, 2000 * 2 ** Math.min(failures - 1, 4)) * (0.8 + 0.4 * Math.random());
    if (e.message === "signed out") contact("Signed out. Reload the page to sign in.");
    else if (failures > 1) contact(`Lost contact with the dashboard ${short(Date.now() - lastContact)} ago. What you see may have changed.`);
    schedule(wait);
  } finally {
    polling = false;
  }
}

// Nothing changed: that is news too, the picture is as fresh as can be.
function confirmed(when) {
  const heard = document.querySelector("#fresh time");
  if (heard && when) heard.dateTime = when;
  document.body.className = $("live").dataset.level;
  findTimes();
}

function contact(text) {
  let banner = $("contact");
  if (!text) return banner && banner.remove();
  if (!banner) {
    banner = document.createElement("p");
    banner.id = "contact";
    banner.className = "banner contact";
    banner.setAttribute("role", "alert");
    $("alerts").append(banner);
  }
  banner.textContent = text;
  document.body.classList.add("stale", "lost");
}

function apply(text, received) {
  const fresh = new DOMParser().parseFromString(html.createHTML(text), "text/html").getElementById("live");
  const live = $("live");
  if (!fresh) throw new Error("signed out");
  offset = Number(fresh.dataset.now) - performance.timeOrigin - received;
  etag = fresh.dataset.etag;
  for (const name of ["now", "next", "etag", "from", "level"]) live.dataset[name] = fresh.dataset[name];
  document.body.className = fresh.dataset.level;
  document.title = fresh.dataset.title;
  if ($("icon").getAttribute("href") !== fresh.dataset.icon) $("icon").setAttribute("href", fresh.dataset.icon);
  move(fresh.querySelector("[data-part=fresh]"), $("fresh"));
  const banner = fresh.querySelector("[data-part=banner]"), alerts = $("alerts");
  if (banner.textContent.trim() ? !alerts.firstElementChild || alerts.firstElementChild.id : alerts.querySelector(".banner:not(.contact)")) alerts.replaceChildren(...banner.childNodes);
  announce(live, fresh);
  for (const part of live.querySelectorAll("[data-part]")) {
    const other = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
    if (other && !part.hidden && !part.contains(document.activeElement) && !part.isEqualNode(other)) part.replaceWith(other);
  }
  rows(live, fresh);
  if (paused) setPaused(true);
  findTimes();
  tick();
}

function move(from, to) {
  const el = from && from.firstElementChild;
  if (el && to) to.replaceWith(el);
}

// Rows are replaced only when their version changed, and none while somebody reads or points at the table.
function rows(live, fresh) {
  const table = live.querySelector("table.locks"), other = fresh.querySelector("table.locks");
  if (!table || !other) {
    const old = live.querySelector(".sheet, .empty"), now = fresh.querySelector(".sheet, .empty");
    if (old && now && !old.isEqualNode(now)) old.replaceWith(now);
    return;
  }
  table.caption.textContent = other.caption.textContent;
  const key = (body) => body.querySelector(".name").href || body.querySelector(".name").textContent; // names lock and hold
  const have = new Map([...table.tBodies].map((body) => [key(body), body]));
  let at = table.tHead;
  for (const body of [...other.tBodies]) {
    let mine = have.get(key(body));
    have.delete(key(body));
    if (!mine) mine = body;
    else if (mine.dataset.rev !== body.dataset.rev && !mine.contains(document.activeElement)) {
      mine.replaceWith(body);
      body.classList.add("changed");
      mine = body;
    }
    if (at.nextElementSibling !== mine) at.after(mine);
    at = mine;
  }
  for (const gone of have.values()) gone.remove();
}

function announce(live, fresh) {
  const was = live.querySelector(".verdict").className, is = fresh.querySelector(".verdict");
  if (was !== is.className) $("news").textContent = is.textContent.trim();
}

function setPaused(on) {
  paused = on;
  const button = $("pause");
  if (button) {
    button.textContent = on ? "go on" : "pause";
    button.setAttribute("aria-pressed", String(on));
  }
  if (on) clearTimeout(pollTimer);
  else {
    poll();
    run();
  }
}

// Theme: automatic, light, dark.
function nextTheme() {
  const root = document.documentElement, next = { undefined: "light", light: "dark", dark: "" }[root.dataset.theme];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  try {
    next ? localStorage.setItem("theme", next) : localStorage.removeItem("theme");
  } catch { /* storage is switched off: for this page only */ }
}

async function copy(button) {
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "copied";
  } catch {
    button.textContent = "not possible";
  }
  setTimeout(() => (button.textContent = "copy"), 1500);
}

// Keys. None while typing or with a modifier; none of them changes anything.
function step(by) {
  const links = [...document.querySelectorAll(".locks .name")], i = links.indexOf(document.activeElement);
  const next = links[Math.max(0, Math.min(links.length - 1, i + by))];
  if (next) next.focus();
}

const keys = {
  "/": () => { $("q").focus(); $("q").select(); },
  j: () => step(1), k: () => step(-1),
  p: () => $("pause") && setPaused(!paused), r: () => poll(), t: nextTheme,
  u: () => $("up") && $("up").click(),
  "?": () => document.querySelector("nav a:last-child").click(),
};

document.addEventListener("keydown", (e) => {
  const typing = e.target.closest("input, textarea, select");
  if (e.key === "Escape" && typing) return typing.blur();
  if (typing || e.ctrlKey || e.metaKey || e.altKey || !Object.hasOwn(keys, e.key)) return;
  e.preventDefault();
  keys[e.key]();
});
document.addEventListener("click", (e) => {
  const button = e.target.closest("button");
  if (!button) return;
  if (button.id === "pause") setPaused(!paused);
  if (button.id === "theme") nextTheme();
  if (button.dataset.copy !== undefined) copy(button);
});
document.addEventListener("mouseover", (e) => {
  const el = e.target.closest("time");
  if (el && !el.title) el.title = el.dateTime.slice(0, 19).replace("T", " ") + " UTC";
});
document.addEventListener("visibilitychange", () => {
  run();
  document.hidden ? clearTimeout(pollTimer) : poll();
});

findTimes();
run();
schedule(every);
