// Workflows, jobs, steps and generators: plain objects with a tag. Nothing is checked here; the compiler checks all of
// a workflow at once and can so name every mistake, each with its place.

import { readJobResult, outputsOf } from './runtime';
import { kindOf } from './schema';
import { shown } from './report';
import { blamed, mark } from './site';

/** Makes a workflow of its name and options. */
function makeWorkflow(name: string, options: any = {}): any {
  return blamed(mark({ ...options, _tag: 'Workflow', name }), notOptions(options, 'jobs: […]'));
}

/** Makes a job. The name may be left out; `run` stands for one unnamed step. */
function makeJob(...[first, second]: any[]): any {
  const named = typeof first === 'string' || second !== undefined;
  const options = (named ? second : first) ?? {};
  const job: any = { ...options, _tag: 'Job' };
  if (named) job.name = first;
  if (options.run !== undefined && options.steps === undefined) job.steps = [options.run];
  Object.defineProperty(job, 'result', { value: lazy((key) => readJobResult(job, key)) });
  return blamed(mark(job), notOptions(options, "runsOn: 'linux', steps: […]"));
}

/** Makes a step of a function or of options with `run`. The name may be left out. */
function makeStep(...[first, second]: any[]): any {
  const named = typeof first === 'string' || second !== undefined;
  const body = named ? second : first;
  const step: any = typeof body === 'function' ? { _tag: 'Step', run: body } : { ...body, _tag: 'Step' };
  if (named) step.name = first;
  Object.defineProperty(step, 'result', { value: lazy((key) => (outputsOf(step) as any)?.[key]) });
  const wrong = typeof body === 'function' || body === undefined ? undefined : notOptions(body, 'run: async (ctx) => { … }');
  return blamed(mark(step), wrong);
}

/** Makes a group of steps that run side by side. */
function makeParallel(steps: any[], options: any = {}): any {
  const wrong = Array.isArray(steps) ? notOptions(options, 'maxParallel: 2') : `takes a list of steps, parallel([…]), not ${shown(steps)}`;
  return blamed(mark({ failFast: true, ...options, _tag: 'ParallelGroup', steps }), wrong);
}

// notOptions tells that what should be options is something else.
function notOptions(options: any, such: string): string | undefined {
  return kindOf(options) === 'object' ? undefined : `takes options such as { ${such} }, not ${shown(options)}`;
}

/** A generator is a function in `jobs`; a group and needs, if any, are properties of it. */
function makeDynamicJob(group: string, body: any): any {
  const generate = typeof body === 'function' ? body : body?.generate;
  const generator: any = typeof generate === 'function' ? (...args: unknown[]) => generate(...args) : () => [];
  generator._tag = 'DynamicJob';
  generator.group = group;
  generator.broken = typeof generate !== 'function';
  if (kindOf(body) === 'object') {
    generator.options = body;
    if (body.needs !== undefined) generator.needs = body.needs;
  }
  return mark(generator);
}

// lazy reads a property when it is asked for: outputs are known when steps run, not when the workflow is written.
function lazy(read: (key: string) => unknown): unknown {
  return new Proxy({}, { get: (_, key) => (typeof key === 'string' ? read(key) : undefined) });
}

// Short names stay exports only: a top-level name of the SDK would make the bundler rename the same name inside the
// author's functions, whose text a lock file quotes.
export { makeWorkflow as workflow, makeJob as job, makeStep as step, makeParallel as parallel, makeDynamicJob as dynamicJob };
