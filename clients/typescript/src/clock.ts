/** The clocks of this machine, in milliseconds. */

import { platform, uptime } from "node:os";

/** One moment on both clocks. */
export interface Moment { monotonic: number; wall: number }

export const moment = (): Moment => ({ monotonic: monotonic(), wall: Date.now() });

/**
 * A clock that nobody sets, and that goes on while the machine is suspended. On Linux performance.now() and all timers
 * stand still then, and the time since boot does not; it comes in steps of 10 ms.
 */
export const monotonic = () => platform() === "linux" ? uptime() * 1000 : performance.now();

/** How much later it may be than {@link monotonic} says. */
export const resolution = 10;
