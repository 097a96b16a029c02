// Steps, groups of steps and rules as a lock file has them.

import { blameOf, siteOf } from './site';
import { checkHooks, duration, flags, warnUnknown } from './describe';
import { kindOf } from './schema';
import { validateSchema } from './schema-tools';
import { cacheOptions, normalizeApproval, normalizeCacheSpecs, normalizeRetry, retryOptions } from './normalize';
import { Report, compact, flag, shown } from './report';

type Fields = Record<string, unknown>;

const options = [
  'run', 'outputs', 'continueOnError', 'timeout', 'retry', 'cache', 'rules', 'onCancel', 'cleanup', 'approval', 'check',
  'summarize', 'drift', 'whenInSync', 'description', 'name', '_tag',
];

/** One step of a flattened list: the author's step or function, and the name it runs under. */
export interface FlatStep {
  name: string;
  step: any;
  /** The group it belongs to, counted from 0 over the job's groups. */
  group?: number;
}

/** The steps of a job with groups opened, in the order of their indices, each with its name: unnamed ones are
 * `step-N`, N counting those from 1. */
export function flattenSteps(steps: any[]): FlatStep[] {
  let unnamed = 0;
  let groups = 0;
  const named = (step: any, group?: number): FlatStep => ({
    name: (step?._tag === 'Step' && typeof step.name === 'string' && step.name) || `step-${++unnamed}`, step, ...(group !== undefined && { group }),
  });
  return steps.flatMap((entry) => {
    if (entry?._tag !== 'ParallelGroup') return [named(entry)];
    const group = groups++;
    return (Array.isArray(entry.steps) ? entry.steps : []).map((s: any) => named(s, group));
  });
}

/** Describes the steps of a job. */
export function describeSteps(job: any, owner: string, stack: string, report: Report): Fields[] {
  if (job.run !== undefined && !(job.steps?.length === 1 && job.steps[0] === job.run)) report.error('E111', stack, `${owner}: steps and run exclude each other`);
  if (!Array.isArray(job.steps)) {
    report.error('E111', stack, job.steps === undefined ? `${owner} needs steps or run` : `${owner}: steps must be a list`);
    return [];
  }
  const names = flattenSteps(job.steps);
  warnTwins(names, owner, stack, report);
  let next = 0;
  let groups = 0;
  return job.steps.map((entry: any) => {
    if (entry?._tag !== 'ParallelGroup') return describeStep(entry, names[next++].name, owner, stack, report);
    const children = Array.isArray(entry.steps) ? entry.steps : [];
    const described = children.map((s: any) => describeStep(s, names[next++].name, owner, siteOf(entry) || stack, report, true));
    return describeParallel(entry, groups++, described, owner, siteOf(entry) || stack, report);
  });
}

function warnTwins(names: FlatStep[], owner: string, stack: string, report: Report): void {
  const seen = new Map<string, number>(); // of those in no group, -1; two of one name in one group are a mistake
  for (const { name, group = -1, step } of names) {
    if (seen.has(name) && (group === -1 || seen.get(name) !== group)) report.warn('W103', siteOf(step) || stack, `${owner} has two steps named '${name}': outputs of the later one hide those of the earlier`);
    seen.set(name, group);
  }
}

function describeParallel(group: any, ordinal: number, children: Fields[], owner: string, stack: string, report: Report): Fields {
  const name = group.name ?? `parallel-${ordinal}`;
  const self = `${owner}: parallel group '${typeof name === 'string' ? name : shown(name)}'`;
  const wrong = (message: string) => report.error('E118', stack, `${self} ${message}`);
  const blame = blameOf(group);
  if (blame) wrong(blame);
  else if (children.length === 0) wrong('has no steps');
  warnUnknown(group, ['steps', 'failFast', 'maxParallel', 'name', '_tag'], self, stack, report);
  if (typeof name !== 'string' || name === '') wrong('needs a name that is text');
  flags(group, ['failFast'], self, stack, report);
  if (new Set(children.map((c) => c.name)).size < children.length) wrong('has two steps of one name');
  if (group.maxParallel !== undefined && !(Number.isSafeInteger(group.maxParallel) && group.maxParallel >= 1)) wrong('needs a maxParallel of at least 1');
  return compact({ kind: 'parallel', name, failFast: group.failFast ?? true, maxParallel: group.maxParallel, children });
}

function describeStep(step: any, name: string, owner: string, outer: string, report: Report, inGroup = false): Fields {
  const stack = siteOf(step) || outer;
  const self = `${owner}, step '${name}'`;
  if (inGroup) checkGrouped(step, self, stack, report);
  if (typeof step === 'function') return { name, hasOutputs: false };
  if (step?._tag !== 'Step') {
    if (!(inGroup && step?._tag === 'ParallelGroup')) report.error('E111', stack, `${self} is neither a step nor a function`);
    return { name, hasOutputs: false };
  }
  if (step.name !== undefined && (typeof step.name !== 'string' || step.name === '')) report.error('E111', stack, `${owner}: the name of a step must be text that is not empty, not ${shown(step.name)}`);
  const blame = blameOf(step);
  if (blame) {
    report.error('E111', stack, `${self} ${blame}`);
    return { name, hasOutputs: false };
  }
  warnUnknown(step, options, self, stack, report);
  warnUnknown(step.retry, retryOptions, `${self}: retry`, stack, report);
  warnUnknown(step.cache, cacheOptions, `${self}: cache`, stack, report);
  checkHooks(step, self, stack, report);
  flags(step, ['continueOnError'], self, stack, report);
  checkFacets(step, self, stack, report);
  return compact({
    name,
    hasOutputs: Boolean(step.outputs),
    continueOnError: step.continueOnError,
    timeout: duration(step.timeout, `${self}: timeout`, 'milliseconds', stack, report),
    retry: report.try('E111', stack, `${self}: `, () => normalizeRetry(step.retry)),
    cache: report.try('E111', stack, `${self}: `, () => normalizeCacheSpecs(step.cache)),
    sourceLocation: siteOf(step) ? report.resolver.locate(siteOf(step)) : undefined,
    hasRules: flag(step.rules?.length),
    rules: describeRules(step.rules, self, stack, (i) => i, report),
    hasOnCancel: flag(step.onCancel),
    hasCleanup: flag(step.cleanup),
    hasCheck: flag(step.check),
    hasWhenInSync: flag(step.whenInSync),
    approval: report.try('E114', stack, `${self}: `, () => stepApproval(step)),
  });
}

function stepApproval(step: any): unknown {
  const approval = normalizeApproval(step.approval);
  if (approval?.when === 'drift' && !step.check) throw new Error("approval when 'drift' needs a check");
  return approval;
}

function checkFacets(step: any, self: string, stack: string, report: Report): void {
  if (typeof step.run !== 'function') report.error('E111', stack, `${self} needs a function run`);
  for (const name of ['check', 'summarize', 'whenInSync']) {
    if (step[name] !== undefined && typeof step[name] !== 'function') report.error('E111', stack, `${self}: ${name} must be a function`);
  }
  if (step.outputs !== undefined && kindOf(step.outputs) !== 'object' || validateSchema(step.outputs)) {
    report.error('E111', stack, `${self}: outputs must be a map of schemas, such as { version: z.string() }, not ${validateSchema(step.outputs) ? 'one schema' : shown(step.outputs)}`);
  } else for (const [name, schema] of Object.entries(step.outputs ?? {})) {
    if (!validateSchema(schema)) report.error('E111', stack, `${self}: outputs.${name} must be a schema, such as z.string()`);
  }
  if (step.drift !== undefined && !validateSchema(step.drift)) report.error('E111', stack, `${self}: drift must be a schema, such as z.string()`);
  if (step.check && !step.summarize) report.error('E111', stack, `${self}: a step with check needs summarize`);
  if (!step.check && (step.summarize || step.whenInSync)) report.error('E111', stack, `${self}: summarize and whenInSync need a check`);
}

const changesEnvironment = /\b(setEnv|addPath)\s*\(|\bKICI_(ENV|PATH)\b/;

// Steps that run side by side may not change the environment: which of them came last would be chance.
function checkGrouped(step: any, self: string, stack: string, report: Report): void {
  if (step?._tag === 'ParallelGroup') report.error('E118', siteOf(step) || stack, `${self}: a parallel group cannot hold another`);
  const run = typeof step === 'function' ? step : step?.run;
  const use = typeof run === 'function' ? changesEnvironment.exec(Function.prototype.toString.call(run)) : null;
  if (use) report.error('E118', stack, `${self}: ${use[0].replace(/\s*\($/, '')} cannot be used in a parallel group`);
}

/** Describes rules; `index` gives the number under which a rule is known. No rules give undefined. */
export function describeRules(rules: any, owner: string, stack: string, index: (i: number) => number, report: Report): Fields[] | undefined {
  if (rules === undefined) return undefined;
  if (!Array.isArray(rules)) {
    report.error('E110', stack, `${owner}: rules must be a list`);
    return undefined;
  }
  const described = rules.map((rule, i) => {
    const blame = blameOf(rule);
    if (blame) report.error('E110', siteOf(rule) || stack, `${owner}: entry ${i + 1} of rules ${blame}`);
    else if (rule?._tag !== 'Rule' || typeof rule.check !== 'function') report.error('E110', siteOf(rule) || stack, `${owner}: entry ${i + 1} of rules must be made with rule() or skip()`);
    else if (typeof rule.label !== 'string' || rule.label === '') report.error('E110', siteOf(rule) || stack, `${owner}: entry ${i + 1} of rules needs a label that is text`);
    return { _type: 'dynamic', label: rule?.label, source: { file: report.file, index: index(i) } };
  });
  return described.length ? described : undefined;
}
