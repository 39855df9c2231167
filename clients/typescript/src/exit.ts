/** Releases what a process holds when it ends. Nothing asynchronous runs at exit, so another thread does it. */

import { constants } from "node:os";
import { join } from "node:path";
import { isMainThread, Worker } from "node:worker_threads";

import type { Cleanup } from "./cleanup.js";
import type { GatewayOptions } from "./gateway.js";

/** The input of the thread. It sets `state` to 1 when it starts and to 2 at the end. */
export interface ExitWork {
  cleanups: { options: GatewayOptions; cleanup: Cleanup }[];
  state: Int32Array;
  seconds: number;
}

const seconds = 2; // for everything together
const secondsToStart = 3; // for the thread on a busy machine; 0.05 s are typical
const signals: readonly string[] = ["SIGTERM", "SIGINT", "SIGHUP"];
const linger = 100; // milliseconds: a process that takes lock after lock need not listen anew for each
let isListening = false;
let idle: NodeJS.Timeout | undefined;
const all = new Map<() => Cleanup, GatewayOptions>(); // global, like the exit and the signals

/** Registers a cleanup for the end of the process. Returns a function that unregisters it. */
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

/** Leaves a signal to the application once it has its own handler. */
function giveWay(event: string | symbol, listener: unknown) {
  if (!signals.includes(String(event)) || listener === onSignal) return;
  queueMicrotask(() => process.off(String(event), onSignal)); // after theirs is added, or Node would stop listening
}

/** Cleans up, then ends the process as the signal would. */
function onSignal(signal: NodeJS.Signals) {
  cleanUp();
  process.kill(process.pid, signal);
  process.exit(128 + constants.signals[signal]); // PID 1 of a container survives its own signals
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
    // Threads are not permitted here: the locks expire at their deadlines.
  }
}
