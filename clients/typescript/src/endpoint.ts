/** Where a member of etcd is reached: endpoints as they are given, and what they said last. */

import { RefusedError, UnavailableError } from "./errors.js";
import { plain, visible } from "./record.js";

/** Reads `host`, `host:port`, or a URL with either and perhaps a path, and returns a URL without a slash at its end. */
export function parseEndpoint(text: string): string {
  const shape = /^(?:(https?):\/\/)?([^/?#@]+?)(?::([0-9]{1,5}))?(\/[^?#]*)?$/i;
  const [all, scheme = "http", host = "", port = "2379", path = ""] = shape.exec(text) ?? [];
  const url = `${scheme.toLowerCase()}://${host}:${port}${path.replace(/\/+$/, "")}`;
  if (all !== undefined && !/[\s\\]/.test(text) && URL.canParse(url)) return url;
  if (text.includes("@")) { // neither is repeated
    throw new RefusedError("an endpoint must not contain a user or password: give them as user and password");
  }
  throw new RefusedError(`endpoint ${plain(text)}: want http://HOST:PORT or https://HOST:PORT`);
}

/** Why an endpoint gave no answer. */
interface Cause { text: string; isUntrusted: boolean }

/** The endpoints that were asked in one call and gave no answer, each with its latest cause. */
export class Causes {
  readonly #all = new Map<string, Cause>();

  /** Notes the latest cause; an empty one after an answer. */
  add(endpoint: string, text: string, isUntrusted = false) {
    if (text) this.#all.set(endpoint, { text: visible(text, 200), isUntrusted });
    else this.#all.delete(endpoint);
  }

  /** Reports whether no endpoint is to be trusted: asking again will not help. */
  areUntrusted(endpoints: string[]) { return endpoints.every((endpoint) => this.#all.get(endpoint)?.isUntrusted); }

  /** Names the endpoints in their order. */
  error(endpoints: string[]): RefusedError | UnavailableError {
    const asked = endpoints.flatMap((endpoint) => {
      const cause = this.#all.get(endpoint);
      return cause ? [{ ...cause, endpoint }] : [];
    });
    const sentence = ({ endpoint, text, isUntrusted }: typeof asked[number]) =>
      isUntrusted ? `the certificate of ${endpoint} is not trusted: ${text}` : `${endpoint}: ${text}`;
    const said = asked.map(sentence).join("; ");
    const isRefused = asked.length > 0 && asked.every((cause) => cause.isUntrusted);
    return isRefused ? new RefusedError(said) : new UnavailableError(`etcd did not answer: ${said}`);
  }
}
