// The parts of the small schema builder: what answers to `zod` where a repository has not installed zod itself. Every
// schema carries `_zod.def` in the shape of zod 4, so that one reader understands both.

import { shown } from './report';

/** One reason why a value does not fit, with the way to it. */
export interface Issue {
  code: string;
  path: (string | number)[];
  message: string;
}

/** The error of a value that does not fit its schema. */
export class SchemaError extends Error {
  readonly issues: Issue[];
  constructor(issues: Issue[]) {
    super(issues.map((i) => (i.path.length ? `${i.path.join('.')}: ${i.message}` : i.message)).join('; '));
    this.name = 'ZodError';
    this.issues = issues;
  }
}

/** A bound or a format, as zod 4 keeps them, with the test itself. */
export interface Check {
  _zod: { def: any };
  test(value: any): boolean;
  code: string;
  message: string;
}

type Read = (value: any, report: Report) => unknown;

// Report collects issues under the path of the value being read.
class Report {
  readonly issues: Issue[] = [];
  path: (string | number)[] = [];
  add(code: string, message: string): undefined {
    this.issues.push({ code, path: [...this.path], message });
    return undefined;
  }
  at<T>(key: string | number, f: () => T): T {
    this.path.push(key);
    try {
      return f();
    } finally {
      this.path.pop();
    }
  }
}

/** The name of a value's kind, as messages use it. */
export function kindOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  if (typeof value === 'number' && Number.isNaN(value)) return 'NaN';
  return typeof value;
}

/** A schema: what a value must be. Schemas do not change; each method gives a new one. */
export class Schema {
  readonly _zod: { def: any };
  protected readonly read: Read;
  protected readonly checks: Check[];

  constructor(def: any, read: Read, checks: Check[] = []) {
    this._zod = { def: { ...def, checks } };
    this.read = read;
    this.checks = checks;
  }

  /** For the schemas that hold others; not for authors. */
  run(value: unknown, report: Report): unknown {
    const before = report.issues.length;
    const result = this.read(value, report);
    if (report.issues.length > before) return undefined;
    for (const c of this.checks) if (!c.test(result)) report.add(c.code, c.message);
    return result;
  }

  safeParse(value: unknown): { success: true; data: any } | { success: false; error: SchemaError } {
    const report = new Report();
    const data = this.run(value, report);
    return report.issues.length ? { success: false, error: new SchemaError(report.issues) } : { success: true, data };
  }

  parse(value: unknown): any {
    const r = this.safeParse(value);
    if (!r.success) throw r.error;
    return r.data;
  }

  protected with(check: Check): this {
    const { checks: _, ...def } = this._zod.def;
    return new (this.constructor as any)(def, this.read, [...this.checks, check]);
  }

  optional(): Schema {
    return new Schema({ type: 'optional', innerType: this }, (v, r) => (v === undefined ? undefined : this.run(v, r)));
  }
  nullable(): Schema {
    return new Schema({ type: 'nullable', innerType: this }, (v, r) => (v === null ? null : this.run(v, r)));
  }
  nullish(): Schema {
    return this.nullable().optional();
  }
  default(value: any): Schema {
    const fallback = () => (typeof value === 'function' ? value() : value);
    const def = { type: 'default', innerType: this, get defaultValue() { return fallback(); } };
    return new Schema(def, (v, r) => (v === undefined ? fallback() : this.run(v, r)));
  }
  array(): List {
    return listOf(this);
  }
  or(other: Schema): Schema {
    return unionOf([this, other]);
  }
  describe(_text: string): this {
    return this;
  }
  meta(_data: unknown): this {
    return this;
  }
  refine(test: (value: any) => unknown, options?: string | { message?: string }): this {
    const message = (typeof options === 'string' ? options : options?.message) ?? 'invalid value';
    return this.with({ _zod: { def: { check: 'custom' } }, test: (v) => Boolean(test(v)), code: 'custom', message });
  }
}

/** A check with the definition that zod 4 gives it. */
const check = (def: any, code: string, message: string, test: (v: any) => boolean): Check => ({ _zod: { def }, code, message, test });

/** Text. Lengths count UTF-16 units. */
export class Text extends Schema {
  min(n: number): this {
    return this.with(check({ check: 'min_length', minimum: n }, 'too_small', `must have at least ${n} characters`, (v) => v.length >= n));
  }
  max(n: number): this {
    return this.with(check({ check: 'max_length', maximum: n }, 'too_big', `must have at most ${n} characters`, (v) => v.length <= n));
  }
  length(n: number): this {
    return this.with(check({ check: 'length_equals', length: n }, 'invalid_length', `must have ${n} characters`, (v) => v.length === n));
  }
  nonempty(): this {
    return this.min(1);
  }
  regex(pattern: RegExp): this {
    if (!(pattern instanceof RegExp)) throw new TypeError(`regex() takes a regular expression, not ${shown(pattern)}`);
    const test = new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, '')); // g and y would remember a position
    return this.with(check({ check: 'string_format', format: 'regex', pattern }, 'invalid_format', `must match ${pattern}`, (v) => test.test(v)));
  }
  startsWith(prefix: string): this {
    return this.with(check({ check: 'string_format', format: 'starts_with', prefix }, 'invalid_format', `must start with "${prefix}"`, (v) => v.startsWith(prefix)));
  }
  endsWith(suffix: string): this {
    return this.with(check({ check: 'string_format', format: 'ends_with', suffix }, 'invalid_format', `must end with "${suffix}"`, (v) => v.endsWith(suffix)));
  }
  includes(part: string): this {
    return this.with(check({ check: 'string_format', format: 'includes', includes: part }, 'invalid_format', `must include "${part}"`, (v) => v.includes(part)));
  }
  email(): this {
    return this.format('email', /^[^\s@]+@[^\s@]+\.[^\s@]+$/);
  }
  url(): this {
    return this.format('url', /^[a-z][a-z\d+.-]*:\/\/[^\s/?#]+\S*$/i);
  }
  uuid(): this {
    return this.format('uuid', /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i);
  }
  private format(format: string, pattern: RegExp): this {
    return this.with(check({ check: 'string_format', format, pattern }, 'invalid_format', `must be a valid ${format}`, (v) => pattern.test(v)));
  }
}

/** A finite number. */
export class Num extends Schema {
  int(): this {
    return this.with(check({ check: 'number_format', format: 'safeint' }, 'invalid_type', 'must be a whole number', Number.isSafeInteger));
  }
  gte(n: number): this {
    return this.with(check({ check: 'greater_than', value: n, inclusive: true }, 'too_small', `must be at least ${n}`, (v) => v >= n));
  }
  lte(n: number): this {
    return this.with(check({ check: 'less_than', value: n, inclusive: true }, 'too_big', `must be at most ${n}`, (v) => v <= n));
  }
  gt(n: number): this {
    return this.with(check({ check: 'greater_than', value: n, inclusive: false }, 'too_small', `must be more than ${n}`, (v) => v > n));
  }
  lt(n: number): this {
    return this.with(check({ check: 'less_than', value: n, inclusive: false }, 'too_big', `must be less than ${n}`, (v) => v < n));
  }
  min(n: number): this { return this.gte(n); }
  max(n: number): this { return this.lte(n); }
  positive(): this { return this.gt(0); }
  negative(): this { return this.lt(0); }
  nonnegative(): this { return this.gte(0); }
  nonpositive(): this { return this.lte(0); }
  multipleOf(n: number): this {
    return this.with(check({ check: 'multiple_of', value: n }, 'not_multiple_of', `must be a multiple of ${n}`, (v) => v % n === 0));
  }
}

/** A list of values of one schema. */
export class List extends Schema {
  min(n: number): this {
    return this.with(check({ check: 'min_length', minimum: n }, 'too_small', `must have at least ${n} elements`, (v) => v.length >= n));
  }
  max(n: number): this {
    return this.with(check({ check: 'max_length', maximum: n }, 'too_big', `must have at most ${n} elements`, (v) => v.length <= n));
  }
  length(n: number): this {
    return this.with(check({ check: 'length_equals', length: n }, 'invalid_length', `must have ${n} elements`, (v) => v.length === n));
  }
  nonempty(): this {
    return this.min(1);
  }
}

/** An object with known keys. Keys it does not know are dropped, kept (`passthrough`) or refused (`strict`). */
export class Obj extends Schema {
  get shape(): Record<string, Schema> { return this._zod.def.shape; }
  strict(): Obj { return objectOf(this.shape, 'strict'); }
  passthrough(): Obj { return objectOf(this.shape, 'keep'); }
  extend(more: Record<string, Schema>): Obj { return objectOf({ ...this.shape, ...more }, this._zod.def.unknown); }
  partial(): Obj { return this.map((s) => s.optional()); }
  pick(keys: Record<string, true>): Obj { return this.keep((k) => k in keys); }
  omit(keys: Record<string, true>): Obj { return this.keep((k) => !(k in keys)); }

  private map(f: (s: Schema) => Schema): Obj {
    return objectOf(Object.fromEntries(Object.entries(this.shape).map(([k, s]) => [k, f(s)])), this._zod.def.unknown);
  }
  private keep(wanted: (key: string) => boolean): Obj {
    return objectOf(Object.fromEntries(Object.entries(this.shape).filter(([k]) => wanted(k))), this._zod.def.unknown);
  }
}

/** A schema for values that a test accepts. */
export function simple(type: string, expected: string, test: (v: any) => boolean): Schema {
  return new Schema({ type }, expecting(expected, test));
}

/** Reads a value that a test accepts, and reports what was expected of any other. */
export function expecting(expected: string, test: (v: any) => boolean): Read {
  return (v, r) => (test(v) ? v : r.add('invalid_type', `expected ${expected}, received ${kindOf(v)}`));
}

/** Refuses what is no schema of this builder, where it is made: later it would fail as something else. */
export function needSchema(what: string, ...schemas: unknown[]): void {
  const wrong = schemas.findIndex((s) => !(s instanceof Schema));
  if (wrong >= 0) throw new TypeError(`${what} needs a schema such as z.string(), not ${shown(schemas[wrong])}`);
}

export function listOf(element: Schema): List {
  needSchema('z.array', element);
  return new List({ type: 'array', element }, (v, r) => {
    if (!Array.isArray(v)) return r.add('invalid_type', `expected array, received ${kindOf(v)}`);
    return v.map((one, i) => r.at(i, () => element.run(one, r)));
  });
}

export function unionOf(options: Schema[]): Schema {
  if (!Array.isArray(options) || options.length === 0) throw new TypeError(`z.union takes a list of schemas, not ${shown(options)}`);
  needSchema('z.union', ...options);
  return new Schema({ type: 'union', options }, (v, r) => {
    for (const o of options) {
      const one = o.safeParse(v);
      if (one.success) return one.data;
    }
    return r.add('invalid_union', 'fits none of the alternatives');
  });
}

export function objectOf(shape: Record<string, Schema>, unknown: 'drop' | 'keep' | 'strict' = 'drop'): Obj {
  if (kindOf(shape) !== 'object') throw new TypeError(`z.object takes a map of schemas, not ${shown(shape)}`);
  for (const [key, schema] of Object.entries(shape)) needSchema(`z.object: ${key}`, schema);
  return new Obj({ type: 'object', shape, unknown }, (v, r) => {
    if (v === null || typeof v !== 'object' || Array.isArray(v)) return r.add('invalid_type', `expected object, received ${kindOf(v)}`);
    const result: Record<string, unknown> = unknown === 'keep' ? { ...v } : {};
    for (const [key, schema] of Object.entries(shape)) {
      const one = r.at(key, () => schema.run(v[key], r));
      if (one !== undefined || key in v) result[key] = one;
    }
    const extra = Object.keys(v).filter((k) => !Object.hasOwn(shape, k));
    if (unknown === 'strict' && extra.length) r.add('unrecognized_keys', `unknown keys: ${extra.join(', ')}`);
    return result;
  });
}
