/** The clocks of this machine, in milliseconds. */

import { platform, uptime } from "node:os";

/** One moment by both clocks. */
export interface Moment { monotonic: number; wall: number }

export const moment = (): Moment => ({ monotonic: monotonic(), wall: Date.now() });

/**
 * A monotonic clock that advances while the machine is suspended. On Linux, performance.now() and timers stop then, but
 * the uptime, which has a resolution of 10 ms, does not.
 */
export const monotonic = () => platform() === "linux" ? uptime() * 1000 : performance.now();

/** How far {@link monotonic} may lag behind. */
export const resolution = 10;

const longestTimer = 2 ** 31 - 1; // milliseconds

/** Keeps the process alive until the returned function is called. */
export function stayAlive(): () => void {
  const timer = setInterval(() => undefined, longestTimer);
  return () => { clearInterval(timer); };
}
