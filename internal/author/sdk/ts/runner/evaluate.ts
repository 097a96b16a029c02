// Functions of the author's that decide about jobs before any step runs: fields of a job, matrices, generators, groups.

import { filesApi } from './files';
import { jobLog, within } from './host';
import type { Job } from './job';
import { attempt, describeError } from './outcome';
import { shell } from './shell';
import { controller } from './signal';

/** What such a function is given to work with. */
export interface Tools {
  $: any;
  files: any;
  log: any;
  env: Record<string, string>;
  kici: any;
}

/** One call: how its failure is told (the beginning of the error), and how long it may take in milliseconds. */
export interface Evaluation {
  failure: string;
  ms: number;
  /** The variables that it sees; the job's own where none are given. */
  env?: Record<string, string>;
}

/** Calls a function of the author's and gives its result. Throws an Error with the stack of what went wrong. */
export async function evaluate<T>(job: Job, about: Evaluation, call: (tools: Tools) => T | Promise<T>): Promise<T> {
  const own = controller(job.steps.signal);
  const scope = { ...job.scope(jobLog, own.signal), ...(about.env && { env: { ...about.env } }) };
  const tools: Tools = { $: shell(scope), files: filesApi(scope.cwd), log: job.logger(jobLog, ''), env: { ...scope.env }, kici: job.kici };
  const late = `timed out after ${about.ms}ms`;
  const outcome = await attempt(() => within(jobLog, async () => call(tools)), own, scope, about.ms, late,
    { stepIndex: jobLog, stepName: '', failure: `${about.failure}: ${late}` });
  if ('value' in outcome) return outcome.value as T;
  throw failure(about.failure, 'error' in outcome ? outcome.error : 'expired' in outcome ? late : 'aborted');
}

/** The error of a cause, which keeps its stack: that is where the author looks. */
function failure(what: string, cause: any): Error {
  const error = new Error(`${what}: ${describeError(cause).message}`, cause?.cause === undefined ? undefined : { cause: cause.cause });
  error.stack = typeof cause?.stack === 'string' ? cause.stack : '';
  return error;
}
