// The schema builder `z`, also what `zod` means where a repository has not installed it.

import { shown } from './report';
import { Schema, Text, Num, List, Obj, SchemaError, expecting, simple, listOf, needSchema, unionOf, objectOf, kindOf } from './schema';

function enumOf(values: readonly string[] | Record<string, string>): Schema {
  if (values === null || typeof values !== 'object') throw new TypeError(`z.enum takes a list of texts, not ${shown(values)}`);
  const entries = Array.isArray(values) ? Object.fromEntries(values.map((v) => [v, v])) : values as Record<string, string>;
  const options = Object.values(entries);
  const expected = `one of ${options.map((o) => shown(o)).join(', ')}`;
  const schema = new Schema({ type: 'enum', entries }, (v, r) => (options.includes(v) ? v : r.add('invalid_value', `expected ${expected}`)));
  return Object.assign(schema, { options, enum: entries });
}

function literalOf(value: any): Schema {
  const values = Array.isArray(value) ? value : [value];
  return new Schema({ type: 'literal', values }, (v, r) =>
    values.includes(v) ? v : r.add('invalid_value', `expected ${values.map((o) => shown(o)).join(' or ')}`));
}

function recordOf(key: Schema, value: Schema): Schema {
  needSchema('z.record', key, value);
  return new Schema({ type: 'record', keyType: key, valueType: value }, (v, r) => {
    if (v === null || typeof v !== 'object' || Array.isArray(v)) return r.add('invalid_type', `expected record, received ${kindOf(v)}`);
    return Object.fromEntries(Object.entries(v).map(([k, one]) => r.at(k, () => [key.run(k, r), value.run(one, r)])));
  });
}

function tupleOf(items: Schema[]): Schema {
  if (!Array.isArray(items)) throw new TypeError(`z.tuple takes a list of schemas, not ${shown(items)}`);
  needSchema('z.tuple', ...items);
  return new Schema({ type: 'tuple', items }, (v, r) => {
    if (!Array.isArray(v) || v.length !== items.length) return r.add('invalid_type', `expected a list of ${items.length}`);
    return items.map((s, i) => r.at(i, () => s.run(v[i], r)));
  });
}

const isText = (v: unknown) => typeof v === 'string';
const isNumber = (v: unknown) => typeof v === 'number' && Number.isFinite(v);
const makeText = () => new Text({ type: 'string' }, expecting('string', isText));
const makeNumber = () => new Num({ type: 'number' }, expecting('number', isNumber));

/** Builds schemas. */
const schemaBuilder = /* @__PURE__ */ Object.freeze({
  string: makeText,
  number: makeNumber,
  int: () => makeNumber().int(),
  boolean: () => simple('boolean', 'boolean', (v) => typeof v === 'boolean'),
  enum: enumOf,
  nativeEnum: enumOf,
  literal: literalOf,
  array: listOf,
  object: (shape: Record<string, Schema>) => objectOf(shape),
  strictObject: (shape: Record<string, Schema>) => objectOf(shape, 'strict'),
  looseObject: (shape: Record<string, Schema>) => objectOf(shape, 'keep'),
  record: (key: Schema, value?: Schema) => (value ? recordOf(key, value) : recordOf(makeText(), key)),
  tuple: tupleOf,
  union: unionOf,
  optional: (s: Schema) => s.optional(),
  nullable: (s: Schema) => s.nullable(),
  any: () => simple('any', 'anything', () => true),
  unknown: () => simple('unknown', 'anything', () => true),
  null: () => simple('null', 'null', (v) => v === null),
  undefined: () => simple('undefined', 'undefined', (v) => v === undefined),
  void: () => simple('void', 'nothing', (v) => v === undefined),
  email: () => makeText().email(),
  url: () => makeText().url(),
  uuid: () => makeText().uuid(),
});

export { SchemaError as ZodError, Schema as ZodType, Text as ZodString, Num as ZodNumber, List as ZodArray, Obj as ZodObject };
export { schemaBuilder as z, schemaBuilder as default };
