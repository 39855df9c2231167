// A job of the demo, in TypeScript's client: the sitemap of all films, section by section.

import { setTimeout as sleep } from "node:timers/promises";

import { Client, LostError } from "clustermutex";

const sections = ["drama", "comedy", "thriller", "documentary", "animation", "series"];

async function writeSitemap(locks, pace, stop) {
  const options = { purpose: "sitemap of all films", alertAfter: 60, signal: stop, attributes: { site: "www" } };
  await locks.with("website/sitemap", options, async (lock) => {
    for (const [n, section] of sections.entries()) {
      await lock.alive(`${section}, ${n + 1} of ${sections.length}`);
      await sleep(11_000 * pace, undefined, { signal: stop });
    }
  });
}

// Standard input ends when mutexdev does, however that ends.
function endWithMutexdev() {
  const stop = new AbortController();
  process.stdin.resume().on("end", () => {
    stop.abort(); // which leaves the work, so the lock is released
    setTimeout(() => process.exit(1), 3000).unref();
  });
  return stop.signal;
}

const [endpoint, speed] = process.argv.slice(2);
const pace = 1 / Number(speed);
const stop = endWithMutexdev();
const locks = new Client(endpoint, { owner: "website" });
while (!stop.aborted) {
  await writeSitemap(locks, pace, stop).catch((error) => {
    if (error instanceof LostError) console.error(error.message); // somebody forced the unlock, say
    else if (!stop.aborted) throw error;
  });
  await sleep(4_000 * pace, undefined, { signal: stop }).catch(() => {});
}
