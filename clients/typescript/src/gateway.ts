/** A client of etcd's JSON gateway: requests that are repeated until answered, logins, and watches. */

import { setTimeout as sleep } from "node:timers/promises";

import type { Cleanup } from "./cleanup.js";
import { Causes, parseEndpoint } from "./endpoint.js";
import { RefusedError, UnavailableError } from "./errors.js";
import { atExit } from "./exit.js";
import { asText } from "./record.js";
import { bodyOf } from "./shares.js";
import { errorIn, judgeFault } from "./transactions.js";
import type { Answer, Input, Keys, Step, TxnAnswer, Verdict } from "./transactions.js";
import { reasonOf, Transport, UnsentError, UntrustedError, type Files } from "./transport.js";
import { verdictOf } from "./verdicts.js";
import { Watch } from "./watch.js";

export interface GatewayOptions extends Files {
  endpoints: string[];
  user: string;
  password: string;
  /** Seconds for a call that does not wait for a lock, and the maximum for one request. */
  timeout: number;
  /** Whether unfinished work is cleaned up when the process ends. */
  releaseAtExit: boolean;
  /** The index of the endpoint to try first. */
  first?: number;
}

/** How long to keep trying. */
export interface Patience {
  /** When to stop sending, by performance.now(). */
  until: number;
  signal?: AbortSignal | undefined;
  /** It does not keep the process alive. */
  background?: boolean;
  /** The failures of the whole call that the request belongs to. */
  causes?: Causes;
}

/** The final outcome of a request. */
export interface Outcome extends Omit<Verdict, "verdict"> {
  verdict: Exclude<Verdict["verdict"], "resend" | "login" | "report"> | "unanswered";
  /** Why there is no answer; only for "unanswered". */
  error?: RefusedError | UnavailableError;
  /** A send got no answer: it may have been applied, or may yet be. */
  doubt: boolean;
  body: TxnAnswer & Record<string, unknown>;
}

type Meaning = (answer: Answer, unanswered: boolean) => Verdict;

const shortestSend = 100; // milliseconds
const shortestPause = 50; // before the first resend; each pause is twice as long as the previous one
const longestPause = 1000;

export class Gateway {
  readonly timeout: number;
  readonly #options: GatewayOptions & { first: number }; // `first` changes
  readonly #endpoints: string[];
  readonly #transport: Transport;
  #token = "";
  #loggedIn: boolean;
  #login: Promise<void> | undefined;

  constructor(options: GatewayOptions) {
    this.#options = { first: 0, ...options };
    this.timeout = options.timeout;
    this.#endpoints = options.endpoints.map(parseEndpoint);
    if (!this.#endpoints.length) throw new RefusedError("no etcd endpoint was given");
    this.#transport = new Transport(options);
    this.#loggedIn = !options.user;
  }

  /** Registers a cleanup for the end of the process. Returns a function that unregisters it. */
  atExit(cleanup: () => Cleanup): () => void {
    return this.#options.releaseAtExit ? atExit(this.#options, cleanup) : () => undefined;
  }

  /** Sends a transaction until its outcome is known. */
  transact(step: Step, k: Keys, input: Input, patience: Patience): Promise<Outcome> {
    const body = JSON.stringify(bodyOf(step, k, input));
    return this.#send("/v3/kv/txn", body, patience, (answer, unanswered) =>
      verdictOf(step, k, { ...input, unanswered }, answer));
  }

  /** Sends any other request until it is answered. `step` determines what errors mean. */
  call(path: string, body: object, patience: Patience, step?: Step): Promise<Outcome> {
    return this.#send(path, JSON.stringify(body), patience, (answer) =>
      judgeFault(answer, step) ?? { verdict: "answered" });
  }

  async #send(path: string, body: string, patience: Patience, meaning: Meaning): Promise<Outcome> {
    const { until, signal, background = false, causes = new Causes() } = patience;
    let doubt = false;
    let mayLogIn = this.#options.user !== "";
    const fail = (error: RefusedError | UnavailableError): Outcome =>
      ({ verdict: "unanswered", error, doubt, body: { header: { revision: "0" } } });
    for (let sends = 0; ; sends++) {
      const endpoint = this.#endpoint;
      const token = this.#token;
      const send = this.#share(until);
      let answer: Answer = {};
      try {
        await this.#authenticate(endpoint, send);
        const exchange = { url: endpoint + path, body, token: this.#token, seconds: send, signal, background };
        answer = await this.#transport.exchange(exchange);
      } catch (error) {
        if (error instanceof RefusedError) return fail(error);
        causes.add(endpoint, reasonOf(error), error instanceof UntrustedError, send < this.timeout);
        doubt ||= !(error instanceof UnsentError);
      }
      const verdict = meaning(answer, doubt);
      if (answer.status !== undefined) {
        doubt ||= verdict.doubt ?? false;
        causes.add(endpoint, verdict.verdict === "resend" ? causeOf(answer) : "");
      }
      if (verdict.verdict === "login" && mayLogIn) {
        mayLogIn = false;
        if (this.#token === token) this.#loggedIn = false; // unless another request has logged in meanwhile
      } else if (verdict.verdict === "login" || verdict.verdict === "report") {
        return fail(new RefusedError(messageOf(answer)));
      } else if (verdict.verdict !== "resend") {
        return { ...verdict, verdict: verdict.verdict, doubt, body: answer.body as Outcome["body"] };
      } else {
        this.#failOver(endpoint);
        const left = until - performance.now();
        if (left <= 0 || signal?.aborted || causes.areUntrusted(this.#endpoints)) {
          return fail(causes.error(this.#endpoints));
        }
        const pause = Math.min(longestPause, shortestPause * 2 ** sends) * (0.5 + Math.random() / 2);
        const options = { ref: !background, ...(signal && { signal }) };
        await sleep(Math.min(pause, left), undefined, options).catch(() => undefined);
      }
    }
  }

  /** Seconds for one send, so that a hanging member leaves time for the others. */
  #share(until: number): number {
    return Math.min(this.timeout, Math.max(until - performance.now(), 3 * shortestSend) / 3000);
  }

  get #endpoint() { return this.#endpoints[this.#options.first] ?? ""; }

  /** Logs in if there is a user and no valid token. Concurrent calls share one login, each with its own time limit. */
  async #authenticate(endpoint: string, seconds: number): Promise<void> {
    if (this.#loggedIn) return;
    this.#login ??= this.#logIn(endpoint, seconds).finally(() => this.#login = undefined);
    const over = new AbortController();
    const tooLate = sleep(seconds * 1000, undefined, over).then(
      () => { throw new UnsentError(`login: no answer in ${seconds.toFixed(1)} s`); }, () => undefined);
    await Promise.race([this.#login, tooLate]).finally(() => over.abort());
  }

  async #logIn(endpoint: string, seconds: number) {
    const { user: name, password } = this.#options;
    const exchange = {
      url: endpoint + "/v3/auth/authenticate", body: JSON.stringify({ name, password }), token: "", seconds,
    };
    const answer = await this.#transport.exchange(exchange).catch((error: unknown) => {
      if (error instanceof UntrustedError) throw error;
      throw new UnsentError(`login: ${reasonOf(error)}`);
    });
    const { token } = (answer.body ?? {}) as { token?: unknown };
    const isWithoutUsers = errorIn(answer.body)?.code === 9 && messageOf(answer).includes("not enabled");
    if (typeof token !== "string" && !isWithoutUsers) {
      const isFinal = ["report", "login"].includes(judgeFault(answer)?.verdict ?? "");
      if (isFinal) throw new RefusedError(`login as ${JSON.stringify(name)}: ${messageOf(answer)}`);
      throw new UnsentError(`login: ${causeOf(answer)}`);
    }
    this.#token = isWithoutUsers ? "" : String(token);
    this.#loggedIn = true;
  }

  /** Switches to the next member, unless another request already did. */
  #failOver(failed: string) {
    if (this.#endpoint === failed) this.#options.first = (this.#options.first + 1) % this.#endpoints.length;
  }

  /**
   * Opens watches on ranges of keys, and resolves when etcd has confirmed all of them. Rejects after one attempt,
   * because the caller has to look again before the next.
   */
  async watch(ranges: object[], { until, signal, background = false }: Patience): Promise<Watch> {
    const end = new AbortController();
    const seconds = this.#share(until);
    const endpoint = this.#endpoint;
    const silence = new UnavailableError("etcd did not confirm a watch");
    const timeout = setTimeout(() => end.abort(silence), seconds * 1000);
    if (background) timeout.unref();
    const watch = new Watch(ranges.length, end, signal, background);
    let token = "";
    try {
      await this.#authenticate(endpoint, seconds);
      token = this.#token;
      const body = ranges.map((range) => JSON.stringify({ create_request: range })).join("");
      const url = endpoint + "/v3/watch";
      watch.follow(await this.#transport.post({ url, body, token, seconds: 0, signal: end.signal, background }));
      await watch.opened;
      return watch;
    } catch (error) {
      watch.close();
      if (!(error instanceof RefusedError)) this.#failOver(endpoint);
      const expired = /Unauthenticated|auth token|auth store/.test(reasonOf(error));
      if (expired && this.#token === token) this.#loggedIn = !this.#options.user;
      throw error;
    } finally {
      clearTimeout(timeout);
    }
  }
}

/** The message of an etcd error; empty if the answer is not from etcd. */
const messageOf = ({ body }: Answer) => asText(errorIn(body)?.message) ?? "";

/** Why an HTTP response is not an answer from etcd, or which error it is. */
function causeOf(answer: Answer): string {
  const message = messageOf(answer);
  return `HTTP ${answer.status ?? 0}` + (message ? `: ${message}` : ", which is not an answer from etcd");
}
