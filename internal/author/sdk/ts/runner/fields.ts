// The parts of a job that may be functions: its contexts, variables, concurrency group and matrix.

import { applyIncludeExclude, combinationsOf, contextsOf, copied, expandMatrix, kindOf, maxCombinations, readMatrix, variablesOf } from '@kici-dev/sdk/runtime';
import { evaluate } from './evaluate';
import type { Job } from './job';

/** How long the function of one field may take. */
export const fieldMs = 60_000;

/** The error of a matrix that cannot be had. Servers tell it from other failures. */
export class MatrixError extends Error {
  readonly category = 'matrix_expansion';
  constructor(readonly jobName: string, cause: any) {
    super(cause.message);
    this.stack = cause.stack;
  }
}

// field computes one field with the event, which is all that those functions get.
function field<T>(job: Job, made: any, name: string, ms: number, value: any, read: (v: unknown) => T): Promise<T> {
  const about = { failure: `${name} evaluation failed for job '${made.name}'`, ms };
  return evaluate(job, about, async () => read(typeof value === 'function' ? await value(job.event) : value));
}

/** The names of the job's contexts in their order. */
export async function contextNames(job: Job, made: any, ms = fieldMs): Promise<string[]> {
  const names: string[] = [];
  for (const one of contextsOf(made).list) names.push(await field(job, made, 'environment', ms, one, contextName));
  return names;
}

function contextName(value: unknown): string {
  const name = text(value);
  if (name === '') throw new Error('the function must return the name of a context, got an empty string');
  return name;
}

function text(value: unknown): string {
  if (typeof value !== 'string') throw new Error(`the function must return a string, got ${kindOf(value)}`);
  return value;
}

/** The variables of the job. */
export function variables(job: Job, made: any, ms = fieldMs): Promise<Record<string, string>> {
  return field(job, made, 'env', ms, made.env, (value) => {
    if (value === null || typeof value !== 'object' || Array.isArray(value)) throw new Error(`the function must return an object, got ${kindOf(value)}`);
    return variablesOf(value);
  });
}

/** The concurrency group of the job. */
export function concurrencyGroup(job: Job, made: any, ms = fieldMs): Promise<string> {
  return field(job, made, 'concurrencyGroup', ms, made.concurrencyGroup, text);
}

/** The values of the job's matrix. Throws MatrixError. */
export async function matrixValues(job: Job, made: any, ms = fieldMs): Promise<string[] | Record<string, string[]>> {
  const about = { failure: `matrix evaluation failed for job '${made.name}'`, ms };
  const ctx = { workflow: { name: job.request.workflowName }, event: job.event };
  try {
    return await evaluate(job, about, async (tools) => readMatrix(typeof made.matrix === 'function' ? returned(await made.matrix({ ...tools, ctx })) : made.matrix));
  } catch (e) {
    throw new MatrixError(made.name, e);
  }
}

function returned(value: unknown): unknown {
  if (!['array', 'object'].includes(kindOf(value))) throw new Error(`the function must return a list or a map of lists, got ${kindOf(value)}`);
  return value;
}

/** All combinations of the job's matrix, after its excludes and includes. Throws MatrixError. */
export async function combinations(job: Job, made: any, ms = fieldMs): Promise<Record<string, string>[]> {
  return expanded(made, await matrixValues(job, made, ms));
}

function expanded(made: any, values: string[] | Record<string, string[]>): Record<string, string>[] {
  const wrong = (message: string) => new MatrixError(made.name, new Error(`dynamic matrix for job '${made.name}' ${message}`));
  const all = Array.isArray(values) ? values.length : Object.values(values).reduce((n, list) => n * list.length, 1);
  if (all > maxProduct) throw wrong(`resolved to ${all} combinations (max ${maxCombinations})`);
  const list = applyIncludeExclude(expandMatrix(values), combinationsOf(made.include, 'include'), combinationsOf(made.exclude, 'exclude'));
  if (list.length === 0) throw wrong('resolved to zero combinations');
  if (list.length > maxCombinations) throw wrong(`resolved to ${list.length} combinations (max ${maxCombinations})`);
  return list;
}

/** What is multiplied out before excludes are applied is bounded, so that a slip costs nothing. */
const maxProduct = 1 << 14;

/** A copy of the job in which every such function has become its value. */
export async function settled(job: Job, made: any): Promise<any> {
  const copy = copied(made);
  const { key, list } = contextsOf(made);
  if (Array.isArray(list) && list.some((one) => typeof one === 'function')) {
    const names = await contextNames(job, made);
    copy[key] = Array.isArray(made[key]) ? names : names[0];
    // Only a name that was written as one gives a default group.
    if (typeof list[0] === 'function') copy.concurrencyGroup ??= null;
  }
  if (typeof made.env === 'function') copy.env = await variables(job, made);
  if (typeof made.concurrencyGroup === 'function') copy.concurrencyGroup = await concurrencyGroup(job, made);
  if (typeof made.matrix === 'function') expanded(made, copy.matrix = await matrixValues(job, made));
  return copy;
}
