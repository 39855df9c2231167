/** The endpoints of etcd's members, and the latest failure of each. */

import { RefusedError, UnavailableError } from "./errors.js";
import { plain, visible } from "./record.js";

/** Parses `host`, `host:port`, or a URL with either and an optional path. Returns a URL without a trailing slash. */
export function parseEndpoint(text: string): string {
  const shape = /^(?:(https?):\/\/)?([^/?#@]+?)(?::([0-9]{1,5}))?(\/[^?#]*)?$/i;
  const [all, scheme = "http", host = "", port = "2379", path = ""] = shape.exec(text) ?? [];
  const url = `${scheme.toLowerCase()}://${host}:${port}${path.replace(/\/+$/, "")}`;
  if (all !== undefined && !/[\s\\]/.test(text) && URL.canParse(url)) return url;
  if (text.includes("@")) { // do not repeat the credentials
    throw new RefusedError("an endpoint must not contain a user or password: give them as user and password");
  }
  throw new RefusedError(`endpoint ${plain(text)}: want http://HOST:PORT or https://HOST:PORT`);
}

/** Why an endpoint did not answer. */
interface Cause { text: string; isUntrusted: boolean }

/** The endpoints that failed in one call, each with its latest cause. */
export class Causes {
  readonly #all = new Map<string, Cause>();

  /** Records the latest cause; an empty one after an answer. Silence in a hurry says less than an earlier cause. */
  add(endpoint: string, text: string, isUntrusted = false, isHurried = false) {
    if (isHurried && text.includes("no answer in") && this.#all.has(endpoint)) return;
    if (text) this.#all.set(endpoint, { text: visible(text, 200), isUntrusted });
    else this.#all.delete(endpoint);
  }

  /** Reports whether no endpoint has a trusted certificate, so that retrying will not help. */
  areUntrusted(endpoints: string[]) { return endpoints.every((endpoint) => this.#all.get(endpoint)?.isUntrusted); }

  /** Lists the causes in the order of the endpoints. */
  error(endpoints: string[]): RefusedError | UnavailableError {
    const asked = endpoints.flatMap((endpoint) => {
      const cause = this.#all.get(endpoint);
      return cause ? [{ ...cause, endpoint }] : [];
    });
    const sentence = ({ endpoint, text, isUntrusted }: typeof asked[number]) =>
      isUntrusted ? `the certificate of ${endpoint} is not trusted: ${text}` : `${endpoint}: ${text}`;
    const said = asked.map(sentence).join("; ");
    const isRefused = asked.length > 0 && asked.every((cause) => cause.isUntrusted);
    if (isRefused) return new RefusedError(said);
    const isFull = asked.length > 0 && asked.every((cause) => cause.text.includes("space exceeded"));
    const failed = isFull ? "etcd is out of space and accepts no writes" : "etcd did not answer";
    return new UnavailableError(`${failed}: ${said}`);
  }
}
