// Generators: functions among a workflow's jobs that make jobs. One is called to know its jobs, and again by the runner of
// each of them, since only a call gives the functions of their steps.

import { buildNeedsContext, describeJob, matcherOf, noResolver, Report, shown, type LabelReading, type Problem, type SourceLocation } from '@kici-dev/sdk/runtime';
import { evaluate } from './evaluate';
import { settled } from './fields';
import { host, jobLog, log } from './host';
import type { Job } from './job';

/** How long one call of a generator may take. */
export const generatorMs = 120_000;

const maxJobs = 100;

/** What a generator is called with. */
export interface Origin {
  /** Its place among the workflow's jobs. */
  index: number;
  event?: any;
  /** What it needs, and the results of that, as they were at its first call. */
  declaredNeeds?: any[];
  upstreamSnapshot?: { jobs?: Record<string, any>; groups?: Record<string, string[]>; statuses?: Record<string, string> };
  env?: Record<string, string>;
}

/** Calls the generator and gives the jobs that it made. */
export function callGenerator(job: Job, from: Origin, ms = generatorMs): Promise<any[]> {
  const { workflowName } = job.request;
  const generator = job.workflow.jobs?.[from.index];
  if (typeof generator !== 'function') throw new Error(`Generator ${from.index} not found in workflow '${workflowName}'`);
  const { jobs, groups, statuses } = from.upstreamSnapshot ?? {};
  const needs = buildNeedsContext({ needs: from.declaredNeeds, upstreamJobOutputs: jobs, upstreamJobStatuses: statuses, groups });
  const ctx = { workflow: { name: workflowName }, event: from.event ?? job.event, ...(needs && { needs }) };
  const about = { failure: `${titleOf(generator, from.index)} failed`, ms, env: from.env };
  return evaluate(job, about, async (tools) => checked(await generator({ ...tools, ctx })));
}

function titleOf(generator: any, index: number): string {
  return generator.group ? `generator of group '${generator.group}'` : `generator at place ${index + 1} of the jobs`;
}

// checked refuses a result that is no list of jobs with names of their own.
function checked(made: unknown): any[] {
  if (made === undefined || made === null) return [];
  if (!Array.isArray(made)) throw new Error(`it must return a list of jobs, not ${shown(made)}`);
  if (made.length > maxJobs) throw new Error(`it gave ${made.length} jobs, at most ${maxJobs} are possible`);
  const names = new Set<string>();
  made.forEach((one, i) => {
    if (one?._tag !== 'Job') throw new Error(`entry ${i + 1} of its list was not made with job()`);
    if (typeof one.name !== 'string' || one.name === '') throw new Error(`job ${i + 1} has no name; a generated job is known by its name alone`);
    if (names.has(one.name)) throw new Error(`it gave two jobs named '${one.name}'`);
    names.add(one.name);
  });
  return made;
}

/** Calls the generator of the request and describes its jobs as a lock file does. */
export async function generatedJobs(job: Job): Promise<object[]> {
  const { request } = job;
  const index = request.source?.index ?? -1;
  const made = await callGenerator(job, { index, declaredNeeds: request.declaredNeeds, upstreamSnapshot: request.upstreamSnapshot }, request.timeoutMs);
  log(jobLog, `[kici] The generator gave ${made.length === 1 ? '1 job' : `${made.length} jobs`}${made.length ? `: ${made.map((j) => j.name).join(', ')}` : ''}`);
  const all = [];
  for (const one of made) all.push(await settled(job, one));
  return described(all, index, request.source?.file ?? request.sourceFile ?? '');
}

// described describes the jobs twice: the first time tells what the host has to be asked.
async function described(jobs: any[], index: number, file: string): Promise<object[]> {
  const stacks = new Set<string>();
  const labels = new Set<string>();
  const survey = new Report(file, {
    ...noResolver, locate: (stack) => void stacks.add(stack), label: (text) => (labels.add(text), noResolver.label(text)),
  });
  for (const one of jobs) describeJob(one, index, survey);
  const places = await answers<SourceLocation>('locate', 'stacks', stacks);
  const readings = await answers<LabelReading>('labels', 'texts', labels);
  const report = new Report(file, {
    ...noResolver, locate: (stack) => places.get(stack) ?? undefined, label: (text) => matcherOf(readings.get(text)!),
  });
  const made = jobs.map((one) => describeJob(one, index, report));
  refuse(report.problems);
  return made;
}

/** Asks the host about each of the texts, if there are any. */
async function answers<T>(fn: string, name: string, asked: Set<string>): Promise<Map<string, T>> {
  const list = [...asked];
  const found: T[] = list.length ? await host.call(fn, { [name]: list }) : [];
  return new Map(list.map((text, i) => [text, found[i]]));
}

// refuse throws what is wrong with the jobs, and logs what is only doubtful.
function refuse(problems: Problem[]): void {
  const told = (p: Problem) => `${p.message}${p.suggestion ? ` (${p.suggestion})` : ''}`;
  for (const p of problems) if (p.severity === 'warning') log(jobLog, `[kici] Warning: ${told(p)}`);
  const errors = problems.filter((p) => p.severity === 'error');
  if (errors.length === 0) return;
  throw Object.assign(new Error(`the generator gave a job that cannot run: ${errors.map(told).join('; ')}`), { stack: errors[0].stack });
}

/** The generated job of the request, made anew by its generator. */
export async function regenerated(job: Job): Promise<any> {
  const { request } = job;
  const { index, event, expectedJobNames = [], upstreamSnapshot, declaredNeeds } = request.dynamicSource!;
  const jobs = await callGenerator(job, { index, event, upstreamSnapshot, declaredNeeds, env: request.generatorEnv });
  const names: string[] = jobs.map((j) => j.name);
  const found = jobs.find((j) => j.name === job.label);
  if (!found) {
    throw new Error(`non-deterministic re-evaluation: the generator no longer gives job '${job.label}' (workflow '${request.workflowName}', index ${index}). `
      + `It gave [${expectedJobNames.join(', ')}] first and gives [${names.join(', ')}] now; the same event must always give the same jobs.`);
  }
  const dropped = expectedJobNames.filter((n) => !names.includes(n));
  if (dropped.length) {
    job.droppedJobs = dropped;
    log(jobLog, `[kici] Warning: non-deterministic re-evaluation: the generator no longer gives [${dropped.join(', ')}], which are dropped; the same event must always give the same jobs`);
  }
  return found;
}
