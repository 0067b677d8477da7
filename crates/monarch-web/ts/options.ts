import { MonarchError } from "./errors.js";

/** Says what a value should have been, or nothing when it is fine. */
type Check = (value: unknown) => string | undefined;

/** Every option of a call, each with its check. A name that is not here is refused. */
export type Checks<Options> = { readonly [Name in keyof Required<Options>]: Check };

/**
 * A copy of `options` whose every name and value was checked.
 *
 * The copy is the point: what the caller does to the object afterwards no longer matters.
 * `undefined` counts as absent.
 */
export function checkOptions<Options extends object>(
  call: string,
  options: Options,
  checks: Checks<Options>,
): Options {
  if (typeof options !== "object" || options === null) {
    throw invalidOption(call, "options", options, "an object");
  }
  const checked: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    if (!Object.hasOwn(checks, name)) {
      const known = Object.keys(checks).sort().join(", ");
      throw new MonarchError("invalid-option", `${call}: no option is named "${name}"; there are ${known}`, {
        details: { call, option: name },
      });
    }
    const wanted = checks[name as keyof Options](value);
    if (wanted !== undefined) throw invalidOption(call, name, value, wanted);
    checked[name] = value;
  }
  return checked as Options;
}

/** The error for one option whose value is not what it should be. */
export function invalidOption(call: string, option: string, value: unknown, wanted: string): MonarchError {
  return new MonarchError("invalid-option", `${call}: ${option} is ${show(value)}, but should be ${wanted}`, {
    details: { call, option, value, wanted },
  });
}

/** A whole number from `least` to `most`. */
export function integer(least: number, most: number): Check {
  return (value) =>
    Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most
      ? undefined
      : `a whole number from ${least} to ${most}`;
}

/** A finite number from `least` to `most`. */
export function number(least: number, most: number): Check {
  return (value) =>
    typeof value === "number" && value >= least && value <= most ? undefined : `a number from ${least} to ${most}`;
}

/** `true` or `false`. */
export const flag: Check = (value) => (typeof value === "boolean" ? undefined : "true or false");

/** Any function. */
export const callback: Check = (value) => (typeof value === "function" ? undefined : "a function");

/** An `AbortSignal`, also one of another realm (an iframe's). */
export const abortSignal: Check = (value) =>
  typeof value === "object" && value !== null && "aborted" in value && "addEventListener" in value
    ? undefined
    : "an AbortSignal";

/** An address: a string or a `URL`. */
export const address: Check = (value) =>
  typeof value === "string" || value instanceof URL ? undefined : "a string or a URL";

/** One of the listed words. */
export function oneOf(...words: readonly string[]): Check {
  return (value) =>
    typeof value === "string" && words.includes(value) ? undefined : words.map((word) => `"${word}"`).join(" or ");
}

/** An object whose own options are checked the same way. */
export function group<Options extends object>(call: string, checks: Checks<Options>): Check {
  return (value) => {
    if (typeof value !== "object" || value === null) return "an object";
    checkOptions(call, value as Options, checks);
    return undefined;
  };
}

/** An array whose items are objects. */
export const objects: Check = (value) =>
  Array.isArray(value) && value.every((item) => typeof item === "object" && item !== null)
    ? undefined
    : "an array of objects";

/** An array of strings, none of them empty. */
export const filledStrings: Check = (value) =>
  Array.isArray(value) && value.every((item) => typeof item === "string" && item !== "")
    ? undefined
    : "an array of strings, none of them empty";

function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "object" && value !== null) return Array.isArray(value) ? "an array" : "an object";
  return String(value);
}
