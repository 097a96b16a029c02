// Events of the author's own, dispatch inputs and fixtures.

import { kindOf } from './schema';
import { mark } from './site';
import { shown } from './report';
import { suggest } from './spelling';

/** An event with a schema for its payload; `ctx.emit(event, payload)` checks it. */
export function defineEvent(name: string, schema: any): any {
  if (typeof name !== 'string' || name === '') throw new Error(`defineEvent needs the name of the event, not ${shown(name)}`);
  if (typeof schema?.parse !== 'function') throw new Error(`defineEvent '${name}' needs a schema, such as z.object({ version: z.string() })`);
  return { _tag: 'EventDefinition', name, schema };
}

/** Wraps a map of schemas so that `inputs.from(ctx)` gives the inputs of the dispatch with their types. */
export function defineDispatchInputs(schemas: any): any {
  return { _tag: 'DispatchInputs', schemas, from: (ctx: any) => ctx?.dispatchInputs ?? {} };
}

const isMap = (v: unknown) => kindOf(v) === 'object';
const isText = (v: unknown) => typeof v === 'string';
const isScalar = (v: unknown) => ['string', 'number', 'boolean'].includes(typeof v);

/** The options of a fixture, and what each must be. */
const fixtureOptions: Record<string, { must: string; test(v: any): boolean }> = {
  description: { must: 'text', test: isText },
  event: { must: "the name of a built-in event, as in 'push', or an object with a type", test: (v) => isText(v) || isMap(v) && isText(v.type) },
  branch: { must: 'text', test: isText },
  payload: { must: 'a map', test: isMap },
  changedFiles: { must: 'a list of paths', test: (v) => Array.isArray(v) && v.every(isText) },
  inputs: { must: 'a map of texts, numbers and booleans', test: (v) => isMap(v) && Object.values(v).every(isScalar) },
};

function checkFixture(id: string, name: string, value: unknown): void {
  const option = Object.hasOwn(fixtureOptions, name) ? fixtureOptions[name] : undefined;
  if (!option) {
    const meant = suggest(name, Object.keys(fixtureOptions));
    throw new Error(`fixture '${id}' has no option '${name}'${meant ? `; ${meant}` : ''}`);
  }
  if (value !== undefined && !option.test(value)) throw new Error(`fixture '${id}': ${name} must be ${option.must}, not ${shown(value)}`);
}

/** A named event to start a test run with. */
function makeFixture(id: string, options: any): any {
  if (typeof id !== 'string' || id === '' || /\s/.test(id)) throw new Error(`fixture id ${shown(id)} must be a name without white space`);
  for (const [name, value] of Object.entries(options ?? {})) checkFixture(id, name, value);
  return mark({ ...options, _tag: 'Fixture', id });
}

export { makeFixture as fixture };
