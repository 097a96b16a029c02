// Where in the author's file a thing was made. The stack is taken when the thing is made and mapped to the source by
// the program's host; a value that was copied with a spread has none and borrows that of what holds it.

const site = Symbol.for('kici.site');

/** Remembers where `value` was made. */
export function mark<T extends object>(value: T): T {
  Object.defineProperty(value, site, { value: new Error('site').stack ?? '', configurable: true });
  return value;
}

/** The stack of where `value` was made, '' when it is not known. */
export function siteOf(value: unknown): string {
  return (value as any)?.[site] ?? '';
}
