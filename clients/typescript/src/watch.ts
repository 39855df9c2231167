/** Watches on ranges of keys, over one connection. */

import type * as http from "node:http";

import { UnavailableError } from "./errors.js";
import { asText, parseObject } from "./record.js";
import { errorIn, type KeyValue } from "./transactions.js";

export interface WatchEvent { type?: "DELETE"; kv: KeyValue }

/** Watches that share one connection. */
export class Watch {
  readonly opened: Promise<void>;
  private unconfirmed: number;
  private readonly end: AbortController;
  private readonly signal: AbortSignal | undefined;
  private readonly background: boolean;
  #open!: () => void;
  #fail!: (error: Error) => void;
  #events: WatchEvent[] = [];
  #wake: () => void = () => undefined;

  constructor(unconfirmed: number, end: AbortController, signal: AbortSignal | undefined, background: boolean) {
    [this.unconfirmed, this.end, this.signal, this.background] = [unconfirmed, end, signal, background];
    this.opened = new Promise((resolve, reject) => [this.#open, this.#fail] = [resolve, reject]);
    this.opened.catch(() => undefined); // the caller may have given up
    const wake = () => this.#wake();
    signal?.addEventListener("abort", wake);
    end.signal.addEventListener("abort", () => {
      signal?.removeEventListener("abort", wake);
      this.#fail(end.signal.reason instanceof Error ? end.signal.reason : new UnavailableError("the watch was closed"));
      wake();
    });
  }

  /** Reports whether the watch is over. */
  get ended() { return this.end.signal.aborted; }

  close() { this.end.abort(new UnavailableError("the watch was closed")); }

  follow(response: http.IncomingMessage) {
    let rest = "";
    response.setEncoding("utf8").on("data", (chunk: string) => {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) if (line.trim()) this.#read(line);
    });
    response.on("error", () => this.close()).on("close", () => this.close());
  }

  #read(line: string) {
    const answer = parseObject(line);
    const { result } = answer as {
      result?: { created?: boolean; canceled?: boolean; cancel_reason?: string; events?: WatchEvent[] };
    };
    if (!result || result.canceled) { // a refused watch is "created", too
      const why = asText(errorIn(answer)?.message) ?? result?.cancel_reason ?? "no reason given";
      this.end.abort(new UnavailableError(`etcd ended a watch: ${why}`));
    } else if (result.created && --this.unconfirmed === 0) {
      this.#open();
    }
    if (result?.events) {
      this.#events.push(...result.events);
      this.#wake();
    }
  }

  /** Wakes up the caller of {@link next}. */
  wake() { this.#wake(); }

  /** Returns the next events, or none after the timeout, at the end of the watch, or after {@link wake}. */
  async next(milliseconds: number): Promise<WatchEvent[]> {
    if (!this.#events.length && !this.ended && !this.signal?.aborted) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, milliseconds);
        if (this.background) timer.unref();
        this.#wake = () => { clearTimeout(timer); resolve(); };
      });
      this.#wake = () => undefined;
    }
    return this.#events.splice(0);
  }
}
