// Where in the author's file a thing was made. The stack is taken when the thing is made and mapped to the source by
// the program's host; a value that was copied with a spread has none and borrows that of what holds it.

const site = Symbol.for('kici.site');

/** Remembers where `value` was made. */
export function mark<T extends object>(value: T): T {
  Object.defineProperty(value, site, { value: new Error('site').stack ?? '', configurable: true });
  return value;
}

const blame = Symbol.for('kici.blame');

/** Remembers what is wrong with how `value` was made, if anything: the compiler tells it with all other mistakes. The
 * message goes on after the name of the thing. */
export function blamed<T extends object>(value: T, message: string | undefined): T {
  if (message !== undefined && blameOf(value) === undefined) Object.defineProperty(value, blame, { value: message });
  return value;
}

/** What is wrong with how `value` was made. */
export function blameOf(value: unknown): string | undefined {
  return (value as any)?.[blame];
}

/** A copy that remembers what the value does: a spread forgets it. */
export function copied<T extends object>(value: T): T {
  const copy: any = { ...value };
  for (const memory of [site, blame]) if ((value as any)[memory] !== undefined) Object.defineProperty(copy, memory, { value: (value as any)[memory], configurable: true });
  return copy;
}

/** The stack of where `value` was made, '' when it is not known. */
export function siteOf(value: unknown): string {
  return (value as any)?.[site] ?? '';
}
