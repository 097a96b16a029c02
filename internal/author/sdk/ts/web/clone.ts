// structuredClone: a deep copy of what is data.

/** Copies data deeply, with its cycles. Functions, symbols and objects of a host cannot be copied. */
export function structuredClone(value: unknown): unknown {
  return copy(value, new Map());
}

function copy(value: any, seen: Map<object, unknown>): any {
  if (typeof value === 'function' || typeof value === 'symbol') throw uncloneable(value);
  if (value === null || typeof value !== 'object') return value;
  if (seen.has(value)) return seen.get(value);
  const plain = whole(value, seen);
  if (plain !== undefined) {
    seen.set(value, plain);
    return plain;
  }
  return container(value, seen);
}

// whole copies an object that holds no others.
function whole(value: any, seen: Map<object, unknown>): any {
  if (value instanceof Date) return new Date(value.getTime());
  if (value instanceof RegExp) return new RegExp(value.source, value.flags);
  if (value instanceof Boolean || value instanceof Number || value instanceof String) return Object(value.valueOf());
  if (value instanceof ArrayBuffer) return value.slice(0);
  if (ArrayBuffer.isView(value)) {
    const view = value as any;
    const buffer = copy(view.buffer, seen);
    return new view.constructor(buffer, view.byteOffset, view instanceof DataView ? view.byteLength : view.length);
  }
  if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) throw uncloneable(value);
  return undefined;
}

function container(value: any, seen: Map<object, unknown>): any {
  const note = <T extends object>(made: T): T => (seen.set(value, made), made);
  if (value instanceof Map) {
    const made = note(new Map());
    for (const [k, v] of value) made.set(copy(k, seen), copy(v, seen));
    return made;
  }
  if (value instanceof Set) {
    const made = note(new Set());
    for (const v of value) made.add(copy(v, seen));
    return made;
  }
  if (value instanceof Error) return note(copyError(value, seen));
  const made: any = note(Array.isArray(value) ? new Array(value.length) : {});
  for (const key of Object.keys(value)) made[key] = copy(value[key], seen);
  return made;
}

const errors: Record<string, any> = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

function copyError(error: any, seen: Map<object, unknown>): Error {
  const made = Object.create((errors[error.name] ?? Error).prototype);
  for (const key of ['stack', 'message', 'cause']) {
    if (Object.hasOwn(error, key)) Object.defineProperty(made, key, { value: copy(error[key], seen), writable: true, configurable: true });
  }
  return made;
}

function uncloneable(value: any): Error {
  const what = typeof value === 'object' ? Object.prototype.toString.call(value) : String(value);
  return Object.assign(new Error(`${what} could not be cloned.`), { name: 'DataCloneError', code: 25 });
}
