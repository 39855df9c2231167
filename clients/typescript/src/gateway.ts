/** etcd's JSON gateway: requests that are sent again until they are answered, logins, and watches. */

import { readFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import { text as textOf } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

import type { Cleanup } from "./cleanup.js";
import { RefusedError, UnavailableError } from "./errors.js";
import { atExit } from "./exit.js";
import { asText, parseObject } from "./record.js";
import { errorIn, judge, judgeFault, transactions } from "./transactions.js";
import type { Answer, Input, Keys, KeyValue, Step, TxnAnswer, Verdict } from "./transactions.js";

export interface GatewayOptions {
  endpoints: string[];
  user: string;
  password: string;
  /** PEM files. They are read again after a connection has failed, so certificates may be replaced. */
  ca: string;
  cert: string;
  key: string;
  /** Seconds that one request may take before it is sent again. */
  timeout: number;
  /** What is not finished when the process ends is cleaned up then. */
  releaseAtExit: boolean;
}

/** How long to go on. */
export interface Patience {
  /** When to stop sending, on the clock of performance.now(). */
  until: number;
  signal?: AbortSignal | undefined;
  /** It does not keep the process alive. */
  background?: boolean;
}

/** What came of a request in the end. */
export interface Outcome extends Omit<Verdict, "verdict"> {
  verdict: Exclude<Verdict["verdict"], "resend" | "login" | "report"> | "unanswered";
  /** Why there is no answer; only with "unanswered". */
  error?: RefusedError | UnavailableError;
  /** A send got no answer: it may have been done, or may yet be. */
  doubt: boolean;
  body: TxnAnswer & Record<string, unknown>;
}

interface Exchange {
  path: string;
  body: string;
  /** How long it may take; 0 for a watch, which has no end. */
  seconds: number;
  signal?: AbortSignal | undefined;
  background?: boolean;
}

/** Milliseconds between two sends of the same request, at most. */
export const longestPause = 2000;

const mostLogins = 5; // for one request

export class Gateway {
  readonly timeout: number;
  readonly #options: GatewayOptions;
  readonly #endpoints: URL[];
  readonly #agents = { "http:": new http.Agent({ keepAlive: true }), "https:": new https.Agent({ keepAlive: true }) };
  #current = 0;
  #tls: { ca?: Buffer; cert?: Buffer; key?: Buffer };
  #token = "";
  #loggedIn: boolean;
  #login: Promise<void> | undefined;

  constructor(options: GatewayOptions) {
    this.#options = options;
    this.timeout = options.timeout;
    this.#endpoints = options.endpoints.map(parseEndpoint);
    if (!this.#endpoints.length) throw new RefusedError("no endpoint of etcd was given");
    this.#tls = this.#certificates();
    this.#loggedIn = !options.user;
  }

  /** Has something cleaned up if the process ends. Returns how to take that back. */
  atExit(cleanup: () => Cleanup): () => void {
    return this.#options.releaseAtExit ? atExit(this.#options, cleanup) : () => undefined;
  }

  /** Sends a transaction until its outcome is known. */
  transact(step: Step, k: Keys, input: Input, patience: Patience): Promise<Outcome> {
    const body = JSON.stringify(transactions[step](k, input));
    const meaning = (answer: Answer, unanswered: boolean) => judge(step, k, { ...input, unanswered }, answer);
    return this.#send("/v3/kv/txn", body, patience, meaning);
  }

  /** Sends any other request until it is answered. It belongs to a step whose errors have a meaning of their own. */
  call(path: string, body: object, patience: Patience, step?: Step): Promise<Outcome> {
    const meaning = (answer: Answer) => judgeFault(answer, step) ?? { verdict: "answered" as const };
    return this.#send(path, JSON.stringify(body), patience, meaning);
  }

  async #send(
    path: string, body: string, { until, signal, background = false }: Patience,
    meaning: (answer: Answer, unanswered: boolean) => Verdict,
  ): Promise<Outcome> {
    let doubt = false;
    let logins = 0;
    const fail = (error: RefusedError | UnavailableError): Outcome =>
      ({ verdict: "unanswered", error, doubt, body: { header: { revision: "0" } } });
    for (let sends = 0; ; sends++) {
      const left = Math.max(until - performance.now(), 300) / 1000;
      const seconds = Math.min(this.timeout, left / 3); // a member that hangs leaves time for the others
      const token = this.#token;
      let answer: Answer = {};
      let why = "";
      try {
        await this.#authenticate(seconds);
        answer = await this.#exchange({ path, body, seconds, signal, background });
        why = messageOf(answer) ?? `HTTP status ${answer.status ?? 0}: is its JSON gateway enabled?`;
      } catch (error) {
        if (error instanceof RefusedError) return fail(error);
        why = reasonOf(error);
        doubt ||= !(error instanceof UnsentError);
      }
      const verdict = meaning(answer, doubt);
      if (answer.status !== undefined) doubt ||= verdict.doubt ?? false;
      if (verdict.verdict === "login" && this.#options.user && logins++ < mostLogins) {
        if (this.#token === token) this.#loggedIn = false; // else another request has logged in meanwhile
      } else if (verdict.verdict === "login" || verdict.verdict === "report") {
        return fail(new RefusedError(why));
      } else if (verdict.verdict !== "resend") {
        return { ...verdict, verdict: verdict.verdict, doubt, body: answer.body as Outcome["body"] };
      } else {
        this.#failOver();
        const wait = Math.min(longestPause, 20 * 2 ** sends) * (0.5 + Math.random() / 2);
        if (signal?.aborted || performance.now() + wait >= until) {
          return fail(new UnavailableError(`etcd gave no answer: ${why}`));
        }
        await sleep(wait, undefined, { ref: !background, ...(signal && { signal }) }).catch(() => undefined);
      }
    }
  }

  /** Logs in if there is a user and no valid token. Calls at the same time share one login. */
  #authenticate(seconds: number): Promise<void> | undefined {
    if (this.#loggedIn) return undefined;
    const login = async () => {
      const { user: name, password } = this.#options;
      const body = JSON.stringify({ name, password });
      const answer = await this.#exchange({ path: "/v3/auth/authenticate", body, seconds }).catch((error: unknown) => {
        throw new UnsentError(`login: ${reasonOf(error)}`);
      });
      const { token, code } = (answer.body ?? {}) as { token?: string; code?: number };
      if (!token && code !== 9) { // 9: this etcd has no users
        const why = `login as ${JSON.stringify(name)}: ${messageOf(answer) ?? "no token"}`;
        throw judgeFault(answer)?.verdict === "report" ? new RefusedError(why) : new UnsentError(why);
      }
      this.#token = token ?? "";
      this.#loggedIn = true;
    };
    this.#login ??= login().finally(() => this.#login = undefined);
    return this.#login;
  }

  /** One request to the current member, and its answer. */
  async #exchange(what: Exchange): Promise<Answer> {
    const response = await this.#post(what);
    const body = parseObject(await textOf(response));
    return { status: response.statusCode ?? 0, ...(Object.keys(body).length && { body }) };
  }

  /** Sends one request, and returns when its answer begins. Rejects with an UnsentError if no connection was made. */
  #post({ path, body, seconds, signal, background }: Exchange): Promise<http.IncomingMessage> {
    const url = new URL(path, this.#endpoints[this.#current % this.#endpoints.length]);
    const { protocol } = url as { protocol: "http:" | "https:" };
    const headers = {
      "content-type": "application/json", "content-length": Buffer.byteLength(body),
      "grpc-metadata-hasleader": "true", // a member without a leader refuses
      ...(this.#token && { authorization: this.#token }),
    };
    const agent = seconds ? this.#agents[protocol] : false; // a watch has a connection of its own
    return new Promise((resolve, reject) => {
      const request = (protocol === "https:" ? https : http).request(
        url, { method: "POST", headers, agent, ...this.#tls, ...(signal && { signal }) }, resolve);
      let connected = false;
      request.on("socket", (socket) => {
        if (background) socket.unref();
        socket.setKeepAlive(true, 10_000); // a peer that vanished silently is noticed
        connected = !socket.connecting; // else it is a new one
        if (!connected) socket.once(protocol === "https:" ? "secureConnect" : "connect", () => connected = true);
      });
      request.on("error", (error) => reject(connected ? error : new UnsentError(reasonOf(error))));
      if (seconds) {
        const silence = new Error(`no answer in ${seconds.toFixed(1)} s`);
        const timer = setTimeout(() => request.destroy(silence), seconds * 1000);
        if (background) timer.unref();
        request.on("close", () => clearTimeout(timer));
      }
      request.end(body);
    });
  }

  /** Turns to the next member, with the certificates that there are now. */
  #failOver() {
    this.#current = (this.#current + 1) % this.#endpoints.length;
    try {
      this.#tls = this.#certificates();
    } catch {
      // A file is being replaced: the ones that were read last do meanwhile.
    }
  }

  #certificates() {
    const { ca, cert, key } = this.#options;
    try {
      return {
        ...(ca && { ca: readFileSync(ca) }),
        ...(cert && { cert: readFileSync(cert) }),
        ...(key && { key: readFileSync(key) }),
      };
    } catch (error) {
      throw new RefusedError(`certificates: ${reasonOf(error)}`);
    }
  }

  /**
   * Opens watches on ranges of keys, and returns when etcd has confirmed all of them. Rejects after one attempt: the
   * caller looks again before the next.
   */
  async watch(ranges: object[], { signal, background = false }: Omit<Patience, "until">): Promise<Watch> {
    const end = new AbortController();
    const silence = new UnavailableError("etcd did not confirm a watch");
    const timeout = setTimeout(() => end.abort(silence), this.timeout * 1000);
    if (background) timeout.unref();
    const watch = new Watch(ranges.length, end, signal, background);
    let token = "";
    try {
      await this.#authenticate(this.timeout);
      token = this.#token;
      const body = ranges.map((range) => JSON.stringify({ create_request: range })).join("");
      const exchange = { path: "/v3/watch", body, seconds: 0, signal: end.signal, background };
      watch.follow(await this.#post(exchange));
      await watch.opened;
      return watch;
    } catch (error) {
      watch.close();
      if (!(error instanceof RefusedError)) this.#failOver();
      const expired = /Unauthenticated|auth token|auth store/.test(reasonOf(error));
      if (expired && this.#token === token) this.#loggedIn = !this.#options.user;
      throw error;
    } finally {
      clearTimeout(timeout);
    }
  }
}

/** No part of the request has left this process. */
class UnsentError extends Error {}

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
    this.opened.catch(() => undefined); // somebody may give up before
    const wake = () => this.#wake();
    signal?.addEventListener("abort", wake);
    end.signal.addEventListener("abort", () => {
      signal?.removeEventListener("abort", wake);
      this.#fail(end.signal.reason instanceof Error ? end.signal.reason : new UnavailableError("the watch was closed"));
      wake();
    });
  }

  /** It will see no more events. */
  get ended() { return this.end.signal.aborted; }

  close() { this.end.abort(new UnavailableError("the watch was closed")); }

  follow(response: http.IncomingMessage) {
    let rest = "";
    response.setEncoding("utf8").on("data", (chunk: string) => {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) this.#read(line);
    });
    response.on("error", () => this.close()).on("close", () => this.close());
  }

  #read(line: string) {
    const { result, error } = parseObject(line) as {
      result?: { created?: boolean; canceled?: boolean; cancel_reason?: string; events?: WatchEvent[] };
      error?: { message?: string };
    };
    if (error || result?.canceled) { // a refused watch is "created", too
      const why = error?.message ?? result?.cancel_reason ?? "no reason given";
      this.end.abort(new UnavailableError(`etcd ended a watch: ${why}`));
    } else if (result?.created && --this.unconfirmed === 0) {
      this.#open();
    }
    if (result?.events) {
      this.#events.push(...result.events);
      this.#wake();
    }
  }

  /** Wakes whoever waits in {@link next}. */
  wake() { this.#wake(); }

  /** Returns the next events, or none when the time is over, the watch has ended, or somebody wakes it. */
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

function parseEndpoint(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === "http:" || url?.protocol === "https:") return url;
  throw new RefusedError(`endpoint ${JSON.stringify(text)}: want a URL such as http://127.0.0.1:2379`);
}

const messageOf = ({ body }: Answer) => asText(errorIn(body)?.message);

/** An error in words. Those of Node about several addresses have none of their own. */
function reasonOf(error: unknown): string {
  if (error instanceof AggregateError && !error.message) return error.errors.map(reasonOf).join(", ");
  return error instanceof Error ? error.message || error.name : String(error);
}
