// Reading schemas, those of the SDK and those of zod 4: as inputs of a lock file, and as judges of outputs.

import { shown } from './report';
import { kindOf } from './schema';

/** One input as a lock file has it. Keys without a value are left out. */
export interface InputDescriptor {
  type: 'string' | 'number' | 'integer' | 'boolean' | 'enum' | 'literal';
  optional: boolean;
  nullable: boolean;
  default?: unknown;
  values?: string[];
  literal?: unknown;
  min?: number;
  max?: number;
  pattern?: string;
}

/** Whether the value is a schema that these functions can read. */
export function validateSchema(schema: any): boolean {
  return typeof schema?._zod?.def?.type === 'string';
}

/** Turns the schema of an input into its descriptor. Throws an Error for what a lock file cannot carry. */
export function describeInput(schema: any): InputDescriptor {
  if (!validateSchema(schema)) {
    if (schema?._def?.typeName) throw new Error('it is a schema of zod 3; zod 4 or the schema builder of the SDK is needed');
    throw new Error('it is no schema');
  }
  const outer: { optional: boolean; nullable: boolean; default?: unknown } = { optional: false, nullable: false };
  let core = schema;
  let def = schema._zod.def;
  for (;;) {
    if (def.type === 'optional') outer.optional = true;
    else if (def.type === 'nullable') outer.nullable = true;
    else if (def.type === 'default' || def.type === 'prefault') outer.default = 'default' in outer ? outer.default : def.defaultValue;
    else if (def.type !== 'readonly' && def.type !== 'nonoptional') break;
    core = def.innerType;
    def = core._zod.def;
  }
  const { type, ...rest } = inner(def);
  checkDefault(core, outer);
  return { type, optional: outer.optional, nullable: outer.nullable, ...('default' in outer && { default: outer.default }), ...rest };
}

// checkDefault refuses a default that the schema itself would refuse: servers take it as it stands.
function checkDefault(core: any, outer: { nullable: boolean; default?: unknown }): void {
  if (!('default' in outer) || (outer.nullable && outer.default === null)) return;
  const read = core.safeParse(outer.default);
  if (!read.success) throw new Error(`its default ${shown(outer.default)} does not fit: ${firstIssue(read.error)}`);
}

function inner(def: any): Omit<InputDescriptor, 'optional' | 'nullable' | 'default'> {
  switch (def.type) {
    case 'string': return { type: 'string', ...textBounds(checksOf(def)) };
    case 'number': return numeric(checksOf(def));
    case 'boolean': return { type: 'boolean' };
    case 'enum': return { type: 'enum', values: texts(Object.values(def.entries)) };
    case 'literal': return literal(def.values);
  }
  throw new Error(`a schema of type '${def.type}' cannot be an input: use text, number, integer, boolean, enum or literal`);
}

// checksOf lists the definitions of a schema's checks. Some schemas of zod are a check themselves, such as z.int().
function checksOf(def: any): any[] {
  return [...(def.check ? [def] : []), ...(def.checks ?? []).map((c: any) => c._zod.def)];
}

function texts(values: unknown[]): string[] {
  if (values.length === 0 || !values.every((v) => typeof v === 'string')) throw new Error('an enum must have text values');
  return values as string[];
}

function literal(values: unknown[]): Omit<InputDescriptor, 'optional' | 'nullable' | 'default'> {
  if (values.length > 1) return { type: 'enum', values: texts(values) };
  if (!['string', 'number', 'boolean'].includes(typeof values[0]) || typeof values[0] === 'number' && !Number.isFinite(values[0])) throw new Error(`a literal must be text, a number or a boolean, not ${shown(values[0])}`);
  return { type: 'literal', literal: values[0] };
}

function textBounds(checks: any[]): { min?: number; max?: number; pattern?: string } {
  const bounds: { min?: number; max?: number; pattern?: string } = {};
  for (const c of checks) {
    if (c.check === 'min_length') bounds.min = larger(bounds.min, c.minimum);
    else if (c.check === 'max_length') bounds.max = smaller(bounds.max, c.maximum);
    else if (c.check === 'length_equals') bounds.min = bounds.max = c.length;
    else if (c.check === 'string_format' && c.format === 'regex') bounds.pattern = c.pattern.source;
    else throw new Error(`the check '${c.format ?? c.check}' cannot be part of an input: use min, max or regex`);
  }
  return ordered(bounds);
}

function numeric(checks: any[]): Omit<InputDescriptor, 'optional' | 'nullable' | 'default'> {
  const bounds: { min?: number; max?: number } = {};
  const whole = checks.some((c) => c.check === 'number_format');
  const step = (c: any) => {
    if (c.inclusive) return 0;
    if (whole) return 1;
    throw new Error('a bound of a number must be inclusive: use min and max');
  };
  for (const c of checks) {
    if (c.check === 'greater_than') bounds.min = larger(bounds.min, c.value + step(c));
    else if (c.check === 'less_than') bounds.max = smaller(bounds.max, c.value - step(c));
    else if (c.check !== 'number_format') throw new Error(`the check '${c.check}' cannot be part of an input: use int, min or max`);
    else if (c.format !== 'safeint') throw new Error(`the format '${c.format}' cannot be part of an input: use int`);
  }
  return { type: whole ? 'integer' : 'number', ...ordered(bounds) };
}

// larger and smaller give the narrower of two bounds; what is no number stays to be seen.
const larger = (a: any, b: any) => (a === undefined || b > a ? b : a);
const smaller = (a: any, b: any) => (a === undefined || b < a ? b : a);

// ordered fixes the order in which bounds stand in a lock file, whatever the order of the author's calls.
function ordered(b: { min?: number; max?: number; pattern?: string }): { min?: number; max?: number; pattern?: string } {
  for (const name of ['min', 'max'] as const) {
    const n = b[name];
    if (n !== undefined && !(typeof n === 'number' && Math.abs(n) <= Number.MAX_SAFE_INTEGER)) throw new Error(`${name} must be a number that servers can read, not ${shown(n)}`);
  }
  if (b.min! > b.max!) throw new Error(`nothing fits: min ${b.min} is above max ${b.max}`);
  return { ...(b.min !== undefined && { min: b.min }), ...(b.max !== undefined && { max: b.max }), ...(b.pattern !== undefined && { pattern: b.pattern }) };
}

/**
 * Checks what a step returned against its `outputs` schemas. Gives the values as the schemas read them; keys without a
 * schema stay as they are. Throws an Error that names each output that does not fit.
 */
export function validateOutputs(schemas: Record<string, any> | undefined, value: any): any {
  if (!schemas) return value;
  if (value !== undefined && value !== null && kindOf(value) !== 'object') throw new Error(`a step with outputs must return an object that holds them, not ${shown(value)}`);
  const result = { ...(value ?? {}) };
  const wrong: string[] = [];
  for (const [key, schema] of Object.entries(schemas)) {
    const read = schema.safeParse(result[key]);
    if (!read.success) wrong.push(`output '${key}': ${firstIssue(read.error)}`);
    else if (read.data !== undefined) result[key] = read.data;
  }
  if (wrong.length) throw new Error(wrong.join('; '));
  return result;
}

/** Checks what a step's check found against its `drift` schema. The value itself stays as it is. */
export function validateDrift(schema: any, value: unknown): void {
  const read = schema?.safeParse(value);
  if (read && !read.success) throw new Error(`the drift does not fit its schema: ${firstIssue(read.error)}`);
}

function firstIssue(error: any): string {
  const issue = error?.issues?.[0];
  if (!issue) return String(error?.message ?? error);
  return issue.path?.length ? `${issue.path.join('.')}: ${issue.message}` : issue.message;
}
