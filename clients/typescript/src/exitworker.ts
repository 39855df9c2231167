/** The worker thread that cleans up while the main thread exits. */

import { workerData } from "node:worker_threads";

import { settle } from "./cleanup.js";
import type { ExitWork } from "./exit.js";
import { Gateway, type GatewayOptions } from "./gateway.js";

async function work({ cleanups, state, seconds }: ExitWork) {
  Atomics.store(state, 0, 1);
  Atomics.notify(state, 0);
  const until = performance.now() + seconds * 1000;
  const gateways = new Map<GatewayOptions, Gateway>(); // one per client, with one login
  for (const { options } of cleanups) {
    if (!gateways.has(options)) gateways.set(options, new Gateway({ ...options, releaseAtExit: false }));
  }
  await Promise.allSettled(cleanups.map(async ({ options, cleanup }) => {
    const gateway = gateways.get(options);
    if (gateway) await settle(gateway, cleanup, { until });
  }));
  Atomics.store(state, 0, 2);
  Atomics.notify(state, 0);
}

void work(workerData as ExitWork);
