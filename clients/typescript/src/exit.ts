/** What a process holds is released when it ends. Nothing asynchronous runs then, so another thread does it. */

import { constants } from "node:os";
import { join } from "node:path";
import { isMainThread, Worker } from "node:worker_threads";

import type { Cleanup } from "./cleanup.js";
import type { GatewayOptions } from "./gateway.js";

/** What the thread gets. It sets `state` to 1 when it begins, and to 2 at the end. */
export interface ExitWork {
  cleanups: { options: GatewayOptions; cleanup: Cleanup }[];
  state: Int32Array;
  seconds: number;
}

const seconds = 2; // for all together
const secondsToStart = 3; // for the thread, on a machine that is busy: 0.05 s otherwise
const signals: readonly string[] = ["SIGTERM", "SIGINT", "SIGHUP"];
const linger = 100; // milliseconds: who takes lock after lock need not listen anew for each
let isListening = false;
let idle: NodeJS.Timeout | undefined;
const all = new Map<() => Cleanup, GatewayOptions>(); // of the process, as its exit and its signals are

/** Has something cleaned up at the end of the process. Returns how to take that back. */
export function atExit(options: GatewayOptions, cleanup: () => Cleanup): () => void {
  if (!isListening) process.on("exit", cleanUp).on("newListener", giveWay);
  isListening = true;
  all.set(cleanup, options);
  for (const signal of isMainThread ? signals : []) {
    if (!process.listenerCount(signal)) process.on(signal, onSignal);
  }
  return () => {
    if (all.delete(cleanup) && !all.size) idle ??= setTimeout(stopIfIdle, linger).unref();
  };
}

function stopIfIdle() {
  idle = undefined;
  if (!all.size) stop();
}

function stop() {
  isListening = false;
  process.off("exit", cleanUp).off("newListener", giveWay);
  for (const signal of signals) process.off(signal, onSignal);
}

/** Leaves a signal to the application as soon as that has a handler of its own. */
function giveWay(event: string | symbol, listener: unknown) {
  if (!signals.includes(String(event)) || listener === onSignal) return;
  queueMicrotask(() => process.off(String(event), onSignal)); // once the other one is there, or Node stops listening
}

/** Cleans up, and then does what the signal does without a handler. */
function onSignal(signal: NodeJS.Signals) {
  cleanUp();
  process.kill(process.pid, signal);
  process.exit(128 + constants.signals[signal]); // process 1 of a container survives its own signals
}

function cleanUp() {
  const cleanups = [...all].map(([cleanup, options]) => ({ options, cleanup: cleanup() }));
  all.clear();
  stop();
  if (!cleanups.length) return;
  const state = new Int32Array(new SharedArrayBuffer(4));
  const workerData: ExitWork = { cleanups, state, seconds };
  try {
    new Worker(join(__dirname, "exitworker.js"), { workerData, execArgv: [], env: {} });
    if (Atomics.wait(state, 0, 0, secondsToStart * 1000) !== "timed-out") Atomics.wait(state, 0, 1, seconds * 1000);
  } catch {
    // Threads are forbidden here: the deadlines end what was held.
  }
}
