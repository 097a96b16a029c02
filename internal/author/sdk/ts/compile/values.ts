// What JSON cannot hold. An option that is passed on as it was written, such as the preparation of a job, may have
// anything in it.

/** Says which part of a value JSON cannot hold, and why; undefined when it can hold all of it. */
export function unwritable(value: unknown, name: string, around: unknown[] = []): string | undefined {
  if (typeof value === 'bigint') return `${name} is a bigint`;
  if (value === null || typeof value !== 'object') return undefined;
  if (around.includes(value)) return `${name} holds itself`;
  for (const [key, inner] of Object.entries(value)) {
    const part = unwritable(inner, Array.isArray(value) ? `${name}[${key}]` : `${name}.${key}`, [...around, value]);
    if (part) return part;
  }
  return undefined;
}
