// Events of the author's own, dispatch inputs and fixtures.

import { shown } from './report';
import { mark } from './site';

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

/** A named event to start a test run with. */
function makeFixture(id: string, options: any): any {
  if (typeof id !== 'string' || id === '' || /\s/.test(id)) throw new Error(`fixture id ${shown(id)} must be a name without white space`);
  return mark({ ...options, _tag: 'Fixture', id });
}

export { makeFixture as fixture };
